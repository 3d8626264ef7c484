"""``sterling evaluate FOLDER --samples N``: compare the problems that language models solve."""

from __future__ import annotations

import argparse
import math
from typing import TYPE_CHECKING, Any

from sterling.commands.options import option_values
from sterling.commands.output import json_output

if TYPE_CHECKING:
    from rich.table import Table

    from sterling.evaluation.language.paired_problems import PairedChange
    from sterling.evaluation.language.solve_rates import JudgedModel, Judgement
    from sterling.statistics import Estimate

OPTION_NAMES = ("beside", "samples", "problems", "levels")  # options for language models only
MAX_REASONS = 6  # most common reasons to show
FACT_LABELS = {  # name -> label, decimals
    "greedy": ("solved greedily", 3),
    "reward": ("reward", 3),
    "length": ("tokens", 1),
    "cut": ("cut off", 3),
    "repeated": ("repeated 4-grams", 3),
    "different": ("different answers", 3),
    "entropy": ("entropy, nats/token", 3),
}


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of ``sterling evaluate`` for language models."""
    group = parser.add_argument_group(
        "language models", "pass@k from many answers to each problem; see docs/language_judging.md"
    )
    add = group.add_argument
    more = "other runs to evaluate on the same problems (the base model always is)"
    add("--beside", nargs="+", metavar="FOLDER", help=more)
    add("--samples", type=option_values.integer, metavar="N", help="answers to each problem (16)")
    add("--problems", type=option_values.integer, metavar="N", help="problems per seed (64)")
    levels = "difficulty levels, such as 2, 0-3 or 1,4 (those of training)"
    add("--levels", metavar="TEXT", help=levels)


def is_asked(chosen: argparse.Namespace) -> bool:
    """Whether any of these options was given."""
    return any(getattr(chosen, name) is not None for name in OPTION_NAMES)


def carry_out(chosen: argparse.Namespace, run: Any) -> int:
    """Evaluate the models, print the tables, and write the results into the run's folder."""
    from sterling.evaluation.language import solve_rates
    from sterling.system.atomic_files import check_writable, explain_write_errors

    check_writable(chosen.folder)  # fail before generating answers, not after
    given = {name: getattr(chosen, name) for name in ("samples", "problems", "levels")}
    kept = {name: value for name, value in given.items() if value is not None}
    found = solve_rates.judge(run, chosen.beside or (), **kept)
    with explain_write_errors(chosen.folder):
        paths = found.write(chosen.folder)
    if chosen.json:
        json_output.print_json(found)
        return 0
    print_judgement(found)
    for path in paths:
        print(path)
    return 0


def print_judgement(found: Judgement) -> None:
    """Print the tables of an evaluation, and its notes."""
    from sterling.report.live.console import PIPE_WIDTH, PlainConsole

    console = PlainConsole(soft_wrap=True)
    levels = sorted(set(found.levels))
    which = f"level {levels[0]}" if len(levels) == 1 else f"levels {levels[0]} to {levels[-1]}"
    console.print(
        f"{found.environment}, {which}: {found.problems} problems, {found.samples} answers to each"
    )
    tables = [_model_table(found.models, len(levels) > 1)]
    for table in [*tables, _change_table(found)] if found.changes["any"] else tables:
        whole = console.measure(table, options=console.options.update(max_width=PIPE_WIDTH)).maximum
        PlainConsole(width=whole).print(table)  # never truncate numbers
    first = next(iter(found.models[-1].pass_at_k.values()))
    console.print(f"95% intervals: {first.method}", style="dim")
    for note in found.notes:
        console.print(f"note: {note}", style="dim")


def _make_table(*headers: str) -> Table:
    from rich import box
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
    for at, header in enumerate(headers):
        table.add_column(header, justify="left" if not at else "right", no_wrap=True)
    return table


def _model_table(models: list[JudgedModel], several: bool) -> Table:
    """Return the table with a column for every model."""
    table = _make_table("", *(model.label for model in models))
    table.add_row("seeds", *(str(len(model.seeds)) for model in models))
    if len(models[-1].seeds) > 1:
        table.add_row("pass@1 of each", *(_seed_rates(model) for model in models))
    for k in models[-1].pass_at_k:
        table.add_row(f"pass@{k}", *(format_estimate(model.pass_at_k[k], 3) for model in models))
    table.add_section()
    for level in models[-1].levels if several else ():
        rates = (format_estimate(model.levels[level], 3) for model in models)
        table.add_row(f"pass@1, level {level}", *rates)
    table.add_section()
    for name, (words, decimals) in FACT_LABELS.items():
        table.add_row(words, *(format_estimate(model.facts[name], decimals) for model in models))
    mismatches = [model.mismatch for model in models]
    apart = (f"{one.mean:.1e}, at most {one.largest:.1e}" for one in mismatches)
    table.add_row("log-prob mismatch", *apart)
    table.add_row("effective sample size", *(f"{one.effective:.1%}" for one in mismatches))
    table.add_section()
    for name in ("proxy", "gold", "gap") if any(model.gold for model in models) else ():
        table.add_row(f"{name} reward", *(_gold_text(model, name) for model in models))
    table.add_section()
    for reason in _common_reasons(models):
        table.add_row(f"verdict: {reason}", *(_reason_share(model, reason) for model in models))
    return table


def _change_table(found: Judgement) -> Table:
    """Return the table of problems solved by one model and not by another."""
    table = _make_table("from -> to", "by", "both", "gained", "lost", "neither", "difference")
    for label, rise in found.rises.items():
        name = f"{label} -> {found.models[-1].label}"
        table.add_row(name, "pass@1", *[""] * 4, format_estimate(rise[1], 3, sign=True))
    for how, changes in found.changes.items():
        words = f"any of {found.samples}" if how == "any" else how
        for one in changes:
            table.add_row(f"{one.first} -> {one.second}", words, *_change_counts(one))
    return table


def _change_counts(one: PairedChange) -> list[str]:
    counts = [str(count) for count in (one.both, one.gained, one.lost, one.neither)]
    return [*counts, format_estimate(one.difference, 3, sign=True)]


def format_estimate(made: Estimate, decimals: int, sign: bool = False) -> str:
    """Return an estimate with its interval as text, to ``decimals`` decimals."""
    if not math.isfinite(made.value):
        return "-"
    form = f"{'+' if sign else ''}.{decimals}f"
    shown = format(made.value, form)
    if made.low is None or made.high is None:
        return shown
    return f"{shown} [{format(made.low, form)}, {format(made.high, form)}]"


def _seed_rates(model: JudgedModel) -> str:
    """Return every seed's share of right answers; of more than 5 seeds, the range."""
    answers = sum(model.reasons.values()) / model.right.size
    rates = [float(right.mean()) / answers for right in model.right]
    if len(rates) > 5:
        return f"{min(rates):.2f} to {max(rates):.2f}"
    return " ".join(f"{rate:.2f}" for rate in rates)


def _gold_text(model: JudgedModel, name: str) -> str:
    from sterling.statistics import Estimate

    return format_estimate(Estimate.from_json(model.gold[name]), 3) if model.gold else "-"


def _common_reasons(models: list[JudgedModel]) -> list[str]:
    """Return the most common reasons over all models."""
    total: dict[str, float] = {}
    for model in models:
        for reason, count in model.reasons.items():
            total[reason] = total.get(reason, 0.0) + count / sum(model.reasons.values())
    return sorted(total, key=lambda reason: -total[reason])[:MAX_REASONS]


def _reason_share(model: JudgedModel, reason: str) -> str:
    share = model.reasons.get(reason, 0) / sum(model.reasons.values())
    return f"{share:.1%}"
