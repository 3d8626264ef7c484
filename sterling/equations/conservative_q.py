"""Conservative Q-learning's terms: lower the values of actions absent from the data (Kumar 2020).

All are per row; average them with ``masked_mean``.
"""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float


def log_integral_exp(
    q: Float[Array, "sample ..."], log_density: Float[Array, "sample ..."]
) -> Float[Array, "..."]:
    """Estimate the log of the integral of exp Q(s, a) over a, from actions with known densities:

        log mean_k exp( Q(s, a_k) - log p_k(a_k) )

    Each term inside the logarithm is unbiased for any density p_k of its action (Kumar 2020,
    appendix F), so samples of several proposals can be concatenated.
    """
    return jax.nn.logsumexp(q - log_density, 0) - math.log(q.shape[0])


def conservative_gap(
    q: Float[Array, "sample ..."],
    log_density: Float[Array, "sample ..."],
    q_logged: Float[Array, "..."],
) -> Float[Array, "..."]:
    """Return log int exp Q(s, .) - Q(s, a) for the logged action a, the term that CQL(H) adds to
    the critic's loss (Kumar 2020, eq. 4). Its gradient lowers every Q(s, a') by softmax Q and
    raises that of a by 1.
    """
    return log_integral_exp(q, log_density) - q_logged


def conservative_gap_discrete(
    q: Float[Array, "... actions"], q_logged: Float[Array, "..."]
) -> Float[Array, "..."]:
    """Return the exact gap of discrete actions: log sum_a exp Q(s, a) - Q(s, logged a) >= 0."""
    return jax.nn.logsumexp(q, -1) - q_logged


def calibrated_q(q: Float[Array, "..."], reference: Float[Array, "..."]) -> Float[Array, "..."]:
    """Return max(Q(s, a), V_mu(s)), which replaces Q of the policy's actions in the gap (Nakamoto
    2023, eq. 5.1), so that no value is lowered below the behaviour policy's value ``reference``.
    If that is unknown (-inf), the result is Q."""
    return jnp.maximum(q, reference)


def multiplier_loss(
    log_multiplier: Float[Array, ""],
    gap: Float[Array, "..."],
    wanted: Float[Array, ""] | float,
) -> Float[Array, "..."]:
    """Return -alpha (gap - wanted), so the multiplier alpha grows while the gap is too wide (Kumar
    2020, eq. 30, negated). ``gap`` is treated as a constant; the variable is log alpha, which keeps
    alpha positive."""
    return -jnp.exp(log_multiplier) * (gap - wanted)
