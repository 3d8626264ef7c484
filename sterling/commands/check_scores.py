"""``sterling check-scores runs/*``: our scores beside the published ones."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from sterling.commands import readers

if TYPE_CHECKING:
    from sterling.report.beside import Check
    from sterling.report.runs import Result
    from sterling.statistics import Headline

EXPLAINED = """\
Each run is set beside every published score of its algorithm on its task
(sterling/references/scores): where does the interval of our mean lie against the
published value plus or minus its tolerance?

  below            the whole interval lies under it
  within           the whole interval lies inside
  above            the whole interval lies over it
  within or above  it reaches over the upper edge only
  cannot tell      it straddles the lower edge, or there is one seed and no interval

A published score that was measured otherwise (another version of the environment,
another budget, returns of training, the maximum over training) is shown with what
differs, and does not decide. Exit code 1 if a run is below one that was measured alike,
0 if none is, 2 for wrong use. A run with failed seeds has no single mean unless --failed
says what they count as; it is below where even the seeds that did not fail are."""


def options(parser: argparse.ArgumentParser) -> None:
    """What can be asked for."""
    parser.description, parser.epilog = "compare scores with published ones", EXPLAINED
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    add = parser.add_argument
    add("runs", nargs="+", metavar="RUN", help="run folders, or folders of them")
    otherwise = "published scores that were measured otherwise decide too"
    add("--strict", action="store_true", help=otherwise)
    counts = "what a failed seed counts as: a score, worst (if the bounds are known) or exclude"
    add("--failed", type=readers.failed, metavar="SCORE", help=counts)


def carry_out(chosen: argparse.Namespace) -> int:
    """Print the verdicts; 1 if a run is below."""
    from sterling.report.beside import BELOW, check, finals
    from sterling.report.runs import read

    results, notes = read(chosen.runs)
    failed = False
    for result, made in finals(results, chosen.failed):
        checks = check(result, made)
        print(_heading(result, made))
        print(_table(checks))
        print()
        deciding = [one for one in checks if one.comparable or chosen.strict]
        failed |= any(one.verdict == BELOW for one in deciding)
    for note in notes:
        print(f"note: {note}")
    return int(failed)


def _heading(result: Result, made: Headline) -> str:
    from sterling.report.text import count, listed, steps

    seeds = count(len(result.seeds), "seed")
    gone = f", of which failed: {listed(result.failed)}" if result.failed else ""
    told = f"{made} (by seed {made.seeds})" if made.seeds else str(made)
    taken = steps(result.updates or result.steps)
    budget = f"{taken} {'updates' if result.updates else 'steps'}"
    return f"{result.algorithm} on {result.environment}, {budget}, {seeds}{gone}: {told}"


def _table(checks: list[Check]) -> str:
    from sterling.report.text import columns, number

    if not checks:
        return "  no published score is known"
    rows = [
        [
            "  " + one.verdict,
            number(one.reference.value),
            f"[{number(one.reference.low)}, {number(one.reference.high)}]",
            " ".join(filter(None, [one.reference.source.name, one.reference.variant])),
            ", ".join(one.differs) or "-",
        ]
        for one in checks
    ]
    header = ["  verdict", "published", "tolerated", "source", "measured otherwise"]
    return columns(header, rows, "lrr")
