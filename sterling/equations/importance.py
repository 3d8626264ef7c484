"""What a policy would have earned, from episodes that another one lived (Precup 2000, ICML).

Tables are ``(episode, time)``: episode i, step t, at the end filled up with steps that bring
nothing (reward 0, log-ratio 0). With rho_t = pi(a_t|s_t) / mu(a_t|s_t) of the judged policy pi and
the policy mu that acted,

    w_t = rho_0 rho_1 ... rho_t,    E_mu[ w_t f(s_0, ..., a_t) ] = E_pi[ f(s_0, ..., a_t) ],

since the world's probabilities cancel in the ratio of two paths' probabilities. Every estimator
here is a sum over columns k of ratios of sums over episodes,

    V = sum_k ( sum_i A_ik ) / ( sum_i B_ik ),

and its function returns the tables A and B, so that a resample of episodes (how often c_i each was
drawn) is V with c_i A_ik and c_i B_ik: see :func:`ratio_of_sums`. B = 1 makes a mean over episodes
(unbiased), B = w a mean weighted by the ratios (biased, by order 1 / episodes, and far steadier).

After an episode's end w stays as it is: what ended goes on to bring 0, and counts in B.
"""

from __future__ import annotations

import jax.numpy as jnp
from jaxtyping import Array, Float

Table = Float[Array, "episode time"]
Sums = tuple[Float[Array, "episode column"], Float[Array, "episode column"]]  # A, B


def cumulative_ratio(
    log_pi: Table, log_mu: Table, most: Float[Array, ""] | float | None = None
) -> Table:
    """w_t, the product of rho up to step t; ``most`` bounds it (Ionides 2008: less variance for a
    bias towards too little). Fill up with log_pi = log_mu = 0."""
    total = jnp.cumsum(log_pi - log_mu, -1)
    return jnp.exp(total if most is None else jnp.minimum(total, jnp.log(most)))


def relative_ratio(
    log_pi: Table, log_mu: Table, most: Float[Array, ""] | float | None = None
) -> Table:
    """:func:`cumulative_ratio` with each column divided by its largest, which weighted means do not
    see: their ratios cannot overflow, however far apart the policies are."""
    total = jnp.cumsum(log_pi - log_mu, -1)
    total = total if most is None else jnp.minimum(total, jnp.log(most))
    largest = jnp.max(total, 0, keepdims=True)
    return jnp.exp(total - jnp.where(jnp.isfinite(largest), largest, 0.0))


def discounted(reward: Table, gamma: Float[Array, ""] | float) -> Table:
    """gamma^t r_t."""
    steps = jnp.arange(reward.shape[-1], dtype=reward.dtype)
    return reward * (gamma**steps)[None]


def trajectory(ratio: Table, reward: Table, gamma: Float[Array, ""] | float) -> Sums:
    """IS: mean of w_T G, the whole episode's ratio times its return (Precup 2000, eq. 4).

    V = E_pi[G] = E_mu[w_T G]. Unbiased; its variance grows exponentially with the length.
    """
    terms = ratio[:, -1:] * jnp.sum(discounted(reward, gamma), -1, keepdims=True)
    return terms, jnp.ones_like(terms)


def weighted_trajectory(ratio: Table, reward: Table, gamma: Float[Array, ""] | float) -> Sums:
    """WIS: sum w_T G / sum w_T (Precup 2000, eq. 5). As E[w_T] = 1 it is consistent; it lies
    among the returns that were seen."""
    terms, _ = trajectory(ratio, reward, gamma)
    return terms, ratio[:, -1:]


def per_decision(ratio: Table, reward: Table, gamma: Float[Array, ""] | float) -> Sums:
    """PDIS: mean of sum_t gamma^t w_t r_t (Precup 2000, eq. 6).

    A reward depends on no later action, whose ratios have mean 1 and only add variance: E[w_T r_t]
    = E[w_t r_t]. Unbiased.
    """
    terms = jnp.sum(ratio * discounted(reward, gamma), -1, keepdims=True)
    return terms, jnp.ones_like(terms)


