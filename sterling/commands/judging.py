"""What commands that judge runs have in common."""

from __future__ import annotations

import argparse

from sterling.commands import readers

ABOUT = ("tendency", "mean")


def options(parser: argparse.ArgumentParser) -> None:
    """Which runs, which of their numbers, and how strictly."""
    add = parser.add_argument
    add("runs", nargs="+", metavar="RUN", help="run folders, folders of them, files of scores")
    add("--tasks", nargs="+", metavar="ENVIRONMENT", help="only these environments")
    logged = "the score: return, or a column of the log such as data/return (return)"
    add("--metric", default="return", metavar="NAME", help=logged)
    counts = "what a failed seed counts as: a score, worst (if the bounds are known) or exclude"
    add("--failed", type=readers.failed, metavar="SCORE", help=counts)
    what = "what is decided: which tends to score higher, or, within bounds, which mean is higher"
    add("--about", choices=ABOUT, default=ABOUT[0], help=f"{what} ({ABOUT[0]})")
    bounds = "no score leaves these: for --about mean (what the environment declares); write ="
    add("--within", type=readers.within, metavar="LOW,HIGH", help=bounds)
    wrong = "probability of any wrong decision on an environment (0.05)"
    add("--alpha", type=float, default=0.05, metavar="P", help=wrong)


def check(chosen: argparse.Namespace) -> None:
    """Raise Mistake for bounds that would have no effect."""
    from sterling.types import Mistake

    if chosen.within is not None and chosen.about != "mean":
        raise Mistake("--within gives the bounds of means: add --about mean, or leave it out")
