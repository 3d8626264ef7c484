"""The Markdown page of the simulated verdicts."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

from benchmarks import evidence

AIM = 0.06
WORDS = {
    "errors": (
        "Wrong verdicts between two of equal tendency",
        "Share of comparisons with a verdict though P(A > B) = 1/2; columns: runs of each in one "
        "look, or looks; above 0.06 in bold. The floor: where every run of one lies on one side of "
        "a steady other, which happens in 2^(1 - n) of comparisons with half above and half below "
        "(0.0625 at 5), any rule that decides on complete separation is wrong.",
    ),
    "families": (
        "Any wrong verdict among three or four of equal tendency",
        "-: so few runs can decide nothing among so many.",
    ),
    "power": (
        "Verdicts where one tends to score higher",
        "Share decided, and the runs of each it took where there are several looks. The last row "
        "has equal means: its verdicts are about tendency, and right.",
    ),
    "means": (
        'about="mean" within (0, 2000)',
        "Share decided: the first eight rows have equal means, so it is the share wrong (at most "
        "0.05 is promised); the last three differ, so it is power.",
    ),
    "intervals": (
        "The interval of P(first > second), one look",
        "How often it holds the probability, and its mean width; it excludes 1/2 exactly where "
        "the pair is decided.",
    ),
    "exchanged means": (
        "The former rule, exchanged means, where means are equal",
        "Why verdicts are not about means any more: share of comparisons in which permuted "
        "differences of means find one, at 5 %.",
    ),
}


def markdown(path: Path) -> str:
    """Return all groups that were simulated, a table each, and where their numbers come from."""
    groups = json.loads(path.read_text())["parts"]
    fewest = _fewest(groups)
    lines = [
        "# Verdicts: how often they are wrong, and what they see",
        "",
        *evidence.lines(path),
        f"alpha = 0.05; trials a cell in the JSON, {fewest:,} or more (standard error at "
        f"0.05: {math.sqrt(0.05 * 0.95 / fewest):.4f} or less). "
        "Empty cells have not been simulated.",
    ]
    for group, (title, words) in WORDS.items():
        if group in groups:
            lines += ["", f"## {title}", "", words, "", *table(group, groups[group])]
    return "\n".join(lines) + "\n"


def largest(path: Path) -> list[str]:
    """Return the short table of errors: by plan, the largest share of wrong verdicts between two,
    and among three or four (-: they can decide nothing)."""
    groups = json.loads(path.read_text())["parts"]
    names = [name.split(" | ")[1] for name in groups["errors"]]
    lines = ["| runs of each | two: largest | in | three or four: largest | in |", "|---" * 5 + "|"]
    for plan in sorted(set(names), key=_by_looks):
        row = [plan if " " in plan else f"{plan}, one look"]
        for group in ("errors", "families"):
            row += _worst(groups[group], plan)
        lines.append("| " + " | ".join(row) + " |")
    return lines


def _worst(cells: dict[str, Any], plan: str) -> tuple[str, str]:
    """The largest share of a plan's cells and its shape; empty where none was simulated."""
    found = [(cell["decided"], name.split(" | ")[0]) for name, cell in cells.items()
             if name.endswith(f" | {plan}")]  # fmt: skip
    if not found:
        return "", ""
    share, shape = max(found)
    return (f"{share:.3f}", shape) if share else ("-", "")


def powers(path: Path) -> list[str]:
    """Return the short table of power: the share decided of normal scores that differ."""
    cells = json.loads(path.read_text())["parts"]["power"]
    plans = ("5", "6", "10", "20", "5 looks x 5")
    lines = ["| standard deviations | " + " | ".join(plans) + " |", "|---" * 6 + "|"]
    apart = [shape for shape in dict.fromkeys(name.split(" | ")[0] for name in cells)
             if shape.endswith(" sd")]  # fmt: skip
    for shape in apart:
        shares = [f"{cells[f'{shape} | {plan}']['decided']:.2f}" for plan in plans]
        lines.append("| " + " | ".join([shape.removesuffix(" sd"), *shares]) + " |")
    return lines


def _by_looks(plan: str) -> tuple[bool, int]:
    """One look before several, then by runs."""
    return " " in plan, int(plan.split(maxsplit=1)[0])


def _fewest(groups: dict[str, Any]) -> int:
    """The fewest trials of a cell that was simulated."""
    cells = [cell for group in groups.values() for cell in group.values()]
    return min(cell["trials"] for cell in cells if cell["trials"])


def table(group: str, cells: dict[str, Any]) -> list[str]:
    """Rows are shapes, columns plans."""
    rows: dict[str, dict[str, str]] = {}
    for name, cell in cells.items():
        shape, plan = name.split(" | ")
        rows.setdefault(shape, {})[plan] = _said(group, plan, cell)
    plans = list(dict.fromkeys(plan for row in rows.values() for plan in row))
    plans.sort(key=_by_looks)
    head = ["scores", *plans]
    lines = [head, ["---"] * len(head)]
    lines += [[shape, *(row.get(plan, "") for plan in plans)] for shape, row in rows.items()]
    return ["| " + " | ".join(line) + " |" for line in lines]


def _said(group: str, plan: str, cell: dict[str, Any]) -> str:
    if "held" in cell:
        return f"{cell['held']:.3f}, {cell['width']:.2f}"
    if not cell["trials"]:
        return "-"
    share = f"{cell['decided']:.3f}"
    if group in ("errors", "families") and cell["decided"] > AIM:
        return f"**{share}**"
    return f"{share}, {cell['runs']:.1f} runs" if group == "power" and "look" in plan else share
