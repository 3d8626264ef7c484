"""Print findings about a dataset, a few of each kind."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sterling.data import Finding

MAX_SHOWN = 5  # findings of one kind printed unless all are asked for


def print_findings(findings: Sequence[Finding], every: bool = False) -> int:
    """Print findings, at most ``MAX_SHOWN`` of each kind unless ``every``; return the number of
    errors."""
    shown: dict[tuple[str, str], int] = {}
    for one in findings:
        kind = (one.severity, one.kind)
        shown[kind] = shown.get(kind, 0) + 1
        if shown[kind] <= MAX_SHOWN or every:
            print(one)
    for (severity, word), count in shown.items():
        if count > MAX_SHOWN and not every:
            print(f"{severity}: {word}: {count - MAX_SHOWN} more; --all prints them")
    return sum(one.severity == "error" for one in findings)
