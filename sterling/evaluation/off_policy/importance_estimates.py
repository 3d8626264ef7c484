"""Importance sampling and doubly robust estimates from a dataset, with intervals over episodes."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from sterling.data import Dataset, recorded_actions
from sterling.equations import importance_sampling as equations
from sterling.evaluation.off_policy.behaviour_clone import clone_behaviour
from sterling.evaluation.off_policy.episode_intervals import estimate_from_sums
from sterling.evaluation.off_policy.fqe.fqe_value import fit_q
from sterling.evaluation.off_policy.log_rows import EpisodeLayout, last_rows, map_rows
from sterling.evaluation.off_policy.policy_probabilities import Policy
from sterling.evaluation.off_policy.tabular_model import count_model
from sterling.statistics import Estimate
from sterling.types import Mistake, Record

WITHOUT_MODEL: dict[str, Callable[..., equations.Sums]] = {
    "is": equations.trajectory_is,
    "wis": equations.weighted_trajectory_is,
    "pdis": equations.per_decision_is,
    "wpdis": equations.weighted_per_decision_is,
}
WITH_MODEL: dict[str, Callable[..., equations.Sums]] = {
    "dr": equations.doubly_robust,
    "wdr": equations.weighted_doubly_robust,
}
METHODS = (*WITHOUT_MODEL, *WITH_MODEL)
WEIGHTED = ("wis", "wpdis", "wdr")  # only the relative size of their ratios matters
TRAJECTORY_WISE = ("is", "wis")  # these weight episodes, not steps
MIN_EFFECTIVE = 10  # no interval is stated below this number of effective episodes
MAX_RATIO_ERROR = 0.3  # no interval is stated if the mean ratio differs from 1 by more
NO_INTERVAL = "no interval can be stated; use --method fqe, or log more episodes"
FOLDS = 2


@dataclasses.dataclass(frozen=True)
class RatioTables:
    """The quantities of a dataset that importance sampling needs, ``(episode, time)``."""

    # w_t; for weighted means divided by its column's largest
    ratio: Float[np.ndarray, "episode time"]
    missed: Float[np.ndarray, "time"]  # distance of the mean of w_t from its expectation 1
    reward: Float[np.ndarray, "episode time"]
    lived: Float[np.ndarray, "episode time"]  # 1 where the episode has a step
    reached: Float[np.ndarray, "episode time"]  # the product of the discounts before it


def make_tables(
    policy: Policy,
    dataset: Dataset,
    behaviour: str | Policy | None = None,
    clip: float | None = None,
    seed: int = 0,
    *,
    relative: bool = False,
) -> RatioTables:
    """Compute cumulative ratios and rewards; see
    :func:`sterling.evaluation.off_policy.estimate_policy_value` for the arguments.

    ``relative``: ratios for weighted means. Raises Mistake for ratios that overflow otherwise.
    """
    layout = EpisodeLayout.from_dataset(dataset)
    logged = "extra/log_prob" in dataset.columns
    if behaviour is None:
        behaviour = "logged" if logged else "cloned"
    if behaviour == "logged" and not logged:
        raise Mistake("the dataset has no log_prob of its actions; use behaviour='cloned'")
    if isinstance(behaviour, str) and behaviour not in ("logged", "cloned"):
        raise Mistake(f"unknown behaviour {behaviour!r}; use 'logged', 'cloned' or a policy")
    imitated = behaviour == "cloned"
    if imitated:
        behaviour = clone_behaviour(dataset, seed=seed)
    log_pi, log_mu, reward, discount = map_rows(
        _row_log_probs, dataset, policy, None if isinstance(behaviour, str) else behaviour, imitated
    )
    if not np.isfinite(log_mu).all():
        raise Mistake("the dataset's log_prob is -inf for some actions; use behaviour='cloned'")
    logs = layout.table(log_pi), layout.table(log_mu)
    form = equations.relative_ratio if relative else equations.cumulative_ratio
    ratio = np.asarray(form(jnp.asarray(logs[0]), jnp.asarray(logs[1]), clip))
    if not np.isfinite(ratio).all():
        raise Mistake(
            "products of ratios overflow: the policy differs too much from the dataset's; use "
            "fqe, or bound the ratios with clip"
        )
    with np.errstate(over="ignore"):
        whole = np.exp(np.cumsum(np.subtract(*logs, dtype=np.float64), -1))
    lived = layout.table(np.ones(dataset.rows, np.float32))
    reached = _discount_before(layout.table(discount)) * lived
    missed = np.abs(whole.mean(0) - 1.0)
    return RatioTables(ratio, missed, layout.table(reward) * reached, lived, reached)


def _discount_before(
    discount: Float[np.ndarray, "episode time"],
) -> Float[np.ndarray, "episode time"]:
    """Return the product of the discounts of all earlier steps."""
    first = np.ones_like(discount[:, :1])
    return np.cumprod(np.concatenate([first, discount[:, :-1]], -1), -1)


def estimate_value(
    policy: Policy,
    dataset: Dataset,
    method: str,
    *,
    gamma: float,
    level: float,
    seed: int,
    behaviour: str | Policy | None = None,
    clip: float | None = None,
    interval: str = "jackknife",
    **fields: Any,
) -> Estimate:
    """Estimate the value by one of ``METHODS``; see
    :func:`sterling.evaluation.off_policy.estimate_policy_value`."""
    made = make_tables(policy, dataset, behaviour, clip, seed, relative=method in WEIGHTED)
    sums = method_sums(policy, dataset, made, method, gamma=gamma, seed=seed, fields=fields)
    size, missed = effective_episodes(made, gamma, method not in TRAJECTORY_WISE)
    found = estimate_from_sums(sums, size, level=level, interval=interval, key=seed)
    _check_finite(found, method)
    note = f"{method}, {found.method} over {found.n} episodes, effective sample size {size:.3g}"
    if clip is not None:
        note += f", ratios at most {clip:g}"
    why = refusal_reason(size, missed if clip is None else 0.0)
    if not why:
        return dataclasses.replace(found, method=note)
    return dataclasses.replace(found, low=None, high=None, method=f"{note}; {why}: {NO_INTERVAL}")


def method_sums(
    policy: Policy,
    dataset: Dataset,
    made: RatioTables,
    method: str,
    *,
    gamma: float,
    seed: int,
    fields: dict[str, Any],
) -> equations.Sums:
    """Return the tables A and B of a method; ``fields`` are those of the ``fqe`` inside ``dr`` and
    ``wdr``."""
    ratio = jnp.asarray(made.ratio)
    if method in WITHOUT_MODEL:
        if fields:
            raise Mistake(f"{method} has no option {next(iter(fields))!r}; remove it")
        return WITHOUT_MODEL[method](ratio, jnp.asarray(made.reward), gamma)
    q, v, reward = _model_tables(policy, dataset, made, gamma, seed=seed, fields=fields)
    return WITH_MODEL[method](ratio, reward, q, v, gamma)


def refusal_reason(size: float, missed: float) -> str:
    """Return why no interval can be stated, or "".

    ``size``: effective episodes; ``missed``: by how much the mean ratio differs from 1 (see
    :func:`effective_episodes`).
    """
    if missed > MAX_RATIO_ERROR:
        return f"the mean ratio is {missed:.2g} away from 1, and the data lack paths of the policy"
    # NaN counts as below
    return "" if size >= MIN_EFFECTIVE else f"the effective sample size is below {MIN_EFFECTIVE}"


def _check_finite(found: Estimate, method: str) -> None:
    ends = (found.value, found.low, found.high)
    if not all(end is None or np.isfinite(end) for end in ends):
        raise Mistake(
            f"{method} has no finite interval: rewards are NaN, or ratios are too large; "
            "run sterling data check, use fqe, or bound the ratios with clip"
        )


def effective_episodes(made: RatioTables, gamma: float, per_step: bool) -> tuple[float, float]:
    """Return the effective number of episodes (Kish 1965), and how far the mean ratio is from its
    expectation 1.

    Both are of whole episodes, or of steps, weighted by their discount and by how many episodes
    reach them (harmonic and absolute mean).
    """
    sizes = np.asarray(equations.effective_sample_size(jnp.asarray(made.ratio)), np.float64)
    missed = made.missed
    if not per_step:
        return float(sizes[-1]), float(missed[-1])
    share = made.lived.mean(0) * gamma ** np.arange(len(sizes))
    share = share / share.sum()
    some = share > 0  # 0 times infinity is NaN
    return float(1.0 / (share / np.maximum(sizes, 1.0)).sum()), float(missed[some] @ share[some])


def _row_log_probs(
    policy: Policy, behaviour: Policy | None, imitated: bool, record: Record
) -> tuple[Float[Array, "row"], ...]:
    """Return both log-probabilities of the chosen action, which the world may have clipped.

    A cloned behaviour policy learned from executed actions, so both are then evaluated at those.
    """
    action = record.action if imitated else recorded_actions.chosen_action(record)
    log_pi = policy.log_prob(record.obs, action)
    if behaviour is None:
        log_mu = record.extras["log_prob"].reshape(log_pi.shape)
    else:
        log_mu = behaviour.log_prob(record.obs, action)
    return log_pi, log_mu, record.reward, record.discount


def _model_tables(
    policy: Policy,
    dataset: Dataset,
    made: RatioTables,
    gamma: float,
    *,
    seed: int,
    fields: dict[str, Any],
) -> tuple[Array, Array, Array]:
    """Return tables of Q, V and rewards; truncated episodes get gamma V of their final observation
    added.

    An episode's Q is fitted on the other half of the episodes, so that it does not know the
    episode's outcome.
    """
    layout = EpisodeLayout.from_dataset(dataset)
    episodes = layout.shape[0]
    q, v = (np.zeros(layout.shape, np.float32) for _ in range(2))
    reward = made.reward.copy()
    some = np.flatnonzero(dataset.lengths > 0)
    fold = np.random.default_rng(seed).permutation(episodes) % min(FOLDS, episodes)
    for number in np.unique(fold):
        here = fold == number
        teachers = dataset[some[~here]] if episodes > 1 else dataset
        q[here], v[here], beyond = _cross_fitted_values(
            policy,
            teachers,
            dataset[some[here]],
            longest=layout.shape[1],
            gamma=gamma,
            seed=seed,
            fields=fields,
        )
        cut = ~dataset.ended[some[here]]
        last = dataset.lengths[some[here]] - 1
        rest = np.where(cut, gamma * beyond, 0.0)
        reward[np.flatnonzero(here), last] += rest * made.reached[np.flatnonzero(here), last]
    return jnp.asarray(q * made.reached), jnp.asarray(v * made.reached), jnp.asarray(reward)


def _cross_fitted_values(
    policy: Policy,
    teachers: Dataset,
    asked: Dataset,
    *,
    longest: int,
    gamma: float,
    seed: int,
    fields: dict[str, Any],
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return tables of Q and V of the episodes ``asked``, and V of their final observations,
    learned from ``teachers``."""
    layout = dataclasses.replace(EpisodeLayout.from_dataset(asked), shape=(len(asked), longest))
    known, here = count_model(teachers, policy), count_model(asked, policy)
    if known is not None and here is not None and not fields:
        table = known.solve(gamma)[0]
        value = (here.chances * table).sum(1)
        q, v, beyond = table[here.state, here.action], value[here.state], value[here.following]
        return layout.table(q), layout.table(v), beyond[last_rows(asked)]
    found = fit_q(policy, teachers, gamma=gamma, seed=seed, **{"members": 1, **fields})
    found = dataclasses.replace(found, dataset=asked)
    q, v = found.q_and_values()
    return layout.table(q), layout.table(v), found.final_values()
