"""Where the arrays of a row are stored in a ring: packed into 32-bit words, or in arrays of their
own."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, UInt32

SCALAR_WORDS = 4  # the first words of a row: reward, discount, last, mask
MASK_WORD = 3
IMAGE_NDIM = 5  # least number of axes of stacked pictures: seed, env, stack, height, width
MIN_WIDE_BYTES = 32  # byte arrays of this size or more are not packed into words


@dataclasses.dataclass(frozen=True)
class RowPart:
    """Where one array of a row is stored; ``offset`` is a word's index, or the index of a wide
    array."""

    shape: tuple[int, ...]
    dtype: str
    packed: bool
    offset: int
    frames: int = 1  # frames stacked in it, of which only the newest is stored

    @property
    def words(self) -> int:
        """Return the number of words it takes in a row."""
        return math.prod(self.shape) if self.packed else 0

    @property
    def stored_shape(self) -> tuple[int, ...]:
        """Return the shape of the stored part."""
        return (self.shape[0] // self.frames, *self.shape[1:]) if self.frames > 1 else self.shape


def lay_out(
    leaves: Sequence[Any], width: int, wide: int, stack: int
) -> tuple[tuple[RowPart, ...], int, int]:
    """Assign storage to arrays ``(seed, env, ...)``, starting at word ``width`` and wide array
    ``wide``."""
    parts = []
    for leaf in leaves:
        shape, dtype = tuple(leaf.shape[2:]), str(jax.dtypes.canonicalize_dtype(leaf.dtype))
        size = jnp.dtype(dtype).itemsize
        stacked = stack > 1 and len(leaf.shape) >= IMAGE_NDIM and shape[0] % stack == 0
        packed = not stacked and (size == 4 or (size == 1 and math.prod(shape) < MIN_WIDE_BYTES))
        parts.append(
            RowPart(shape, dtype, packed, width if packed else wide, stack if stacked else 1)
        )
        width, wide = width + parts[-1].words, wide + (not packed)
    return tuple(parts), width, wide


def to_words(x: Array) -> UInt32[Array, "seed time env words"]:
    """Convert to words: four-byte numbers keep their bits, bytes and booleans their value."""
    x = x.reshape(*x.shape[:3], -1)
    if x.dtype.itemsize == 4:
        return jax.lax.bitcast_convert_type(x, jnp.uint32)
    return x.astype(jnp.int32).astype(jnp.uint32)


def from_words(words: UInt32[Array, "..."], dtype: str) -> Array:
    """Return the numbers that :func:`to_words` converted."""
    if jnp.dtype(dtype).itemsize == 4:
        return jax.lax.bitcast_convert_type(words, jnp.dtype(dtype))
    return words.astype(jnp.int32).astype(dtype)
