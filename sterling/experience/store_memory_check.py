"""Check that a replay buffer fits into memory before it is allocated; otherwise XLA fails with a
long traceback, or the operating system kills the program."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax

from sterling.data import available_memory
from sterling.types import Mistake

PROPOSED_SHARE = (
    0.8  # share of the free memory that the proposed capacity uses; learning needs the rest
)


def check_memory(capacity: int, create: Callable[[], Any], field: str = "capacity") -> None:
    """Raise Mistake if the arrays that ``create`` makes need more memory than is free.

    ``create`` is only traced. ``capacity`` is its number of transitions per seed, and ``field`` the
    setting to name in the message.
    """
    arrays: list[Any] = jax.tree.leaves(eqx.filter_eval_shape(create))
    needed = sum(each.size * each.dtype.itemsize for each in arrays)
    free = free_bytes()
    if free is None or needed <= free:
        return
    seeds = arrays[0].shape[0]
    fits = f"{PROPOSED_SHARE * capacity * free / needed:.1e}"  # two digits
    raise Mistake(
        f"a replay of {capacity:,} transitions for each of {seeds} seeds needs "
        f"{needed / 1e9:.3g} GB, but {free / 1e9:.3g} GB are free; set {field}={int(float(fits))}"
    )


def free_bytes() -> int | None:
    """Return the free bytes of JAX's default device; None if unknown."""
    device = jax.devices()[0]
    if device.platform == "cpu":
        return available_memory.free_bytes()
    known = device.memory_stats() or {}
    if "bytes_limit" not in known:
        return None
    return int(known["bytes_limit"]) - int(known.get("bytes_in_use", 0))
