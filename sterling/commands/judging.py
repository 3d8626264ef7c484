"""What commands that judge runs have in common."""

from __future__ import annotations

import argparse

from sterling.commands import readers


def options(parser: argparse.ArgumentParser) -> None:
    """Which runs, which of their numbers, and how strictly."""
    add = parser.add_argument
    add("runs", nargs="+", metavar="RUN", help="run folders, folders of them, files of scores")
    add("--tasks", nargs="+", metavar="ENVIRONMENT", help="only these environments")
    logged = "the score: return, or a column of the log such as data/return (return)"
    add("--metric", default="return", metavar="NAME", help=logged)
    counts = "what a failed seed counts as: a score, worst (if the bounds are known) or exclude"
    add("--failed", type=readers.failed, metavar="SCORE", help=counts)
    wrong = "probability of any wrong decision on an environment (0.05)"
    add("--alpha", type=float, default=0.05, metavar="P", help=wrong)
