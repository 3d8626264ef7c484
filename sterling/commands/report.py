"""``sterling report runs/* --out report/``: write one page about runs, and its pictures."""

from __future__ import annotations

import argparse
from pathlib import Path

from sterling.commands import evaluation_options

EXPLAINED = """\
Writes OUT/index.html, a page that needs no other file, and its pictures as PNG, SVG and
PDF: learning curves, scores with intervals, comparisons, and, if a table of reference
scores has the environments, aggregates and performance profiles.

RUN is a run folder, a folder of run folders, or a CSV or JSON file with the scores of any
other library; LABEL=RUN gives it a label. Unfinished runs, failed seeds and single seeds
are shown and marked as such.

Exit code 0 if the page is written, 2 for wrong use."""


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of ``sterling report``."""
    parser.epilog = EXPLAINED
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    evaluation_options.add_options(parser)
    add = parser.add_argument
    add("--out", type=Path, default=Path("report"), metavar="FOLDER",
        help="folder to write (report)")  # fmt: skip
    evaluation_options.add_normalise(add, "the table that has most of the environments")
    add("--title", default="Report", help="title of the page (Report)")


def carry_out(chosen: argparse.Namespace) -> int:
    """Write the report and print its path."""
    from sterling.report.build_report import report_on

    names = ("out", "title", "normalise", "tasks", "metric", "failed", "about", "within", "alpha")
    print(report_on(*chosen.runs, **{name: getattr(chosen, name) for name in names}).path)
    return 0
