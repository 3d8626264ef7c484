"""The diversity loss of ensembles: how similar the members' gradients are."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float


def gradient_similarity(slope: Float[Array, "member ... n"]) -> Float[Array, "..."]:
    """Return 1/(N-1) sum_{i != j} cos(g_i, g_j) of the members' gradients g_i (An 2021, eq. 5), per
    row: N if all point the same way, 0 if they are orthogonal, at least -N/(N-1).

    It is computed as sum_{i != j} u_i . u_j = |sum_i u_i|^2 - sum_i |u_i|^2, u_i = g_i / |g_i|;
    a gradient of length 0 counts as 0.
    """
    unit = slope * jax.lax.rsqrt(jnp.sum(jnp.square(slope), -1, keepdims=True) + 1e-12)
    pairs = jnp.sum(jnp.square(unit.sum(0)), -1) - jnp.sum(jnp.square(unit), (0, -1))
    return pairs / (slope.shape[0] - 1.0)
