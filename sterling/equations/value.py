"""Action values and their errors, per row (average them with ``masked_mean``).

``discount`` is always gamma times the world's own discount: 0 at an end, gamma at a cut.
"""

from __future__ import annotations

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int


def td_target(
    reward: Float[Array, "..."],
    discount: Float[Array, "..."],
    next_value: Float[Array, "..."],
) -> Float[Array, "..."]:
    """y = r + g V(s'), the one-step bootstrap (Sutton & Barto 2018, eq. 6.2)."""
    return reward + discount * next_value


def td_error(
    value: Float[Array, "..."],
    reward: Float[Array, "..."],
    discount: Float[Array, "..."],
    next_value: Float[Array, "..."],
) -> Float[Array, "..."]:
    """delta = r + g V(s') - V(s) (Sutton & Barto 2018, eq. 6.5)."""
    return td_target(reward, discount, next_value) - value


def n_step_return(
    reward: Float[Array, "... n"],
    discount: Float[Array, "... n"],
    follows: Bool[Array, "... n"],
) -> tuple[Float[Array, "..."], Float[Array, "..."], Int[Array, "..."]]:
    """Rewards of a window of n rows, summed as far as the rows belong together.

        R = sum_{k<m} (prod_{j<k} g_j) r_k,    D = prod_{j<m} g_j

    so that the n-step target is R + D V(s_m) (Sutton & Barto 2018, eq. 7.1). ``follows`` says
    of each row whether it continues the one before it (of the first: whether it counts at all);
    m, the third result, is the number of rows up to the first that does not.
    """
    if reward.shape[-1] == 1:  # a product of rows that always count is folded slowly, as a constant
        counts = follows[..., 0]
        total = jnp.where(counts, reward[..., 0], 0.0)
        return total, jnp.where(counts, discount[..., 0], 1.0), counts.astype(jnp.int32)
    going = jnp.cumprod(follows.astype(reward.dtype), -1)
    decay = jnp.cumprod(jnp.where(going > 0.0, discount, 1.0), -1)
    before = jnp.concatenate([jnp.ones_like(decay[..., :1]), decay[..., :-1]], -1)
    steps = jnp.sum(going, -1).astype(jnp.int32)
    return jnp.sum(going * before * reward, -1), decay[..., -1], steps


def double_q(
    next_online: Float[Array, "... actions"], next_target: Float[Array, "... actions"]
) -> Float[Array, "..."]:
    """Q_target(s', argmax_a Q_online(s', a)) (van Hasselt 2016, eq. 4)."""
    best = jnp.argmax(next_online, -1)
    return take_action(next_target, best)


def take_action(q: Float[Array, "... actions"], action: Int[Array, "..."]) -> Float[Array, "..."]:
    """Q(s, a) of the actions taken."""
    return jnp.take_along_axis(q, action[..., None], -1)[..., 0]


def dueling(
    value: Float[Array, "... 1"], advantage: Float[Array, "... actions"]
) -> Float[Array, "... actions"]:
    """Q = V + A - mean_a A (Wang 2016, eq. 9)."""
    return value + advantage - jnp.mean(advantage, -1, keepdims=True)


def huber(error: Float[Array, "..."], delta: Float[Array, ""] | float = 1.0) -> Float[Array, "..."]:
    """e^2 / 2 within ``delta`` of zero, linear with slope ``delta`` beyond (Huber 1964).

    Written c (e - c / 2) with c = clip(e, -delta, delta), which is also right for an infinite
    ``delta`` (half the square).
    """
    clipped = jnp.clip(error, -delta, delta)
    return clipped * (error - 0.5 * clipped)


def returns_within(
    reward: Float[Array, "time ..."],
    discount: Float[Array, "time ..."],
    trace: Bool[Array, "time ..."],
    steps: int,
) -> tuple[Float[Array, "time ..."], Float[Array, "time ..."], Int[Array, "time ..."]]:
    """R, D and m of :func:`n_step_return` for every row of a stretch, time-major: over ``steps``
    rows, or as many as there are up to the stretch's end.

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


def rescaled(x: Float[Array, "..."], eps: Float[Array, ""] | float) -> Float[Array, "..."]:
    """h(x) = sign(x) (sqrt(|x| + 1) - 1) + eps x (Pohlen 2018, arXiv:1805.11593, proposition A.2):
    large values become smaller, small ones half."""
    size = jnp.abs(x)
    root = size / (jnp.sqrt(size + 1.0) + 1.0)  # sqrt(|x| + 1) - 1, exact also near 0
    return jnp.sign(x) * root + eps * x


def unrescaled(x: Float[Array, "..."], eps: Float[Array, ""] | float) -> Float[Array, "..."]:
    """The inverse of :func:`rescaled`, for any ``eps`` from 0 on.

    With w = sqrt(|h^-1(x)| + 1) - 1 it says eps w^2 + (1 + 2 eps) w = |x|; the root is written so
    that nothing is lost to rounding near 0, where the paper's form subtracts two numbers near 1.
    """
    size, slope = jnp.abs(x), 1.0 + 2.0 * eps
    root = 2.0 * size / (slope + jnp.sqrt(slope * slope + 4.0 * eps * size))
    return jnp.sign(x) * root * (root + 2.0)
