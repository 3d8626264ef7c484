"""Expectile and advantage-weighted regression, per row (average with ``masked_mean``)."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float


def expectile_loss(
    error: Float[Array, "..."], tau: Float[Array, ""] | float
) -> Float[Array, "..."]:
    """Return |tau - 1(u < 0)| u^2 with u = target - prediction (Kostrikov 2022, eq. 3).

    Its minimiser is the target's tau-expectile: the mean for 1/2, the largest for tau -> 1.
    """
    return jnp.abs(tau - (error < 0.0).astype(error.dtype)) * jnp.square(error)


def action_free_loss(
    errors: tuple[Float[Array, "..."], Float[Array, "..."]],
    advantage: Float[Array, "..."],
    tau: Float[Array, ""] | float,
) -> Float[Array, "..."]:
    """Return |tau - 1(A < 0)| (u_1^2 + u_2^2), the expectile loss of two values with errors u_i
    that are learned without actions: one advantage decides for both whether a step was a good one
    (Park 2023, "HIQL", arXiv:2307.11949, eq. 4)."""
    weight = jnp.abs(tau - (advantage < 0.0).astype(advantage.dtype))
    return weight * (jnp.square(errors[0]) + jnp.square(errors[1]))


def advantage_weight(
    advantage: Float[Array, "..."],
    inverse_temperature: Float[Array, ""] | float,
    most: Float[Array, ""] | float,
) -> Float[Array, "..."]:
    """Return min(exp(beta A), ``most``), an action's weight in advantage-weighted regression (Peng
    2019, eq. 10; Nair 2020, eq. 13), without gradient."""
    weight = jnp.minimum(jnp.exp(inverse_temperature * advantage), most)
    return jax.lax.stop_gradient(weight)
