"""The Markdown page of the statistics benchmark."""

from __future__ import annotations

import math
import statistics
from pathlib import Path
from typing import Any

Results = dict[str, Any]
VERDICTS = (
    "How often verdicts of tendency are wrong, and what they see, is in [verdicts](verdicts.md); "
    "the groups `errors` and `power` of `run.py`, and `--walker`, set them beside adastop's."
)


def markdown(results: Results) -> str:
    """All tables that were measured."""
    sections = {
        "speed": _speed,
        "agree": _agree,
        "errors": _errors,
        "power": _power,
        "atari": _atari,
        "walker": _walker,
    }
    versions = ", ".join(f"{name} {said}" for name, said in results.get("versions", {}).items())
    lines = ["# Statistics beside rliable and adastop", ""]
    lines += [f"Started {results['started']}, commit {results['commit'][:12]}; peers: {versions}."]
    if results["quick"]:
        lines += ["", "**Quick run: too few trials to be quoted.**"]
    lines += ["", VERDICTS]
    for name, section in sections.items():
        if name in results:
            lines += ["", *section(results[name])]
    return "\n".join(lines) + "\n"


def _table(head: list[str], rows: list[list[str]]) -> list[str]:
    made = [head, ["---"] * len(head), *rows]
    return ["| " + " | ".join(row) + " |" for row in made]


def _speed(found: Results) -> list[str]:
    middle = {name: statistics.median(found[name]) for name in ("sterling", "rliable")}
    rows = [
        [name, f"{middle[name]:.2f}", ", ".join(f"{second:.2f}" for second in found[name])]
        for name in ("sterling", "rliable")
    ]
    shape = "{} runs by {} tasks".format(*found["shape"])
    case = f"{found['reps']:,} resamples of the IQM, {found['algorithms']} algorithms, {shape}"
    return [
        f"## Speed: {case}",
        "",
        *_table(["", "median seconds", "in turns"], rows),
        "",
        f"{middle['rliable'] / middle['sterling']:.0f} times as fast; one thread each.",
    ]


def _agree(found: Results) -> list[str]:
    rows = []
    for name, pair in found.items():
        ours, theirs = (
            ", ".join(f"{x:.6f}" for x in pair[side]) for side in ("sterling", "rliable")
        )
        rows.append([name, ours, theirs])
    return [
        "## The same numbers, where both compute the same",
        "",
        "Value, then percentile interval from 20,000 resamples (random, so equal to about 1 %).",
        "",
        *_table(["", "sterling", "rliable"], rows),
    ]


def _errors(found: list[Results]) -> list[str]:
    rows = []
    for row in found:
        bound = row["alpha"] + 2 * math.sqrt(row["alpha"] * (1 - row["alpha"]) / row["ours"])
        rows.append(
            [
                str(row["count"]), str(row["interims"]),
                f"{row['sterling']['rejected']:.3f} ({row['ours']})", f"{bound:.3f}",
                f"{row['adastop']['rejected']:.3f} ({row['theirs']})",
            ]
        )  # fmt: skip
    head = ["algorithms", "interims", "sterling (trials)", "bound", "adastop 0.1.3 (trials)"]
    return [
        "## Family-wise error of equal algorithms, alpha = 0.05, 5 runs an interim",
        "",
        "bound: alpha and two standard errors of the simulation.",
        "",
        *_table(head, rows),
    ]


def _power(found: list[Results]) -> list[str]:
    rows = [
        [
            f"{row['shift']:g} sd", f"{row['sterling']['rejected']:.2f}",
            f"{row['sterling']['runs']:.1f}", f"{row['adastop']['rejected']:.2f}",
            f"{row['adastop']['runs']:.1f}", f"{row['t test, all 15 runs']:.2f}",
        ]
        for row in found
    ]  # fmt: skip
    head = [
        *("difference", "sterling: power", "runs each", "adastop: power", "runs each"),
        "t test on all 15: power",
    ]
    return [
        "## Two algorithms that differ: 3 interims of 5 runs",
        "",
        "adastop's power comes with twice the error it declares (table above).",
        "",
        *_table(head, rows),
    ]


def _atari(found: Results) -> list[str]:
    rows = [
        [name, *("-" if value is None else f"{value:.6f}" for value in row.values())]
        for name, row in found.items()
    ]
    head = ["algorithm", *next(iter(found.values()))]
    return ["## Atari-100k, human-normalised", "", *_table(head, rows)]


def _walker(found: list[str]) -> list[str]:
    return [
        "## AdaStop's tutorial (four agents, five interims of five)",
        "",
        *(f"    {x}" for x in found),
    ]


def atari(folder: Path) -> Results:
    """Aggregates of raw scores in a folder; files named after references are passed over."""
    from sterling.statistics import Scores, estimate, improve, normalise
    from sterling.types import Mistake

    made: Results = {}
    tables = {}
    for path in sorted(folder.glob("*.json")):
        try:
            scores = normalise(Scores.load(path), "atari")
        except Mistake as error:  # a file of another form is said, not hidden
            print(f"{path.name}: {error}")
            continue
        tables[path.stem] = scores.select(sorted(scores.tasks))
        wanted = ("median", "iqm", "mean", "gap")
        row: Results = {what: estimate(scores, what, interval="none").value for what in wanted}
        interval = estimate(scores, "iqm", interval="bootstrap")
        row |= {"iqm low": interval.low, "iqm high": interval.high}  # None: one run a game
        made[path.stem] = row
    if "SPR" in tables:
        for name, other in tables.items():
            made[name]["P(SPR > it)"] = improve(tables["SPR"], other, interval="none").value
    return made
