"""Prioritised level replay: which level to play next (Jiang 2021, "Prioritized level replay",
arXiv:2010.03934, section 3 and algorithm 1).

    score       S_i = mean_t |A_t|                                         (section 3.2)
    priority    P_S(i) = rank(S_i)^(-1/beta) / sum_j rank(S_j)^(-1/beta)   (eq. 3)
    staleness   P_C(i) = (c - C_i) / sum_j (c - C_j)                       (eq. 4)
    replay      P(i)   = (1 - rho) P_S(i) + rho P_C(i)                     (eq. 2)

All are over the levels that have been seen; c counts episodes, C_i is the count when level i was
last begun. With the chance d = seen / levels a level is replayed, otherwise one that was never seen
is begun, each as likely as every other: the schedule that the paper calls proportionate.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, Key


def by_rank(
    score: Float[Array, "level"], seen: Bool[Array, "level"], beta: float
) -> Float[Array, "level"]:
    """P_S: the largest score has rank 1; of equal ones that with the smaller number comes first."""
    order = jnp.argsort(jnp.where(seen, -score, jnp.inf), stable=True)
    rank = jnp.zeros_like(order).at[order].set(jnp.arange(1, order.size + 1, dtype=order.dtype))
    weight = jnp.where(seen, rank.astype(jnp.float32) ** (-1.0 / beta), 0.0)
    return weight / jnp.maximum(weight.sum(), 1e-30)


def by_staleness(
    count: Int[Array, ""], last: Int[Array, "level"], seen: Bool[Array, "level"]
) -> Float[Array, "level"]:
    """P_C; where every level was begun just now, each is as likely as every other."""
    age = jnp.where(seen, count - last, 0).astype(jnp.float32)
    each = seen.astype(jnp.float32)
    age = jnp.where(age.sum() > 0.0, age, each)
    return age / jnp.maximum(age.sum(), 1.0)


def replays(
    score: Float[Array, "level"],
    last: Int[Array, "level"],
    count: Int[Array, ""],
    seen: Bool[Array, "level"],
    *,
    beta: float,
    rho: float,
) -> Float[Array, "level"]:
    """P(i), the chances of a replay among the levels that were ``seen``."""
    return (1.0 - rho) * by_rank(score, seen, beta) + rho * by_staleness(count, last, seen)


def chances(
    score: Float[Array, "level"],
    last: Int[Array, "level"],
    count: Int[Array, ""],
    *,
    beta: float,
    rho: float,
) -> Float[Array, "level"]:
    """The chance of every level to be the next; ``last`` is 0 where one was never begun."""
    seen = last > 0
    replayed = replays(score, last, count, seen, beta=beta, rho=rho)
    unseen = (~seen).astype(jnp.float32)
    new = unseen / jnp.maximum(unseen.sum(), 1.0)
    share = seen.mean(dtype=jnp.float32)
    return share * replayed + (1.0 - share) * new


def scored(
    score: Float[Array, "level"],
    error: Float[Array, "..."],
    level: Int[Array, "..."],
    mask: Bool[Array, "..."],
    rate: float,
) -> Float[Array, "level"]:
    """Scores after rows with these errors: of every level that has rows among them the mean |error|
    of those, which with a ``rate`` below 1 it only moves towards, by 1 - (1 - rate)^rows."""
    rows = jnp.zeros_like(score).at[level].add(mask.astype(jnp.float32))
    total = jnp.zeros_like(score).at[level].add(jnp.where(mask, jnp.abs(error), 0.0))
    share = 1.0 - (1.0 - rate) ** rows
    return jnp.where(rows > 0.0, score + share * (total / jnp.maximum(rows, 1.0) - score), score)


def drawn(edges: Float[Array, "level"], share: Float[Array, "..."]) -> Int[Array, "..."]:
    """The levels at these shares, uniform numbers in [0, 1), of the cumulated chances."""
    most = edges[-1]
    number = jnp.searchsorted(edges, share * most, side="right")
    final = jnp.searchsorted(edges, most, side="left")  # rounding must not lead beyond it
    return jnp.minimum(number, final).astype(jnp.int32)


def several(
    chance: Float[Array, "level"], key: Key[Array, ""], count: int
) -> tuple[Int[Array, "count"], Bool[Array, "count"]]:
    """``count`` different levels, each drawn by the chances of those that are left, and which of
    them are drawn: fewer, where fewer have a chance. Those with the largest log-chance plus Gumbel
    noise are such a draw (Kool 2019, "Stochastic beams and where to find them", section 2.3)."""
    noise = jax.random.gumbel(key, chance.shape)
    value = jnp.where(chance > 0.0, jnp.log(jnp.maximum(chance, 1e-30)) + noise, -jnp.inf)
    found, number = jax.lax.top_k(value, count)
    return number.astype(jnp.int32), found > -jnp.inf