def weighted_per_decision(ratio: Table, reward: Table, gamma: Float[Array, ""] | float) -> Sums:
    """WPDIS: sum_t gamma^t (sum_i w_it r_it) / (sum_i w_it), each step weighted by itself
    (Thomas 2015, "Safe reinforcement learning", section 3.8, consistent form)."""
    return ratio * discounted(reward, gamma), ratio


def doubly_robust(
    ratio: Table, reward: Table, q: Table, v: Table, gamma: Float[Array, ""] | float
) -> Sums:
    """DR: mean of sum_t gamma^t [ w_t (r_t - Q(s_t, a_t)) + w_{t-1} V(s_t) ], w_{-1} = 1 (Jiang &
    Li 2016, arXiv:1511.03722, eq. 10, unrolled).

    E[w_t Q(s_t, a_t)] = E[w_{t-1} V(s_t)] whatever Q is, if V(s) = E_pi Q(s, a): the model's part
    vanishes in the mean, and takes variance away as far as Q is right. Fill up with Q = V = 0.
    """
    terms = ratio * discounted(reward - q, gamma) + _before(ratio) * discounted(v, gamma)
    made = jnp.sum(terms, -1, keepdims=True)
    return made, jnp.ones_like(made)


def weighted_doubly_robust(
    ratio: Table, reward: Table, q: Table, v: Table, gamma: Float[Array, ""] | float
) -> Sums:
    """WDR: DR with w_it / sum_j w_jt for w_it / n (Thomas & Brunskill 2016, arXiv:1604.00923,
    eq. 7)."""
    before = _before(ratio)
    terms = [ratio * discounted(reward - q, gamma), before * discounted(v, gamma)]
    return jnp.concatenate(terms, -1), jnp.concatenate([ratio, before], -1)


def ratio_of_sums(sums: Sums, counts: Float[Array, "episode"] | None = None) -> Float[Array, ""]:
    """V of the module docstring; ``counts`` says how often each episode counts (once).

    A column whose weights are all 0 (the policy would have done nothing of what was done so far)
    adds 0.
    """
    terms, weights = sums
    each = jnp.ones_like(terms[:, 0]) if counts is None else counts
    top, bottom = each @ terms, each @ weights
    return jnp.sum(jnp.where(bottom > 0.0, top / jnp.where(bottom > 0.0, bottom, 1.0), 0.0))


def pulls(sums: Sums) -> Float[Array, "episode"]:
    """What each episode contributes: V + n sum_k (A_ik - R_k B_ik) / sum_j B_jk, R_k the ratio of
    column k. Their mean is V, their variance over n that of V to first order (the delta method;
    Owen 2013, "Monte Carlo theory, methods and examples", section 9.2); for B = 1 they are A.
    """
    terms, weights = sums
    bottom = jnp.sum(weights, 0, keepdims=True)
    safe = jnp.where(bottom > 0.0, bottom, 1.0)
    ratios = jnp.sum(terms, 0, keepdims=True) / safe
    away = jnp.sum((terms - ratios * weights) / safe, -1)
    return jnp.sum(ratios) + away * away.size


def effective_sample_size(weights: Float[Array, "episode ..."]) -> Float[Array, "..."]:
    """(sum w)^2 / sum w^2 over episodes: as many equally weighted ones tell as much (Kish 1965);
    0 where all weights are 0. Only their proportions count: squares of huge ones would overflow."""
    largest = jnp.max(weights, 0, keepdims=True)
    parts = weights / jnp.where(largest > 0.0, largest, 1.0)
    squares = jnp.sum(jnp.square(parts), 0)
    return jnp.square(jnp.sum(parts, 0)) / jnp.where(squares > 0.0, squares, 1.0)


def _before(ratio: Table) -> Table:
    """w_{t-1}, of which the first is 1."""
    return jnp.concatenate([jnp.ones_like(ratio[:, :1]), ratio[:, :-1]], -1)
