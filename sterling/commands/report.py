"""``sterling report runs/* --out report/``: one page with everything, and its pictures."""

from __future__ import annotations

import argparse
from pathlib import Path

from sterling.commands import judging

EXPLAINED = """\
Writes OUT/index.html, one page that needs nothing else, and its pictures as PNG, SVG and
PDF: learning curves, scores with intervals, who is better, and, where a table of reference
scores knows the environments, aggregates and performance profiles.

RUN is a run folder, a folder of run folders, or a CSV or JSON file with the scores of any
other library; LABEL=RUN gives it a name of its own. Runs that are not finished, seeds
that failed and single seeds are shown and named.

Exit code 0 when the page is written, 2 for wrong use."""


def options(parser: argparse.ArgumentParser) -> None:
    """What can be asked for."""
    parser.description, parser.epilog = "a page with curves, intervals and decisions", EXPLAINED
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    judging.options(parser)
    add = parser.add_argument
    add("--out", type=Path, default=Path("report"), metavar="FOLDER", help="to write to (report)")
    known = "table of reference scores to normalise by (the one that knows the environments)"
    add("--normalise", metavar="TABLE", help=known)
    add("--title", default="Report", help="of the page")


def carry_out(chosen: argparse.Namespace) -> int:
    """Write the report and print where it is."""
    from sterling.report.compose import write
    from sterling.report.material import Request

    judging.check(chosen)
    asked = Request(
        chosen.metric, chosen.alpha, chosen.failed, chosen.normalise, chosen.title, chosen.tasks,
        chosen.about, chosen.within,
    )  # fmt: skip
    print(write(chosen.runs, chosen.out, asked))
    return 0
