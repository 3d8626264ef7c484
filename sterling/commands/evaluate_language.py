"""``sterling evaluate FOLDER --samples N``: what language models solve, side by side."""

from __future__ import annotations

import argparse
import math
from typing import TYPE_CHECKING, Any

from sterling.commands import readers

if TYPE_CHECKING:
    from rich.table import Table

    from sterling.judging.language import Judgement, Model
    from sterling.judging.paired import Change
    from sterling.statistics import Estimate

NAMES = ("beside", "samples", "problems", "levels")  # options that only these runs have
COMMON = 6  # reasons that are shown
FACTS = {  # name -> words, decimals
    "greedy": ("solved greedily", 3),
    "reward": ("reward", 3),
    "length": ("tokens", 1),
    "cut": ("cut off", 3),
    "repeated": ("repeated 4-grams", 3),
    "different": ("different answers", 3),
    "entropy": ("entropy, nats/token", 3),
}


def options(parser: argparse.ArgumentParser) -> None:
    """What can be asked for."""
    group = parser.add_argument_group(
        "language models", "many answers to problems; see docs/language_judging.md"
    )
    add = group.add_argument
    more = "runs to ask the same problems (what the run began with is asked anyway)"
    add("--beside", nargs="+", metavar="FOLDER", help=more)
    add("--samples", type=readers.integer, metavar="N", help="answers to each problem (16)")
    add("--problems", type=readers.integer, metavar="N", help="per seed (64)")
    add("--levels", metavar="TEXT", help="difficulties, as 2, 0-3 or 1,4 (those of training)")


def asked(chosen: argparse.Namespace) -> bool:
    """Whether any of these options was given."""
    return any(getattr(chosen, name) is not None for name in NAMES)


def refuse(chosen: argparse.Namespace, run: Any) -> None:
    """Raise Mistake for options of one kind of run with a run of the other."""
    from sterling.types import Mistake

    if run.settings.speech is None:
        for name in NAMES:
            if getattr(chosen, name) is not None:
                raise Mistake(f"--{name} is for runs that teach a language model; leave it out")
        return
    if chosen.evaluate_limit is not None:
        raise Mistake("--evaluate-limit counts steps of a world of control; leave it out")
    for name in ("data", "method"):
        if getattr(chosen, name) is not None:
            raise Mistake(f"--{name} judges from a log of control; this run teaches a language "
                          "model, ask for --samples N")  # fmt: skip
    if asked(chosen) and chosen.episodes is not None:
        raise Mistake("--episodes asks each problem once; with --samples say --problems N instead")


def carry_out(chosen: argparse.Namespace, run: Any) -> int:
    """Ask, print, and write what was found into the run's folder."""
    from sterling.disk import try_place, writing
    from sterling.judging import language

    try_place(chosen.folder)  # before all the answers are asked for
    given = {name: getattr(chosen, name) for name in ("samples", "problems", "levels")}
    kept = {name: value for name, value in given.items() if value is not None}
    found = language.judge(run, chosen.beside or (), **kept)
    show(found)
    with writing(chosen.folder):
        paths = found.write(chosen.folder)
    for path in paths:
        print(path)
    return 0


def show(found: Judgement) -> None:
    """Print tables and what is to be said of them."""
    from sterling.report.console import UNFOLDED, Output

    console = Output(soft_wrap=True)
    levels = sorted(set(found.levels))
    which = f"level {levels[0]}" if len(levels) == 1 else f"levels {levels[0]} to {levels[-1]}"
    console.print(
        f"{found.environment}, {which}: {found.problems} problems, {found.samples} answers to each"
    )
    tables = [_models(found.models, len(levels) > 1)]
    for table in [*tables, _changes(found)] if found.changes["any"] else tables:
        whole = console.measure(table, options=console.options.update(max_width=UNFOLDED)).maximum
        Output(width=whole).print(table)  # cut numbers would be other numbers
    first = next(iter(found.models[-1].pass_at_k.values()))
    console.print(f"95% intervals: {first.method}", style="dim")
    for note in found.notes:
        console.print(f"note: {note}", style="dim")


