"""Mean and standardisation over masked rows."""

from __future__ import annotations

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float


def masked_mean(x: Float[Array, "..."], mask: Bool[Array, "..."]) -> Float[Array, ""]:
    """Return the mean of ``x`` over rows where ``mask`` holds; 0 if it holds nowhere."""
    weight = mask.astype(x.dtype)
    return jnp.sum(x * weight) / jnp.maximum(jnp.sum(weight), 1.0)


def standardise(x: Float[Array, "..."], mask: Bool[Array, "..."]) -> Float[Array, "..."]:
    """Return ``x`` scaled to mean 0 and standard deviation 1 over rows where ``mask`` holds."""
    centred = x - masked_mean(x, mask)
    return centred / (jnp.sqrt(masked_mean(jnp.square(centred), mask)) + 1e-8)
