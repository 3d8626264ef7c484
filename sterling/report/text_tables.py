"""Plain text for terminals and pages: numbers, steps, and tables in columns."""

from __future__ import annotations

import math
import os
from collections.abc import Sequence


def format_number(value: float | int | None, digits: int = 4) -> str:
    """Format with four significant digits, or all of the whole number: 0.03152, -141.5, 12135."""
    if value is None or not math.isfinite(value):
        return "-" if value is None or math.isnan(value) else f"{value}"
    size = 0 if value == 0 else math.floor(math.log10(abs(value)))
    return f"{value:.{min(max(digits - 1 - size, 0), 8)}f}" if value else "0"


def format_steps(count: float | int | None) -> str:
    """Format a budget: 50k, 1M, 1.5M; a run may miss a whole unit by half a percent."""
    if count is None:
        return "?"
    for unit, name in ((1e6, "M"), (1e3, "k")):
        if count >= 0.995 * unit:
            scaled = count / unit
            return f"{round(scaled, 0 if scaled >= 99.5 else 1 if scaled >= 9.95 else 2):g}{name}"
    return f"{count:g}"


def format_percent(share: float) -> str:
    """Format a share: 5%, 0.1%, 99.9%. Keeps as many digits as were given, up to six."""
    return f"{100 * share:.6g}%"


def join_words(words: Sequence[object], most: int = 8) -> str:
    """Join words: a, b and c; a long list is cut and the rest counted."""
    shown = [str(word) for word in words]
    if len(shown) > most:
        shown = [*shown[:most], f"{len(shown) - most} more"]
    return shown[0] if len(shown) == 1 else f"{', '.join(shown[:-1])} and {shown[-1]}"


def distinguishing_endings(paths: Sequence[str]) -> list[str]:
    """Return the shortest endings of paths that are all different: exp1/ppo and exp2/ppo."""
    whole = [os.path.abspath(path).strip("/").split("/") for path in paths]
    for depth in range(1, max(map(len, whole), default=0) + 1):
        made = ["/".join(parts[-depth:]) for parts in whole]
        if len(set(made)) == len(set(map(tuple, whole))):
            return made
    return list(paths)


def pluralise(number_of: int, noun: str) -> str:
    """Return a count with its noun: 1 seed, 5 seeds."""
    return f"{number_of} {noun}{'' if number_of == 1 else 's'}"


def text_table(header: Sequence[str], rows: Sequence[Sequence[str]], right: str = "") -> str:
    """Format a table for a terminal; ``right`` has an ``r`` for every right-aligned column."""
    sides = right.ljust(len(header), "l")
    lines = [list(header), *[list(row) for row in rows]]
    widths = [max(len(line[at]) for line in lines) for at in range(len(header))]
    shown = []
    for line in lines:
        cells = [
            cell.rjust(width) if side == "r" else cell.ljust(width)
            for cell, width, side in zip(line, widths, sides, strict=True)
        ]
        shown.append("  ".join(cells).rstrip())
    return "\n".join(shown)
