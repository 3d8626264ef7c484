"""How much the members of an ensemble say the same."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float


def alikeness(slope: Float[Array, "member ... n"]) -> Float[Array, "..."]:
    """1/(N-1) sum_{i != j} cos(g_i, g_j) of the members' slopes g_i (An 2021, eq. 5), per row: N
    where all point one way, 0 where they are orthogonal, at least -N/(N-1).

    sum_{i != j} u_i . u_j = |sum_i u_i|^2 - sum_i |u_i|^2, of slopes u_i of length one; a slope of
    nothing has no direction and counts as 0.
    """
    unit = slope * jax.lax.rsqrt(jnp.sum(jnp.square(slope), -1, keepdims=True) + 1e-12)
    pairs = jnp.sum(jnp.square(unit.sum(0)), -1) - jnp.sum(jnp.square(unit), (0, -1))
    return pairs / (slope.shape[0] - 1.0)
