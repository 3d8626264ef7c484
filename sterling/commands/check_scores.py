"""``sterling check-scores runs/*``: compare the scores of runs with published scores."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from sterling.commands import evaluation_options
from sterling.commands.options import option_values

if TYPE_CHECKING:
    from sterling.report.published_verdicts import PublishedCheck
    from sterling.report.runs.read_runs import RunResult
    from sterling.statistics import Headline

EXPLAINED = """\
Each run is compared with every published score of its algorithm on its task
(sterling/references/scores). The verdict says where the interval of the run's mean lies,
relative to the published value plus or minus its tolerance:

  below            the whole interval lies below that range
  within           the whole interval lies inside it
  above            the whole interval lies above it
  within or above  the interval crosses only the upper end of the range
  cannot tell      the interval crosses the lower end, or one seed gives no interval

A published score that was measured differently (another version of the environment,
another budget, returns of training, the maximum over training) is shown with the
differences, and does not decide. Exit code 1 if a run is below a score that was measured
in the same way, 0 if none is, 2 for wrong use. A run with failed seeds has no single mean
unless --failed says what a failed seed counts as; it is below if even the seeds that did
not fail are below."""


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of ``sterling check-scores``."""
    parser.epilog = EXPLAINED
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    add = parser.add_argument
    add("runs", nargs="+", metavar="RUN", help="run folders, or folders of run folders")
    otherwise = "also judge by published scores that were measured differently"
    add("--strict", action="store_true", help=otherwise)
    counts = "what a failed seed counts as: a score, worst (if the bounds are known) or exclude"
    add("--failed", type=option_values.failed_score, metavar="SCORE", help=counts)
    evaluation_options.add_normalise(add, "no normalised scores")


def carry_out(chosen: argparse.Namespace) -> int:
    """Print the verdicts; return 1 if a run is below a published score."""
    from sterling.report.published_verdicts import BELOW, check_published, finished_headlines
    from sterling.report.runs.read_runs import read_results
    from sterling.statistics import table as load_table

    if chosen.normalise:
        load_table(chosen.normalise)  # raises for a wrong one before anything is printed
    results, notes = read_results(chosen.runs)
    failed = False
    for result, made in finished_headlines(results, chosen.failed):
        checks = check_published(result, made)
        print(_heading(result, made))
        if chosen.normalise:
            print(_normalised(result, chosen))
        print(_table(checks))
        print()
        deciding = [one for one in checks if one.comparable or chosen.strict]
        failed |= any(one.verdict == BELOW for one in deciding)
    for note in notes:
        print(f"note: {note}")
    return int(failed)


def _heading(result: RunResult, made: Headline) -> str:
    from sterling.report.text_tables import format_steps, join_words, pluralise

    seeds = pluralise(len(result.seeds), "seed")
    gone = f", of which failed: {join_words(result.failed)}" if result.failed else ""
    mean = f"{made} (by seed {made.seeds})" if made.seeds else str(made)
    taken = format_steps(result.updates or result.steps)
    budget = f"{taken} {'updates' if result.updates else 'steps'}"
    return f"{result.algorithm} on {result.environment}, {budget}, {seeds}{gone}: {mean}"


def _normalised(result: RunResult, chosen: argparse.Namespace) -> str:
    """Return the line with the normalised mean, or that the table lacks the environment."""
    from sterling.report.published_verdicts import normalised_headline
    from sterling.statistics import table as load_table

    table = load_table(chosen.normalise)
    made = normalised_headline(result, table, chosen.failed)
    if made is None:
        return f"  not normalised: {table.identity} has no {result.environment}"
    return f"  normalised by {table.identity}: {made}"


def _table(checks: list[PublishedCheck]) -> str:
    from sterling.report.text_tables import format_number, text_table

    if not checks:
        return "  no published score is known for this algorithm and task"
    rows = [
        [
            "  " + one.verdict,
            format_number(one.reference.value),
            f"[{format_number(one.reference.low)}, {format_number(one.reference.high)}]",
            " ".join(filter(None, [one.reference.source.name, one.reference.variant])),
            ", ".join(one.differs) or "-",
        ]
        for one in checks
    ]
    header = ["  verdict", "published", "tolerated", "source", "measured differently"]
    return text_table(header, rows, "lrr")
