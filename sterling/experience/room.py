"""Whether what is to be kept fits into memory, before it is asked for: XLA ends with a long
traceback where it does not, or the operating system kills the program."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax

from sterling.data import memory
from sterling.types import Mistake

ROOM = 0.8  # of what is free, that the capacity which is proposed takes: learning needs the rest


def check_room(capacity: int, create: Callable[[], Any], field: str = "capacity") -> None:
    """Raises Mistake where the arrays that ``create`` makes, of ``capacity`` transitions for each
    seed, need more bytes than are free; ``field`` says how many. Nothing is made here."""
    arrays: list[Any] = jax.tree.leaves(eqx.filter_eval_shape(create))
    needed = sum(each.size * each.dtype.itemsize for each in arrays)
    free = left()
    if free is None or needed <= free:
        return
    seeds = arrays[0].shape[0]
    fits = f"{ROOM * capacity * free / needed:.1e}"  # two digits
    raise Mistake(
        f"a replay of {capacity:,} transitions for every seed, {seeds} in all, needs "
        f"{needed / 1e9:.3g} GB and {free / 1e9:.3g} GB are free; set {field}={int(float(fits))}"
    )


def left() -> int | None:
    """Bytes that are free where JAX puts its arrays; None where nobody knows."""
    device = jax.devices()[0]
    if device.platform == "cpu":
        return memory.left()
    known = device.memory_stats() or {}
    if "bytes_limit" not in known:
        return None
    return int(known["bytes_limit"]) - int(known.get("bytes_in_use", 0))
