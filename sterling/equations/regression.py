"""Regression on logged experience, per row (average it with ``masked_mean``)."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float


def expectile_loss(
    error: Float[Array, "..."], tau: Float[Array, ""] | float
) -> Float[Array, "..."]:
    """|tau - 1(u < 0)| u^2 of u = target - prediction (Kostrikov 2022, eq. 3).

    Its minimiser is the target's tau-expectile: the mean for 1/2, towards the largest for 1.
    """
    return jnp.abs(tau - (error < 0.0).astype(error.dtype)) * jnp.square(error)


def advantage_weight(
    advantage: Float[Array, "..."],
    inverse_temperature: Float[Array, ""] | float,
    most: Float[Array, ""] | float,
) -> Float[Array, "..."]:
    """min(exp(beta A), ``most``), a constant: the weight of an action in weighted regression
    (Peng 2019, eq. 10; Nair 2020, eq. 13)."""
    weight = jnp.minimum(jnp.exp(inverse_temperature * advantage), most)
    return jax.lax.stop_gradient(weight)
