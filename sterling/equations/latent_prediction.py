"""How well predicted latents agree with those that came (Grill 2020, arXiv:2006.07733, eq. 2)."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

SMALLEST_SQUARE = 1e-12  # added to squared lengths, so that the direction of 0 has a gradient


def cosine_similarity(x: Float[Array, "... n"], y: Float[Array, "... n"]) -> Float[Array, "..."]:
    """Return the cosine of the angle between two vectors, in [-1, 1]."""
    return jnp.sum(direction(x) * direction(y), -1)


def direction(x: Float[Array, "... n"]) -> Float[Array, "... n"]:
    """Return the vector of length 1 in the direction of x."""
    return x * jax.lax.rsqrt(jnp.sum(jnp.square(x), -1, keepdims=True) + SMALLEST_SQUARE)
