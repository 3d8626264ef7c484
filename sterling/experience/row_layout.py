"""Where the arrays of a row live in a ring: in words side by side, or in arrays of their own."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp

SCALARS = 4  # the first words of a row: reward, discount, last, mask
MASK = 3
PICTURE = 5  # axes of a picture (seed, env, channel, height, width)
WIDE = 32  # arrays of so many bytes and more are not packed into words


@dataclasses.dataclass(frozen=True)
class Part:
    """Where one array of a row lives: ``offset`` counts words, or names an array of its own."""

    shape: tuple[int, ...]
    dtype: str
    packed: bool
    offset: int
    frames: int = 1  # pictures stacked in it, of which only the newest is stored

    @property
    def words(self) -> int:
        """Words of a row it takes."""
        return math.prod(self.shape) if self.packed else 0

    @property
    def stored(self) -> tuple[int, ...]:
        """The shape of what is stored of it."""
        return (self.shape[0] // self.frames, *self.shape[1:]) if self.frames > 1 else self.shape


def lay_out(
    leaves: Sequence[Any], width: int, wide: int, stack: int
) -> tuple[tuple[Part, ...], int, int]:
    """Places for arrays ``(seed, env, ...)``, beginning at word ``width`` and array ``wide``."""
    parts = []
    for leaf in leaves:
        shape, dtype = tuple(leaf.shape[2:]), str(jax.dtypes.canonicalize_dtype(leaf.dtype))
        size = jnp.dtype(dtype).itemsize
        stacked = stack > 1 and len(leaf.shape) == PICTURE and shape[0] % stack == 0
        packed = not stacked and (size == 4 or (size == 1 and math.prod(shape) < WIDE))
        parts.append(Part(shape, dtype, packed, width if packed else wide, stack if stacked else 1))
        width, wide = width + parts[-1].words, wide + (not packed)
    return tuple(parts), width, wide
