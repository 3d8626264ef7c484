"""Policy losses, per row (average them with ``masked_mean``)."""

from __future__ import annotations

import jax.numpy as jnp
from jaxtyping import Array, Float


def clipped_surrogate(
    ratio: Float[Array, "..."], advantage: Float[Array, "..."], clip: Float[Array, ""] | float
) -> Float[Array, "..."]:
    """PPO's loss (Schulman 2017, eq. 7, negated): -min(rho A, clip(rho, 1-e, 1+e) A)."""
    limited = jnp.clip(ratio, 1.0 - clip, 1.0 + clip)
    return -jnp.minimum(ratio * advantage, limited * advantage)


def clipped_value(
    value: Float[Array, "..."],
    old_value: Float[Array, "..."],
    target: Float[Array, "..."],
    clip: Float[Array, ""] | float,
) -> Float[Array, "..."]:
    """Half the larger of the squared errors of V and of V clipped around its old value."""
    limited = old_value + jnp.clip(value - old_value, -clip, clip)
    return 0.5 * jnp.maximum(jnp.square(value - target), jnp.square(limited - target))


def kl_estimate(log_ratio: Float[Array, "..."]) -> Float[Array, "..."]:
    """(rho - 1) - log rho: the low-variance, never negative estimate of KL(old || new)."""
    return jnp.expm1(log_ratio) - log_ratio
