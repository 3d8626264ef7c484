"""Leaves that checkpoints lack because they were written before the leaves existed.

Running moments keep what float32 rounds off their mean in ``remainder``. Older checkpoints, and
files of weights, have ``mean``, ``variance`` and ``count`` alone: their remainders are 0.
"""

from __future__ import annotations

from collections.abc import Container, Iterable

REMAINDER = "/remainder"
BESIDE = ("/mean", "/variance", "/count")


def missing_remainders(names: Container[str], wanted: Iterable[str]) -> set[str]:
    """Return which ``wanted`` leaves are remainders of moments that are complete but for them
    among ``names``."""
    heads = {name.removesuffix(REMAINDER) for name in wanted if name.endswith(REMAINDER)}
    return {
        head + REMAINDER
        for head in heads
        if head + REMAINDER not in names and all(head + each in names for each in BESIDE)
    }
