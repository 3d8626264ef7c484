"""Importance sampling: estimate a policy's return from another policy's episodes (Precup 2000,
ICML).

Tables are ``(episode, time)``: episode i, step t, padded at the end with steps of reward 0 and
log-ratio 0. With rho_t = pi(a_t|s_t) / mu(a_t|s_t) of the evaluated policy pi and the behaviour
policy mu,

    w_t = rho_0 rho_1 ... rho_t,    E_mu[ w_t f(s_0, ..., a_t) ] = E_pi[ f(s_0, ..., a_t) ],

because the environment's probabilities cancel in the ratio of a trajectory's probabilities. Every
estimator here is a sum over columns k of ratios of sums over episodes,

    V = sum_k ( sum_i A_ik ) / ( sum_i B_ik ),

and its function returns the tables A and B, so that a bootstrap resample, in which episode i occurs
c_i times, is V with c_i A_ik and c_i B_ik: see :func:`ratio_of_sums`. B = 1 gives a mean over
episodes (unbiased), B = w a mean weighted by the ratios (biased by order 1 / episodes, with far
less variance).

After an episode's end w stays constant: ended episodes add reward 0 and still count in B.
"""

from __future__ import annotations

import jax.numpy as jnp
from jaxtyping import Array, Float

Table = Float[Array, "episode time"]
Sums = tuple[Float[Array, "episode column"], Float[Array, "episode column"]]  # A, B


def cumulative_ratio(
    log_pi: Table, log_mu: Table, most: Float[Array, ""] | float | None = None
) -> Table:
    """Return w_t, the product of rho up to step t, at most ``most`` (Ionides 2008: less variance,
    and a bias towards low values). Pad with log_pi = log_mu = 0."""
    total = jnp.cumsum(log_pi - log_mu, -1)
    return jnp.exp(total if most is None else jnp.minimum(total, jnp.log(most)))


def relative_ratio(
    log_pi: Table, log_mu: Table, most: Float[Array, ""] | float | None = None
) -> Table:
    """Return :func:`cumulative_ratio` with each column divided by its largest entry, so that ratios
    cannot overflow, however far apart the policies are. Weighted means do not change by it."""
    total = jnp.cumsum(log_pi - log_mu, -1)
    total = total if most is None else jnp.minimum(total, jnp.log(most))
    largest = jnp.max(total, 0, keepdims=True)
    return jnp.exp(total - jnp.where(jnp.isfinite(largest), largest, 0.0))


def discount_rewards(reward: Table, gamma: Float[Array, ""] | float) -> Table:
    """Return gamma^t r_t."""
    steps = jnp.arange(reward.shape[-1], dtype=reward.dtype)
    return reward * (gamma**steps)[None]


def trajectory_is(ratio: Table, reward: Table, gamma: Float[Array, ""] | float) -> Sums:
    """Return the tables of IS: mean of w_T G, the episode's ratio times its return (Precup 2000,
    eq. 4).

    V = E_pi[G] = E_mu[w_T G]. Unbiased; its variance grows exponentially with the length.
    """
    terms = ratio[:, -1:] * jnp.sum(discount_rewards(reward, gamma), -1, keepdims=True)
    return terms, jnp.ones_like(terms)


def weighted_trajectory_is(ratio: Table, reward: Table, gamma: Float[Array, ""] | float) -> Sums:
    """Return the tables of WIS: sum w_T G / sum w_T (Precup 2000, eq. 5). It is consistent, as
    E[w_T] = 1, and lies between the smallest and the largest observed return."""
    terms, _ = trajectory_is(ratio, reward, gamma)
    return terms, ratio[:, -1:]


def per_decision_is(ratio: Table, reward: Table, gamma: Float[Array, ""] | float) -> Sums:
    """Return the tables of PDIS: mean of sum_t gamma^t w_t r_t (Precup 2000, eq. 6).

    A reward does not depend on later actions, whose ratios have mean 1 and only add variance:
    E[w_T r_t] = E[w_t r_t]. Unbiased.
    """
    terms = jnp.sum(ratio * discount_rewards(reward, gamma), -1, keepdims=True)
    return terms, jnp.ones_like(terms)


