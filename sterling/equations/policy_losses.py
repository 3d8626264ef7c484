"""PPO's losses and KL estimate, per row (average them with ``masked_mean``)."""

from __future__ import annotations

import jax.numpy as jnp
from jaxtyping import Array, Float


def clipped_surrogate(
    ratio: Float[Array, "..."], advantage: Float[Array, "..."], clip: Float[Array, ""] | float
) -> Float[Array, "..."]:
    """Return PPO's loss -min(rho A, clip(rho, 1-e, 1+e) A) (Schulman 2017, eq. 7, negated)."""
    limited = jnp.clip(ratio, 1.0 - clip, 1.0 + clip)
    return -jnp.minimum(ratio * advantage, limited * advantage)


def clipped_value_loss(
    value: Float[Array, "..."],
    old_value: Float[Array, "..."],
    target: Float[Array, "..."],
    clip: Float[Array, ""] | float,
) -> Float[Array, "..."]:
    """Return half the larger squared error of V and of V clipped around its old value."""
    limited = old_value + jnp.clip(value - old_value, -clip, clip)
    return 0.5 * jnp.maximum(jnp.square(value - target), jnp.square(limited - target))


def kl_estimate(log_ratio: Float[Array, "..."]) -> Float[Array, "..."]:
    """Return (rho - 1) - log rho, the low-variance, non-negative estimate of KL(old || new)."""
    return jnp.expm1(log_ratio) - log_ratio
