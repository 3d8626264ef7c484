"""Targets and errors of value learning, per row (average them with ``masked_mean``).

``discount`` is always gamma times the environment's discount: 0 at a termination, gamma at a
truncation.
"""

from __future__ import annotations

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int


def td_target(
    reward: Float[Array, "..."],
    discount: Float[Array, "..."],
    next_value: Float[Array, "..."],
) -> Float[Array, "..."]:
    """Return y = r + g V(s'), the one-step bootstrap target (Sutton & Barto 2018, eq. 6.2)."""
    return reward + discount * next_value


def td_error(
    value: Float[Array, "..."],
    reward: Float[Array, "..."],
    discount: Float[Array, "..."],
    next_value: Float[Array, "..."],
) -> Float[Array, "..."]:
    """Return delta = r + g V(s') - V(s) (Sutton & Barto 2018, eq. 6.5)."""
    return td_target(reward, discount, next_value) - value


def n_step_return(
    reward: Float[Array, "... n"],
    discount: Float[Array, "... n"],
    follows: Bool[Array, "... n"],
) -> tuple[Float[Array, "..."], Float[Array, "..."], Int[Array, "..."]]:
    """Return the discounted sum of a window's rewards, up to the first row that does not follow.

        R = sum_{k<m} (prod_{j<k} g_j) r_k,    D = prod_{j<m} g_j

    so that the n-step target is R + D V(s_m) (Sutton & Barto 2018, eq. 7.1). ``follows`` is
    whether each row continues the one before it (for the first row: whether it counts at all); m,
    the third result, is the number of rows before the first that does not.
    """
    if reward.shape[-1] == 1:  # XLA would fold the general form slowly, as a constant
        counts = follows[..., 0]
        total = jnp.where(counts, reward[..., 0], 0.0)
        return total, jnp.where(counts, discount[..., 0], 1.0), counts.astype(jnp.int32)
    going = jnp.cumprod(follows.astype(reward.dtype), -1)
    decay = jnp.cumprod(jnp.where(going > 0.0, discount, 1.0), -1)
    before = jnp.concatenate([jnp.ones_like(decay[..., :1]), decay[..., :-1]], -1)
    steps = jnp.sum(going, -1).astype(jnp.int32)
    return jnp.sum(going * before * reward, -1), decay[..., -1], steps


def annealed_steps(first: int, last: int, share: Float[Array, ""]) -> Int[Array, ""]:
    """Return first^(1 - share) last^share, rounded: n of n-step returns, on its way from ``first``
    to ``last`` (Schwarzer 2023, arXiv:2305.19452, section 3)."""
    return jnp.round(first ** (1.0 - share) * last**share).astype(jnp.int32)


def annealed_discount(
    first: Float[Array, ""] | float, last: Float[Array, ""] | float, share: Float[Array, ""]
) -> Float[Array, ""]:
    """Return the discount whose distance from 1 is on its way from that of ``first`` to that of
    ``last``, as :func:`annealed_steps`."""
    return 1.0 - (1.0 - first) ** (1.0 - share) * (1.0 - jnp.asarray(last)) ** share


def double_q(
    next_online: Float[Array, "... actions"], next_target: Float[Array, "... actions"]
) -> Float[Array, "..."]:
    """Return Q_target(s', argmax_a Q_online(s', a)) (van Hasselt 2016, eq. 4)."""
    best = jnp.argmax(next_online, -1)
    return q_of_action(next_target, best)


def q_of_action(q: Float[Array, "... actions"], action: Int[Array, "..."]) -> Float[Array, "..."]:
    """Return Q(s, a) of the given actions, picked from Q of all actions."""
    return jnp.take_along_axis(q, action[..., None], -1)[..., 0]


def outputs_of_action(
    outputs: Float[Array, "... actions outputs"], action: Int[Array, "..."]
) -> Float[Array, "... outputs"]:
    """Return what a network says of the given actions, such as quantiles of their returns."""
    return jnp.take_along_axis(outputs, action[..., None, None], -2)[..., 0, :]


def dueling(
    value: Float[Array, "... 1"], advantage: Float[Array, "... actions"]
) -> Float[Array, "... actions"]:
    """Return Q = V + A - mean_a A (Wang 2016, eq. 9)."""
    return value + advantage - jnp.mean(advantage, -1, keepdims=True)


def huber(error: Float[Array, "..."], delta: Float[Array, ""] | float = 1.0) -> Float[Array, "..."]:
    """Return Huber's loss: e^2 / 2 within ``delta`` of 0, linear with slope ``delta`` beyond (Huber
    1964).

    Computed as c (e - c / 2) with c = clip(e, -delta, delta), which also holds for an infinite
    ``delta`` (half the square).
    """
    clipped = jnp.clip(error, -delta, delta)
    return clipped * (error - 0.5 * clipped)


def stretch_n_step_returns(
    reward: Float[Array, "time ..."],
    discount: Float[Array, "time ..."],
    trace: Bool[Array, "time ..."],
    steps: int,
) -> tuple[Float[Array, "time ..."], Float[Array, "time ..."], Int[Array, "time ..."]]:
    """Return R, D and m of :func:`n_step_return` for every row of a time-major sequence: over
    ``steps`` rows, or fewer near the sequence's end.

    ``trace`` as in :func:`sterling.equations.returns.gae`. The target of row t is R + D V(s_{t+m}).
    """
    time = reward.shape[0]
    ahead = jnp.arange(time)[:, None] + jnp.arange(steps)[None]  # (time, steps)
    place = jnp.minimum(ahead, time - 1)
    first = jnp.arange(steps) == 0
    inside = (ahead < time).reshape(time, steps, *(1,) * (reward.ndim - 1))
    follows = trace[jnp.maximum(place - 1, 0)] & inside
    follows |= first.reshape(1, steps, *(1,) * (reward.ndim - 1))
    windows = (jnp.moveaxis(x, 1, -1) for x in (reward[place], discount[place], follows))
    return n_step_return(*windows)


def rescale_value(x: Float[Array, "..."], eps: Float[Array, ""] | float) -> Float[Array, "..."]:
    """Return h(x) = sign(x) (sqrt(|x| + 1) - 1) + eps x, which compresses large values (Pohlen
    2018, arXiv:1805.11593, proposition A.2); near 0 it halves them."""
    size = jnp.abs(x)
    root = size / (jnp.sqrt(size + 1.0) + 1.0)  # sqrt(|x| + 1) - 1, exact also near 0
    return jnp.sign(x) * root + eps * x


def unrescale_value(x: Float[Array, "..."], eps: Float[Array, ""] | float) -> Float[Array, "..."]:
    """Return the inverse of :func:`rescale_value`, for any ``eps`` >= 0.

    w = sqrt(|h^-1(x)| + 1) - 1 solves eps w^2 + (1 + 2 eps) w = |x|. The root is written in a form
    that is accurate near 0, where the paper's form subtracts two numbers near 1.
    """
    size, slope = jnp.abs(x), 1.0 + 2.0 * eps
    root = 2.0 * size / (slope + jnp.sqrt(slope * slope + 4.0 * eps * size))
    return jnp.sign(x) * root * (root + 2.0)
