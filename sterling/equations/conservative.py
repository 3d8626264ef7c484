"""Conservative Q-learning: action values pushed down where a log says nothing (Kumar 2020).

Per row; average with ``masked_mean``.
"""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float


def log_integral_exp(
    q: Float[Array, "sample ..."], log_density: Float[Array, "sample ..."]
) -> Float[Array, "..."]:
    """log of the integral of exp Q(s, a) over a, from actions drawn with known densities:

        log mean_k exp( Q(s, a_k) - log p_k(a_k) )

    Each term under the logarithm is unbiased whatever density p_k its action came from (Kumar
    2020, appendix F), so several proposals may be laid side by side.
    """
    return jax.nn.logsumexp(q - log_density, 0) - math.log(q.shape[0])


def conservative_gap(
    q: Float[Array, "sample ..."],
    log_density: Float[Array, "sample ..."],
    q_logged: Float[Array, "..."],
) -> Float[Array, "..."]:
    """log int exp Q(s, .) - Q(s, a) of the logged action a: the term that CQL(H) adds to a critic's
    loss (Kumar 2020, eq. 4). Its slope pushes every Q(s, a') down by softmax Q, a itself up by 1.
    """
    return log_integral_exp(q, log_density) - q_logged


def conservative_gap_of_choices(
    q: Float[Array, "... actions"], q_logged: Float[Array, "..."]
) -> Float[Array, "..."]:
    """The same for discrete actions, exact: log sum_a exp Q(s, a) - Q(s, a of the log) >= 0."""
    return jax.nn.logsumexp(q, -1) - q_logged


def calibrated(q: Float[Array, "..."], reference: Float[Array, "..."]) -> Float[Array, "..."]:
    """max(Q(s, a), V_mu(s)): what the gap sees of the policy's actions (Nakamoto 2023, eq. 5.1), so
    that nothing is pushed below the value ``reference`` of the policy that made the log. Where it
    is not known (-inf), this is Q."""
    return jnp.maximum(q, reference)


def multiplier_loss(
    log_multiplier: Float[Array, ""],
    gap: Float[Array, "..."],
    wanted: Float[Array, ""] | float,
) -> Float[Array, "..."]:
    """-alpha (gap - wanted): the multiplier grows while the gap is wider than wanted (Kumar 2020,
    eq. 30, negated). ``gap`` is a constant here; the variable is log alpha, so that alpha stays
    positive."""
    return -jnp.exp(log_multiplier) * (gap - wanted)
