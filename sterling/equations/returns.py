"""Returns and advantages. Arrays are time-major: ``(time, ...)``."""

from __future__ import annotations

from typing import TypeVar

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

Number = TypeVar("Number", float, Array)


def gae(
    reward: Float[Array, "time ..."],
    discount: Float[Array, "time ..."],
    value: Float[Array, "time ..."],
    next_value: Float[Array, "time ..."],
    trace: Bool[Array, "time ..."],
    *,
    lam: Float[Array, ""] | float,
) -> Float[Array, "time ..."]:
    """Return generalised advantage estimates (Schulman 2016, eq. 16), across episode boundaries.

        delta_t = r_t + g_t V(s'_t) - V(s_t)
        A_t     = delta_t + g_t lam c_t A_{t+1}

    ``discount`` g is gamma times the environment's discount (0 at a termination, 1 at a
    truncation); ``next_value`` is the value of the *true* successor; ``trace`` c is False where row
    t+1 does not continue row t. Truncations bootstrap, but nothing leaks from the next episode.
    """
    delta = reward + discount * next_value - value

    def back(ahead: Array, row: tuple[Array, Array]) -> tuple[Array, Array]:
        delta, decay = row
        advantage = delta + decay * ahead
        return advantage, advantage

    decay = discount * lam * trace.astype(reward.dtype)
    return jax.lax.scan(back, jnp.zeros_like(delta[0]), (delta, decay), reverse=True)[1]


def lambda_returns(
    reward: Float[Array, "time ..."],
    discount: Float[Array, "time ..."],
    next_value: Float[Array, "time ..."],
    trace: Bool[Array, "time ..."],
    *,
    lam: Float[Array, ""] | float,
) -> Float[Array, "time ..."]:
    """Return lambda-returns (Sutton & Barto 2018, eq. 12.20), across episode boundaries.

        G_t = r_t + g_t ( (1 - lam c_t) V(s'_t) + lam c_t G_{t+1} )

    ``discount`` g, ``next_value`` and ``trace`` c are those of :func:`gae`: where row t+1 does not
    continue row t, G bootstraps from the true successor alone. With V = max_a Q these are the
    returns of Peng's Q(lambda) (Peng & Williams 1996).
    """

    def back(ahead: Array, row: tuple[Array, ...]) -> tuple[Array, Array]:
        reward, discount, value, share = row
        total = reward + discount * ((1.0 - share) * value + share * ahead)
        return total, total

    rows = (reward, discount, next_value, lam * trace.astype(reward.dtype))
    return jax.lax.scan(back, jnp.zeros_like(reward[0]), rows, reverse=True)[1]


def lowest_return(lowest: Number, gamma: float) -> Number:
    """Return the lowest possible return if no reward is below ``lowest``, at most 0: that reward
    forever."""
    return lowest / max(1.0 - gamma, 1e-6)


def continues(
    last: Bool[Array, "time ..."], mask: Bool[Array, "time ..."]
) -> Bool[Array, "time ..."]:
    """Return where row t+1 is a valid continuation of row t (False for the final row)."""
    ahead = jnp.concatenate([mask[1:], jnp.zeros_like(mask[:1])])
    return ~last & ahead