def weighted_per_decision_is(ratio: Table, reward: Table, gamma: Float[Array, ""] | float) -> Sums:
    """Return the tables of WPDIS: sum_t gamma^t (sum_i w_it r_it) / (sum_i w_it), a weighted mean
    per step (Thomas 2015, "Safe reinforcement learning", section 3.8, consistent form)."""
    return ratio * discount_rewards(reward, gamma), ratio


def doubly_robust(
    ratio: Table, reward: Table, q: Table, v: Table, gamma: Float[Array, ""] | float
) -> Sums:
    """Return the tables of DR: mean of sum_t gamma^t [ w_t (r_t - Q(s_t, a_t)) + w_{t-1} V(s_t) ],
    w_{-1} = 1 (Jiang & Li 2016, arXiv:1511.03722, eq. 10, unrolled).

    E[w_t Q(s_t, a_t)] = E[w_{t-1} V(s_t)] for any Q, if V(s) = E_pi Q(s, a): the model's terms have
    mean 0, and reduce the variance as far as Q is accurate. Pad with Q = V = 0.
    """
    terms = ratio * discount_rewards(reward - q, gamma) + _previous_ratio(ratio) * discount_rewards(
        v, gamma
    )
    totals = jnp.sum(terms, -1, keepdims=True)
    return totals, jnp.ones_like(totals)


def weighted_doubly_robust(
    ratio: Table, reward: Table, q: Table, v: Table, gamma: Float[Array, ""] | float
) -> Sums:
    """Return the tables of WDR: DR with w_it / sum_j w_jt in place of w_it / n (Thomas & Brunskill
    2016, arXiv:1604.00923, eq. 7)."""
    before = _previous_ratio(ratio)
    terms = [ratio * discount_rewards(reward - q, gamma), before * discount_rewards(v, gamma)]
    return jnp.concatenate(terms, -1), jnp.concatenate([ratio, before], -1)


def ratio_of_sums(sums: Sums, counts: Float[Array, "episode"] | None = None) -> Float[Array, ""]:
    """Return V of the module docstring; ``counts`` says how often each episode counts (default: 1).

    A column whose weights are all 0 adds 0: the evaluated policy would never have reached it.
    """
    terms, weights = sums
    each = jnp.ones_like(terms[:, 0]) if counts is None else counts
    top, bottom = each @ terms, each @ weights
    return jnp.sum(jnp.where(bottom > 0.0, top / jnp.where(bottom > 0.0, bottom, 1.0), 0.0))


def episode_contributions(sums: Sums) -> Float[Array, "episode"]:
    """Return each episode's contribution V + n sum_k (A_ik - R_k B_ik) / sum_j B_jk, R_k the ratio
    of column k. Their mean is V, and their variance divided by n is that of V to first order (the
    delta method; Owen 2013, "Monte Carlo theory, methods and examples", section 9.2). For B = 1
    they are A.
    """
    terms, weights = sums
    bottom = jnp.sum(weights, 0, keepdims=True)
    safe = jnp.where(bottom > 0.0, bottom, 1.0)
    ratios = jnp.sum(terms, 0, keepdims=True) / safe
    deviation = jnp.sum((terms - ratios * weights) / safe, -1)
    return jnp.sum(ratios) + deviation * deviation.size


def effective_sample_size(weights: Float[Array, "episode ..."]) -> Float[Array, "..."]:
    """Return (sum w)^2 / sum w^2 over episodes, the number of equally weighted episodes with the
    same information (Kish 1965); 0 if all weights are 0. Weights are divided by their largest
    first, so that their squares cannot overflow."""
    largest = jnp.max(weights, 0, keepdims=True)
    parts = weights / jnp.where(largest > 0.0, largest, 1.0)
    squares = jnp.sum(jnp.square(parts), 0)
    return jnp.square(jnp.sum(parts, 0)) / jnp.where(squares > 0.0, squares, 1.0)


def _previous_ratio(ratio: Table) -> Table:
    """Return w_{t-1}, with w_{-1} = 1."""
    return jnp.concatenate([jnp.ones_like(ratio[:, :1]), ratio[:, :-1]], -1)
