"""Prioritised level replay: the probability of each level to be played next (Jiang 2021,
"Prioritized level replay", arXiv:2010.03934, section 3 and algorithm 1).

    score       S_i = mean_t |A_t|                                         (section 3.2)
    priority    P_S(i) = rank(S_i)^(-1/beta) / sum_j rank(S_j)^(-1/beta)   (eq. 3)
    staleness   P_C(i) = (c - C_i) / sum_j (c - C_j)                       (eq. 4)
    replay      P(i)   = (1 - rho) P_S(i) + rho P_C(i)                     (eq. 2)

All sums are over levels that have been played; c counts episodes, C_i is the count when level i
last began. With probability d = played / levels a level is replayed, otherwise a new one is drawn
uniformly from those never played: the paper's proportionate schedule.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, Key


def rank_probabilities(
    score: Float[Array, "level"], seen: Bool[Array, "level"], beta: float
) -> Float[Array, "level"]:
    """Return P_S. The largest score has rank 1; equal scores are ranked by their level's index."""
    order = jnp.argsort(jnp.where(seen, -score, jnp.inf), stable=True)
    rank = jnp.zeros_like(order).at[order].set(jnp.arange(1, order.size + 1, dtype=order.dtype))
    weight = jnp.where(seen, rank.astype(jnp.float32) ** (-1.0 / beta), 0.0)
    return weight / jnp.maximum(weight.sum(), 1e-30)


def staleness_probabilities(
    count: Int[Array, ""], last: Int[Array, "level"], seen: Bool[Array, "level"]
) -> Float[Array, "level"]:
    """Return P_C; uniform if no level is stale."""
    age = jnp.where(seen, count - last, 0).astype(jnp.float32)
    each = seen.astype(jnp.float32)
    age = jnp.where(age.sum() > 0.0, age, each)
    return age / jnp.maximum(age.sum(), 1.0)


def replay_probabilities(
    score: Float[Array, "level"],
    last: Int[Array, "level"],
    count: Int[Array, ""],
    seen: Bool[Array, "level"],
    *,
    beta: float,
    rho: float,
) -> Float[Array, "level"]:
    """Return P(i), each level's probability in a replay, over the levels that were ``seen``."""
    return (1.0 - rho) * rank_probabilities(score, seen, beta) + rho * staleness_probabilities(
        count, last, seen
    )


def level_probabilities(
    score: Float[Array, "level"],
    last: Int[Array, "level"],
    count: Int[Array, ""],
    *,
    beta: float,
    rho: float,
) -> Float[Array, "level"]:
    """Return the probability of each level to be next; ``last`` is 0 for levels never played."""
    seen = last > 0
    replayed = replay_probabilities(score, last, count, seen, beta=beta, rho=rho)
    unseen = (~seen).astype(jnp.float32)
    new = unseen / jnp.maximum(unseen.sum(), 1.0)
    share = seen.mean(dtype=jnp.float32)
    return share * replayed + (1.0 - share) * new


def updated_scores(
    score: Float[Array, "level"],
    error: Float[Array, "..."],
    level: Int[Array, "..."],
    mask: Bool[Array, "..."],
    rate: float,
) -> Float[Array, "level"]:
    """Return the scores after new rows. The score of each level with rows among them moves towards
    the mean |error| of those rows, by a share of 1 - (1 - rate)^rows (``rate`` 1 replaces it)."""
    rows = jnp.zeros_like(score).at[level].add(mask.astype(jnp.float32))
    total = jnp.zeros_like(score).at[level].add(jnp.where(mask, jnp.abs(error), 0.0))
    share = 1.0 - (1.0 - rate) ** rows
    return jnp.where(rows > 0.0, score + share * (total / jnp.maximum(rows, 1.0) - score), score)


def levels_from_uniform(
    edges: Float[Array, "level"], share: Float[Array, "..."]
) -> Int[Array, "..."]:
    """Draw levels by inverse transform: ``edges`` are cumulated probabilities, ``share`` uniform
    numbers in [0, 1)."""
    total = edges[-1]
    number = jnp.searchsorted(edges, share * total, side="right")
    final = jnp.searchsorted(edges, total, side="left")  # rounding must not exceed it
    return jnp.minimum(number, final).astype(jnp.int32)


def draw_distinct_levels(
    chance: Float[Array, "level"], key: Key[Array, ""], count: int
) -> tuple[Int[Array, "count"], Bool[Array, "count"]]:
    """Draw ``count`` different levels without replacement, by probabilities ``chance``. The second
    result is False for surplus entries, if fewer levels have a probability above 0. The levels with
    the largest log-probability plus Gumbel noise are such a draw (Kool 2019, "Stochastic beams and
    where to find them", section 2.3)."""
    noise = jax.random.gumbel(key, chance.shape)
    value = jnp.where(chance > 0.0, jnp.log(jnp.maximum(chance, 1e-30)) + noise, -jnp.inf)
    found, number = jax.lax.top_k(value, count)
    return number.astype(jnp.int32), found > -jnp.inf
