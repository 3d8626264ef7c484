"""Soft values: return plus entropy, weighted by a temperature alpha (Haarnoja 2018b).

All are per row; average them with ``masked_mean``.
"""

from __future__ import annotations

from collections.abc import Sequence

import jax.numpy as jnp
from jaxtyping import Array, Float

MIN_ALPHA = 1e-6  # smallest initial temperature, if it is learned


def initial_alpha(alpha: Float[Array, ""] | float, tuned: bool) -> Float[Array, ""]:
    """Return the initial temperature; if it is tuned it is above 0, because its logarithm is
    learned."""
    first = jnp.asarray(alpha, jnp.float32)
    return jnp.maximum(first, MIN_ALPHA) if tuned else first


def soft_value(
    q: Float[Array, "..."], log_prob: Float[Array, "..."], alpha: Float[Array, ""] | float
) -> Float[Array, "..."]:
    """Return V(s) = Q(s, a) - alpha log pi(a|s) for one sample a of pi (Haarnoja 2018b, eq. 3)."""
    return q - alpha * log_prob


def soft_value_discrete(
    q: Float[Array, "... actions"],
    log_prob: Float[Array, "... actions"],
    alpha: Float[Array, ""] | float,
) -> Float[Array, "..."]:
    """Return V(s) = sum_a pi(a|s) (Q(s, a) - alpha log pi(a|s)), exactly (Christodoulou 2019, eq.
    10).

    Forbidden choices have probability 0 and a finite log-probability, so they add 0.
    """
    return jnp.sum(jnp.exp(log_prob) * soft_value(q, log_prob, alpha), -1)


def soft_value_choices(
    q: Sequence[Float[Array, "... _"]],
    log_prob: Sequence[Float[Array, "... _"]],
    alpha: Float[Array, ""] | float,
) -> Float[Array, "..."]:
    """Return V(s) of actions of M independent choices, exactly, for Q(s, a) = mean_j Q_j(s, a_j):

        V(s) = 1/M sum_j E[Q_j(s, a_j)] + alpha sum_j H(pi_j(.|s))

    ``q`` and ``log_prob`` have an entry per choice. One choice is :func:`soft_value_discrete`.
    """
    share = float(len(q)) * alpha  # the entropies add up, so the mean takes M times each
    values = [soft_value_discrete(x, log_p, share) for x, log_p in zip(q, log_prob, strict=True)]
    return values[0] if len(values) == 1 else sum(values) / float(len(values))  # type: ignore[return-value]


def temperature_loss(
    log_alpha: Float[Array, ""], entropy: Float[Array, "..."], target: Float[Array, "..."] | float
) -> Float[Array, "..."]:
    """Return J = alpha (H(pi(.|s)) - H_target) (Haarnoja 2018b, eq. 18): alpha falls while the
    policy's entropy exceeds its target. ``entropy`` is treated as a constant; the variable is log
    alpha, which keeps alpha positive."""
    return jnp.exp(log_alpha) * (entropy - target)
