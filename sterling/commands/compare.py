"""``sterling compare runs/a runs/b``: compare algorithms by their runs, in numbers and in words."""

from __future__ import annotations

import argparse

from sterling.commands import compare_until, evaluation_options

EXPLAINED = """\
RUN is a run folder, a folder of run folders, or a CSV or JSON file with the scores of any
other library; LABEL=RUN gives it a label. Runs of one algorithm on one environment are
pooled as seeds, unless their settings differ: then they are compared with each other.
Failed seeds are left out of the numbers, and comparisons that involve them stay
undecided, until --failed says what a failed seed counts as.

Exit code 0, also if nothing is decided; 2 for wrong use."""


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of ``sterling compare``."""
    parser.epilog = EXPLAINED
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    evaluation_options.add_options(parser)
    add = parser.add_argument
    add("--key", type=int, default=0, metavar="N", help="random seed of the resampling (0)")
    evaluation_options.add_normalise(add, "no normalised scores")
    add("--json", action="store_true", help="print the comparison as JSON")
    compare_until.add_options(parser)


def carry_out(chosen: argparse.Namespace) -> int:
    """Compare runs and print the result; with --until-decided, train until it is decided."""
    import json

    from sterling.evaluation.compare_runs import compare

    names = ("tasks", "metric", "normalise", "failed", "about", "within", "alpha", "key")
    options = {name: getattr(chosen, name) for name in (*names, "until_decided")}
    training = compare_until.training_options(chosen)
    made = compare(*chosen.runs, **options, **training)
    print(json.dumps(made.to_json(), indent=1, allow_nan=False) if chosen.json else repr(made))
    return 0
