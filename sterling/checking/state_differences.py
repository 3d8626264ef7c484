"""How far two states are apart, in words: which leaf, by how much, and whether that is rounding."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

ROUNDING = 1e-4  # relative: rounding of another order of operations, after few updates


class StateDifference(NamedTuple):
    """The leaf of two states that differs most, by the largest number in it."""

    leaf: str
    size: float  # largest absolute difference
    scale: float  # largest finite absolute number
    differing: int  # leaves that differ
    leaves: int
    whole: bool  # whether a leaf of whole numbers, random keys or truth values differs

    @property
    def relative(self) -> float:
        """Return the difference as a share of the leaf's largest number."""
        return self.size / self.scale if self.scale else float("inf")

    def is_within(self, bound: float) -> bool:
        """Whether only floating-point numbers differ, by at most the share ``bound``."""
        return self.relative <= bound and not self.whole

    def __str__(self) -> str:
        return (
            f"{self.leaf} by {self.size:.2g} (numbers up to {self.scale:.2g}, relative "
            f"{self.relative:.1g}); {self.differing} of {self.leaves} leaves differ"
        )


def state_difference(
    one: Any, other: Any, pick: Callable[[Any, Any], tuple[Any, Any]] = lambda x, y: (x, y)
) -> StateDifference | None:
    """Return how two states of the same structure differ; None if they are equal bit for bit.

    ``pick`` chooses the numbers of two leaves that are compared.
    """
    pairs = zip(jax.tree_util.tree_leaves_with_path(one), jax.tree.leaves(other), strict=True)
    found, leaves, whole = [], 0, False
    for (path, first), second in pairs:
        x, y = pick(to_numbers(first), to_numbers(second))
        leaves += 1
        if np.array_equal(x, y, equal_nan=True):
            continue
        whole |= not jnp.issubdtype(x.dtype, jnp.floating)
        x, y = x.astype(np.float64), y.astype(np.float64)
        with np.errstate(invalid="ignore"):
            apart = np.where((x == y) | (np.isnan(x) & np.isnan(y)), 0.0, np.abs(x - y))
        size = float(np.nan_to_num(apart, nan=np.inf, posinf=np.inf).max())
        scale = float(np.abs(y).max(where=np.isfinite(y), initial=0.0))
        found.append((size, scale, jax.tree_util.keystr(path)))
    if not found:
        return None
    size, scale, leaf = max(found, key=lambda each: each[0] / (each[1] or 1e-300))
    return StateDifference(leaf, size, scale, len(found), leaves, whole)


def to_numbers(leaf: Any) -> np.ndarray:
    """Convert a leaf to numbers; random keys to their data."""
    keyed = hasattr(leaf, "dtype") and jax.dtypes.issubdtype(leaf.dtype, jax.dtypes.prng_key)
    return np.asarray(jax.random.key_data(leaf) if keyed else leaf)
