"""How one array of an observation is encoded; choices and padded sequences as rows of numbers."""

from __future__ import annotations

import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from sterling.problem.picture_layout import PictureLayout

# entries of a padded sequence, as in envs/padding/padded_observations.py
COUNT, ITEMS = "padded_count", "padded_items"


class LeafKind(NamedTuple):
    """How one leaf of an observation is encoded."""

    name: str  # picture, categories, vector, sequence, count (of the sequence after it)
    shape: tuple[int, ...]
    sizes: tuple[int, ...] = ()  # of categories: the number of values of each entry
    start: tuple[int, ...] = ()  # of categories: the first value of each entry
    title: str = ""  # where it is in a dict or tuple, as "camera"; "" for the whole observation
    layout: PictureLayout | None = None  # of a picture


def with_sequences(kinds: list[LeafKind]) -> list[LeafKind]:
    """Return the kinds with those of padded sequences: of two neighbours, ``padded_count`` and
    ``padded_items`` (see ``envs/padding/padded_observations.py``)."""
    made = list(kinds)
    for index in range(1, len(kinds)):
        count, items = kinds[index - 1], kinds[index]
        place, _, name = items.title.rpartition(".")
        if name == ITEMS and count.title == f"{place}.{COUNT}".lstrip("."):
            made[index - 1] = count._replace(name="count", sizes=(), title=place)
            made[index] = items._replace(name="sequence", layout=None, title=place)
    return made


def sequence_items(x: Array, kind: LeafKind) -> Float[Array, "... items inputs"]:
    """Return a sequence's items as vectors, choices as one-hot rows."""
    lead = x.shape[: x.ndim - len(kind.shape)]
    if kind.sizes:
        start = np.asarray(kind.start, np.int32).reshape((1,) * len(lead) + (-1,))
        hot = one_hot(x.astype(jnp.int32) - start, kind.sizes)
        return hot.reshape(*lead, kind.shape[0], -1)
    return x.reshape(*lead, kind.shape[0], -1).astype(jnp.float32)


def item_size(kind: LeafKind) -> int:
    """Return how many numbers an item of a sequence is encoded as."""
    return kind.sizes[0] if kind.sizes else math.prod(kind.shape[1:])


def one_hot(
    x: Int[Array, "... entries"], sizes: tuple[int, ...]
) -> Float[Array, "... sum_of_sizes"]:
    """Concatenate the entries' one-hot rows; an entry outside ``0 .. size - 1`` becomes zeros.

    This is one operation, because one per entry of a 30 x 30 grid took half a minute to compile.
    """
    if len(set(sizes)) == 1:
        hot = jax.nn.one_hot(x, sizes[0], dtype=jnp.float32)
        return hot.reshape(*x.shape[:-1], sum(sizes))
    owner = np.repeat(np.arange(len(sizes)), sizes)  # the entry that each feature belongs to
    value = np.concatenate([np.arange(size, dtype=np.int32) for size in sizes])
    value = value.reshape((1,) * (x.ndim - 1) + (-1,))
    return (x[..., owner] == value).astype(jnp.float32)
