"""Returns and advantages. Arrays are time-major: ``(time, ...)``."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float


def gae(
    reward: Float[Array, "time ..."],
    discount: Float[Array, "time ..."],
    value: Float[Array, "time ..."],
    next_value: Float[Array, "time ..."],
    trace: Bool[Array, "time ..."],
    *,
    lam: Float[Array, ""] | float,
) -> Float[Array, "time ..."]:
    """Generalised advantage estimation (Schulman 2016, eq. 16), across ends and cuts.

        delta_t = r_t + g_t V(s'_t) - V(s_t)
        A_t     = delta_t + g_t lam c_t A_{t+1}

    ``discount`` g is gamma times the world's discount (0 at an end, 1 at a cut); ``next_value`` is
    the value of the *true* successor; ``trace`` c is False where row t+1 is not the continuation
    of row t, so a cut bootstraps and yet nothing leaks from the next episode.
    """
    delta = reward + discount * next_value - value

    def back(ahead: Array, row: tuple[Array, Array]) -> tuple[Array, Array]:
        delta, decay = row
        advantage = delta + decay * ahead
        return advantage, advantage

    decay = discount * lam * trace.astype(reward.dtype)
    return jax.lax.scan(back, jnp.zeros_like(delta[0]), (delta, decay), reverse=True)[1]


def continues(
    last: Bool[Array, "time ..."], mask: Bool[Array, "time ..."]
) -> Bool[Array, "time ..."]:
    """Where row t+1 is the valid continuation of row t (the final row has none)."""
    ahead = jnp.concatenate([mask[1:], jnp.zeros_like(mask[:1])])
    return ~last & ahead
