"""Soft values: returns plus entropy, weighted by a temperature alpha (Haarnoja 2018b).

Per row, except the temperature's loss, whose average is the caller's.
"""

from __future__ import annotations

import jax.numpy as jnp
from jaxtyping import Array, Float

LEAST = 1e-6  # what a learned positive number begins with where 0 is asked for


def first_alpha(alpha: Float[Array, ""] | float, tuned: bool) -> Float[Array, ""]:
    """The temperature at the start: one that is tuned is learned by its logarithm, which has no
    way back from 0."""
    first = jnp.asarray(alpha, jnp.float32)
    return jnp.maximum(first, LEAST) if tuned else first


def soft_value(
    q: Float[Array, "..."], log_prob: Float[Array, "..."], alpha: Float[Array, ""] | float
) -> Float[Array, "..."]:
    """V(s) = Q(s, a) - alpha log pi(a|s), one sample a of pi (Haarnoja 2018b, eq. 3)."""
    return q - alpha * log_prob


def soft_value_of_choices(
    q: Float[Array, "... actions"],
    log_prob: Float[Array, "... actions"],
    alpha: Float[Array, ""] | float,
) -> Float[Array, "..."]:
    """V(s) = sum_a pi(a|s) (Q(s, a) - alpha log pi(a|s)), exact (Christodoulou 2019, eq. 10).

    Impossible choices have a probability of exactly 0 and a finite logarithm: they add 0.
    """
    return jnp.sum(jnp.exp(log_prob) * soft_value(q, log_prob, alpha), -1)


def temperature_loss(
    log_alpha: Float[Array, ""], entropy: Float[Array, "..."], target: Float[Array, "..."] | float
) -> Float[Array, "..."]:
    """J = alpha (H(pi(.|s)) - H_target) (Haarnoja 2018b, eq. 18): alpha falls while the policy is
    more random than asked. ``entropy`` is a constant here; the variable is log alpha, so that
    alpha stays positive."""
    return jnp.exp(log_alpha) * (entropy - target)
