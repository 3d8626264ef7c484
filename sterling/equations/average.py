"""Averages that leave out what is no experience."""

from __future__ import annotations

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float


def masked_mean(x: Float[Array, "..."], mask: Bool[Array, "..."]) -> Float[Array, ""]:
    """Mean of ``x`` over rows where ``mask`` holds; 0 where none does."""
    weight = mask.astype(x.dtype)
    return jnp.sum(x * weight) / jnp.maximum(jnp.sum(weight), 1.0)


def standardise(x: Float[Array, "..."], mask: Bool[Array, "..."]) -> Float[Array, "..."]:
    """Zero mean and unit deviation over the masked rows."""
    centred = x - masked_mean(x, mask)
    return centred / (jnp.sqrt(masked_mean(jnp.square(centred), mask)) + 1e-8)
