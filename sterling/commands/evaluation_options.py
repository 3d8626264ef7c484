"""Options of the commands that compare runs: ``sterling compare`` and ``sterling report``."""

from __future__ import annotations

import argparse
from typing import Any

from sterling.commands.options import option_values

ABOUT = ("tendency", "mean")


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options for the runs, the score to compare, and the error probability."""
    add = parser.add_argument
    add("runs", nargs="+", metavar="RUN", help="run folders, folders of them, or files of scores")
    add("--tasks", nargs="+", metavar="ENVIRONMENT", help="use only runs on these environments")
    logged = "the score: return, or a column of metrics such as data/return (return)"
    add("--metric", default="return", metavar="NAME", help=logged)
    counts = "what a failed seed counts as: a score, worst (if the bounds are known) or exclude"
    add("--failed", type=option_values.failed_score, metavar="SCORE", help=counts)
    what = "what to decide: which tends to score higher (tendency), or which mean is higher (mean; "
    what += "needs bounds); default: tendency"
    add("--about", choices=ABOUT, default=ABOUT[0], help=what)
    bounds = "bounds of all scores, for --about mean (the environment's); write --within=LOW,HIGH"
    add("--within", type=option_values.bound_pair, metavar="LOW,HIGH", help=bounds)
    wrong = "largest probability of any wrong decision per environment (0.05)"
    add("--alpha", type=float, default=0.05, metavar="P", help=wrong)


def add_normalise(add: Any, otherwise: str) -> None:
    """Add the option for a table of reference scores; ``otherwise``: what happens without it."""
    known = "normalise by a table of reference scores: a name, or a file of your own (.csv with "
    known += f"environment,low,high, or .json); default: {otherwise}"
    add("--normalise", metavar="TABLE|FILE", help=known)
