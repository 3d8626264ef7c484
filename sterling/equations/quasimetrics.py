"""Quasimetrics: distances that obey the triangle inequality and need not be symmetric."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float


def interval_quasimetric(
    x: Float[Array, "... n"],
    y: Float[Array, "... n"],
    share: Float[Array, ""],
    intervals: int,
) -> Float[Array, "..."]:
    """Return the distance from ``x`` to ``y``, vectors of components of ``intervals`` numbers each
    (interval quasimetric embedding, Wang 2022, arXiv:2211.15120): ``share`` of the components' mean
    and the rest of their maximum, each component the length of the union of the intervals
    [x_i, max(x_i, y_i)]."""
    start, end = (z.reshape(*z.shape[:-1], -1, intervals) for z in (x, jnp.maximum(x, y)))
    order = jnp.argsort(start, -1)
    start, end = (jnp.take_along_axis(z, order, -1) for z in (start, end))
    covered = jax.lax.cummax(end, end.ndim - 1)[..., :-1]
    fresh = end[..., 1:] - jnp.maximum(start[..., 1:], covered)
    length = end[..., 0] - start[..., 0] + jnp.sum(jax.nn.relu(fresh), -1)
    return share * jnp.mean(length, -1) + (1.0 - share) * jnp.max(length, -1)
