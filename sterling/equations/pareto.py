"""Pareto fronts: which points no other point dominates, the volume they dominate, and how crowded
they lie. More is better in every objective; negate those of which less is better.

    p dominates q    if p >= q in every objective, and p > q in one
    hypervolume      the volume of all points that some p dominates, and that dominate the reference
                     point (Zitzler & Thiele 1999, "Multiobjective evolutionary algorithms"); exact,
                     by slices of the last objective (While 2006, "A faster algorithm for
                     calculating hypervolume")
    crowding         the sum over objectives of (upper neighbour - lower neighbour) / range;
                     infinite for the extremes (Deb 2002, "A fast and elitist multiobjective genetic
                     algorithm: NSGA-II", section III.B)

:func:`nondominated` and :func:`crowding` take NumPy's arrays or JAX's, and return the same kind;
they may be compiled. :func:`hypervolume` is for the host: the points decide its number of slices.
"""

from __future__ import annotations

from types import ModuleType

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Bool, Float, Shaped


def nondominated(
    points: Shaped[np.ndarray | jax.Array, "point objective"],
) -> Bool[np.ndarray | jax.Array, "point"]:
    """Return True for each point that no other point dominates. Equal points are all True.

    Rows of -inf are dominated by every finite point: give them where a buffer is not filled yet.
    """
    xp = _array_module(points)
    no_worse = xp.all(points[:, None] >= points[None], axis=-1)  # [p, q]: p is no worse than q
    return ~xp.any(no_worse & ~no_worse.T, axis=0)


def crowding(
    points: Shaped[np.ndarray | jax.Array, "point objective"],
    valid: Bool[np.ndarray | jax.Array, "point"] | None = None,
) -> Float[np.ndarray | jax.Array, "point"]:
    """Return each point's crowding distance among the ``valid`` points (default: all).

    0 for a point with equals on both sides, at most the number of objectives between the extremes,
    infinite for the smallest and the largest point of an objective; 0 for points not valid.
    """
    xp = _array_module(points)
    if valid is None:
        valid = xp.ones(len(points), bool)
    present, total = valid[:, None], valid.sum()
    order = xp.argsort(xp.where(present, points, xp.inf), axis=0, stable=True)  # others last
    points = xp.where(present, points, 0.0)
    rank = xp.argsort(order, axis=0, stable=True)
    ascending = xp.take_along_axis(points, order, axis=0)
    upper = xp.take_along_axis(ascending, xp.minimum(rank + 1, len(points) - 1), axis=0)
    lower = xp.take_along_axis(ascending, xp.maximum(rank - 1, 0), axis=0)
    width = ascending[total - 1] - ascending[0]
    width = xp.where(width > 0.0, width, 1.0)[None]
    extreme = (rank == 0) | (rank >= total - 1)
    return xp.where(valid, xp.where(extreme, xp.inf, (upper - lower) / width).sum(-1), 0.0)


def hypervolume(
    points: Shaped[np.ndarray, "point objective"], reference: Shaped[np.ndarray, "objective"]
) -> float:
    """Return the volume between ``reference`` and the points, in the objectives' units multiplied.

    A point that is not above the reference in every objective adds nothing; without points it is 0.
    Exact for any number of objectives; the cost grows as points to the power of objectives - 1.
    """
    above = np.asarray(points, np.float64) - np.asarray(reference, np.float64)
    above = np.unique(above[(above > 0.0).all(1)], axis=0)
    return _volume_of_boxes(above[nondominated(above)])


def _array_module(points: Shaped[np.ndarray | jax.Array, "..."]) -> ModuleType:
    return jnp if isinstance(points, jax.Array) else np


def _volume_of_boxes(corners: Float[np.ndarray, "point objective"]) -> float:
    """Return the volume of the union of the boxes from the origin to each corner."""
    if corners.shape[1] == 1:
        return float(corners.max(initial=0.0))
    corners = corners[np.argsort(-corners[:, -1], stable=True)]
    depths = -np.diff(corners[:, -1], append=0.0)  # of the slice from each corner to the next
    if corners.shape[1] == 2:
        return float(depths @ np.maximum.accumulate(corners[:, 0]))
    slices = (_volume_of_boxes(corners[: end + 1, :-1]) for end in np.flatnonzero(depths))
    return float(sum(depths[depths > 0.0] * np.fromiter(slices, np.float64)))
