"""Find columns whose numbers JAX, which has 32 bits, cannot tell apart: ids and time stamps."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np

from sterling.system.terminal_messages import print_notice

PART = 1 << 20  # rows looked at together, for columns that are mapped from a file
NOISE = 1e-13  # relative differences below are rounding errors of the log's own numbers


def find_rounded(columns: Mapping[str, np.ndarray]) -> frozenset[str]:
    """Return the ``extra/`` columns that batches hold as float32, of which they lose digits: whole
    numbers beyond 32 bits, and float64 numbers most of whose changes from row to row are less than
    float32 tells apart. A line says so of each."""
    checks = {"i": _exceeds_32_bits, "u": _exceeds_32_bits, "f": _loses_changes}
    found = {
        name
        for name, x in columns.items()
        if name.startswith("extra/") and x.dtype.itemsize > 4 and x.size
        if x.dtype.kind in checks and checks[x.dtype.kind](x)
    }
    for name in sorted(found):
        print_notice(
            f"{name} holds numbers such as {columns[name].flat[-1]}, of which float32 keeps seven "
            "digits in batches. Count from the first to keep more."
        )
    return frozenset(found)


def _parts(column: np.ndarray) -> Iterable[np.ndarray]:
    return (np.asarray(column[at : at + PART]) for at in range(0, len(column), PART))


def _exceeds_32_bits(column: np.ndarray) -> bool:
    known = np.iinfo(np.int32 if column.dtype.kind == "i" else np.uint32)
    return any(x.min() < known.min or x.max() > known.max for x in _parts(column))


def _loses_changes(column: np.ndarray) -> bool:
    changes, lost = 0, 0
    for x in _parts(column):
        with np.errstate(over="ignore", invalid="ignore"):
            step, kept = np.diff(x, axis=0), np.diff(x.astype(np.float32), axis=0)
            real = np.abs(step) > NOISE * np.abs(x[1:])
        changes, lost = changes + int(real.sum()), lost + int((real & (kept == 0)).sum())
    return 2 * lost > changes