def _table(*headers: str) -> Table:
    from rich import box
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
    for at, header in enumerate(headers):
        table.add_column(header, justify="left" if not at else "right", no_wrap=True)
    return table


def _models(models: list[Model], several: bool) -> Table:
    """A column for every model."""
    table = _table("", *(model.label for model in models))
    table.add_row("seeds", *(str(len(model.seeds)) for model in models))
    if len(models[-1].seeds) > 1:
        table.add_row("pass@1 of each", *(_each(model) for model in models))
    for k in models[-1].pass_at_k:
        table.add_row(f"pass@{k}", *(written(model.pass_at_k[k], 3) for model in models))
    table.add_section()
    for level in models[-1].levels if several else ():
        rates = (written(model.levels[level], 3) for model in models)
        table.add_row(f"pass@1, level {level}", *rates)
    table.add_section()
    for name, (words, decimals) in FACTS.items():
        table.add_row(words, *(written(model.facts[name], decimals) for model in models))
    told = [model.mismatch for model in models]
    apart = (f"{one.mean:.1e}, at most {one.largest:.1e}" for one in told)
    table.add_row("log-prob mismatch", *apart)
    table.add_row("effective sample size", *(f"{one.effective:.1%}" for one in told))
    table.add_section()
    for name in ("proxy", "gold", "gap") if any(model.gold for model in models) else ():
        table.add_row(f"{name} reward", *(_gold(model, name) for model in models))
    table.add_section()
    for reason in _reasons(models):
        table.add_row(f"verdict: {reason}", *(_share(model, reason) for model in models))
    return table


def _changes(found: Judgement) -> Table:
    """Solved by one model and not by another."""
    table = _table("from -> to", "by", "both", "gained", "lost", "neither", "difference")
    for label, rise in found.rises.items():
        name = f"{label} -> {found.models[-1].label}"
        table.add_row(name, "pass@1", *[""] * 4, written(rise[1], 3, sign=True))
    for how, changes in found.changes.items():
        words = f"any of {found.samples}" if how == "any" else how
        for one in changes:
            table.add_row(f"{one.first} -> {one.second}", words, *_counts(one))
    return table


def _counts(one: Change) -> list[str]:
    counts = [str(count) for count in (one.both, one.gained, one.lost, one.neither)]
    return [*counts, written(one.difference, 3, sign=True)]


def written(made: Estimate, decimals: int, sign: bool = False) -> str:
    """A number with its interval, to so many decimals."""
    if not math.isfinite(made.value):
        return "-"
    form = f"{'+' if sign else ''}.{decimals}f"
    shown = format(made.value, form)
    if made.low is None or made.high is None:
        return shown
    return f"{shown} [{format(made.low, form)}, {format(made.high, form)}]"


def _each(model: Model) -> str:
    """Every seed's share of right answers; of many, the least and the largest."""
    answers = sum(model.reasons.values()) / model.right.size
    rates = [float(right.mean()) / answers for right in model.right]
    if len(rates) > 5:
        return f"{min(rates):.2f} to {max(rates):.2f}"
    return " ".join(f"{rate:.2f}" for rate in rates)


def _gold(model: Model, name: str) -> str:
    from sterling.statistics import Estimate

    return written(Estimate.from_json(model.gold[name]), 3) if model.gold else "-"


def _reasons(models: list[Model]) -> list[str]:
    """The commonest over all models."""
    total: dict[str, float] = {}
    for model in models:
        for reason, count in model.reasons.items():
            total[reason] = total.get(reason, 0.0) + count / sum(model.reasons.values())
    return sorted(total, key=lambda reason: -total[reason])[:COMMON]


def _share(model: Model, reason: str) -> str:
    share = model.reasons.get(reason, 0) / sum(model.reasons.values())
    return f"{share:.1%}"
