"""``sterling compare runs/a runs/b``: who is better, how surely, in numbers and in words."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from sterling.commands import judging, until

if TYPE_CHECKING:
    from sterling.report.contest import Contest, Pair
    from sterling.report.groups import Group
    from sterling.report.overall import Better

EXPLAINED = """\
RUN is a run folder, a folder of run folders, or a CSV or JSON file with the scores of any
other library; LABEL=RUN gives it a name of its own. Runs of one algorithm on one
environment count as more seeds of it, unless their settings differ: then they are
compared. Failed seeds are left out of the numbers, and what they take part in stays
undecided, until --failed says what one counts as.

Exit code 0, also where nothing is decided; 2 for wrong use."""


def options(parser: argparse.ArgumentParser) -> None:
    """What can be asked for."""
    parser.description, parser.epilog = "compare algorithms by their runs", EXPLAINED
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    judging.options(parser)
    add = parser.add_argument
    add("--key", type=int, default=0, metavar="N", help="of the resampling (0)")
    add("--json", action="store_true", help="print the same as JSON")
    until.options(parser)


def carry_out(chosen: argparse.Namespace) -> int:
    """Read the runs, compare, print; or train until it is decided."""
    judging.check(chosen)
    if chosen.until_decided:
        return until.carry_out(chosen)
    until.refuse(chosen)
    from sterling.report.groups import gather
    from sterling.report.runs import read

    results, notes = read(chosen.runs, chosen.metric)
    groups, more = gather(results, chosen.tasks)
    show(groups, [*notes, *more], chosen)
    return 0


def show(groups: list[Group], notes: list[str], chosen: argparse.Namespace) -> None:
    """Print the comparison of groups that are at hand; ``chosen`` has alpha, failed, key, json."""
    from sterling.report.contest import MEANS, contests
    from sterling.report.facts import cautions
    from sterling.report.overall import better
    from sterling.report.words import method, together
    from sterling.types import Mistake

    if not 0.0 < chosen.alpha < 1.0:
        raise Mistake(f"--alpha lies between 0 and 1; got {chosen.alpha}")
    made = contests(
        groups,
        alpha=chosen.alpha,
        failed=chosen.failed,
        key=chosen.key,
        about=chosen.about,
        within=chosen.within,
    )
    over = better(groups, level=1 - chosen.alpha, failed=chosen.failed)
    if chosen.json:
        print(_json(made, over, cautions(groups, notes, chosen.failed)))
        return
    for contest in made:
        print(_contest(contest), end="\n\n")
    for one in over:
        print(_wrapped(together(one)))
    said = [one.environment for one in made if one.how not in ("none", MEANS)]  # by method()
    told = cautions(groups, notes, chosen.failed, said)
    if any(one.pairs for one in made):
        print(_wrapped(method(made, chosen.alpha)))
    else:
        told.append("no environment has runs of two labels: there is nothing to compare")
    for note in told:
        print(_wrapped(f"note: {note}"))


def _contest(one: Contest) -> str:
    """One environment: standings, pairs, words."""
    from sterling.report.text import columns
    from sterling.report.words import sentences

    standings = [
        [
            "  " + at.label,
            str(at.made),
            str(at.seeds),
            str(at.failed) if at.failed else "-",
        ]
        for at in one.standings
    ]
    parts = [one.environment, columns(["  ", "mean", "seeds", "failed"], standings, "lrrr")]
    parts += [f"  {at.label} by seed: {at.made.seeds}" for at in one.standings if at.made.seeds]
    if one.pairs:
        header = ["  pair", "difference", "P(first better)", ""]
        parts += ["", columns(header, [_pair(pair) for pair in one.pairs], "lrrl"), ""]
        parts += [_wrapped(words) for words in sentences([one])]
    return "\n".join(parts)


def _pair(pair: Pair) -> list[str]:
    from sterling.statistics.comparison import chance

    does = f"has the {pair.direction} mean"
    if pair.about != "mean":
        does = f"tends to score {pair.direction}"
    said = {"larger": f"first {does}", "smaller": f"second {does}"}
    said |= {"equal": "not distinguished", "undecided": "not compared"}
    return [
        f"  {pair.first} - {pair.second}",
        str(pair.difference) if pair.difference else "-",
        chance(pair.better) if pair.better else "-",
        said[pair.verdict],
    ]


def _wrapped(words: str) -> str:
    import textwrap

    return textwrap.fill(words, 100, subsequent_indent="  ", break_on_hyphens=False)


def _json(made: list[Contest], over: list[Better], notes: list[str]) -> str:
    import dataclasses
    import json
    import math

    from sterling.report.words import sentences

    def plain(value: Any) -> Any:
        if dataclasses.is_dataclass(value) and not isinstance(value, type):
            value = {f.name: getattr(value, f.name) for f in dataclasses.fields(value)}
        if isinstance(value, dict):
            return {name: plain(part) for name, part in value.items()}
        if hasattr(value, "tolist"):
            value = value.tolist()
        if isinstance(value, list | tuple):
            return [plain(part) for part in value]
        return None if isinstance(value, float) and not math.isfinite(value) else value

    content = {"contests": plain(made), "over": plain(over), "words": sentences(made)}
    content["notes"] = notes
    return json.dumps(content, indent=1, allow_nan=False)
