"""Importance sampling and doubly robust estimates of a log, with intervals over episodes."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from sterling.data import Dataset, chosen
from sterling.equations import importance as equations
from sterling.judging.clone import cloned
from sterling.judging.counts import finite
from sterling.judging.direct import evaluated
from sterling.judging.interval import of_sums
from sterling.judging.policies import Policy
from sterling.judging.rows import Layout, ends, over_rows
from sterling.statistics import Estimate
from sterling.types import Mistake, Record

PLAIN: dict[str, Callable[..., equations.Sums]] = {
    "is": equations.trajectory,
    "wis": equations.weighted_trajectory,
    "pdis": equations.per_decision,
    "wpdis": equations.weighted_per_decision,
}
WITH_MODEL: dict[str, Callable[..., equations.Sums]] = {
    "dr": equations.doubly_robust,
    "wdr": equations.weighted_doubly_robust,
}
METHODS = (*PLAIN, *WITH_MODEL)
WEIGHTED = ("wis", "wpdis", "wdr")  # their ratios count only beside one another
WHOLE = ("is", "wis")  # they weigh episodes, not steps
FEW = 10  # effective episodes below which no interval is stated
MISSING = 0.3  # by how much the mean ratio may miss 1 before no interval is stated
NONE = "no interval can be stated; take --method fqe, or log more episodes"
FOLDS = 2


@dataclasses.dataclass(frozen=True)
class Tables:
    """What importance sampling needs of a log, ``(episode, time)``."""

    ratio: Float[np.ndarray, "episode time"]  # w_t; for weighted means over its column's largest
    missed: Float[np.ndarray, "time"]  # by how much the mean of w_t misses 1, its expectation
    reward: Float[np.ndarray, "episode time"]
    lived: Float[np.ndarray, "episode time"]  # 1 where there was a step
    reached: Float[np.ndarray, "episode time"]  # by how much it counts: the discounts before it


def tables(
    policy: Policy,
    dataset: Dataset,
    behaviour: str | Policy | None = None,
    clip: float | None = None,
    seed: int = 0,
    *,
    relative: bool = False,
) -> Tables:
    """Cumulative ratios and rewards; see :func:`sterling.judging.judge` for the arguments.
    ``relative``: for weighted means. Raises Mistake for ratios that overflow otherwise."""
    layout = Layout.of(dataset)
    logged = "extra/log_prob" in dataset.columns
    if behaviour is None:
        behaviour = "logged" if logged else "cloned"
    if behaviour == "logged" and not logged:
        raise Mistake("the log holds no log_prob of its actions; take behaviour='cloned'")
    if isinstance(behaviour, str) and behaviour not in ("logged", "cloned"):
        raise Mistake(f"behaviour is 'logged', 'cloned' or a policy; got {behaviour!r}")
    imitated = behaviour == "cloned"
    if imitated:
        behaviour = cloned(dataset, seed=seed)
    log_pi, log_mu, reward, discount = over_rows(
        _read, dataset, policy, None if isinstance(behaviour, str) else behaviour, imitated
    )
    if not np.isfinite(log_mu).all():
        raise Mistake("the log holds actions that its policy never does; its log_prob is wrong")
    logs = layout.table(log_pi), layout.table(log_mu)
    form = equations.relative_ratio if relative else equations.cumulative_ratio
    ratio = np.asarray(form(jnp.asarray(logs[0]), jnp.asarray(logs[1]), clip))
    if not np.isfinite(ratio).all():
        raise Mistake(
            "products of ratios overflow, so far is the policy from the one that acted; take fqe, "
            "or bound them with clip"
        )
    with np.errstate(over="ignore"):
        whole = np.exp(np.cumsum(np.subtract(*logs, dtype=np.float64), -1))
    lived = layout.table(np.ones(dataset.rows, np.float32))
    reached = _before(layout.table(discount)) * lived
    missed = np.abs(whole.mean(0) - 1.0)
    return Tables(ratio, missed, layout.table(reward) * reached, lived, reached)


def _before(discount: Float[np.ndarray, "episode time"]) -> Float[np.ndarray, "episode time"]:
    """The product of the discounts of the steps before each."""
    first = np.ones_like(discount[:, :1])
    return np.cumprod(np.concatenate([first, discount[:, :-1]], -1), -1)


def judged(
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
    """One of ``METHODS``; see :func:`sterling.judging.judge`."""
    made = tables(policy, dataset, behaviour, clip, seed, relative=method in WEIGHTED)
    sums = sums_of(policy, dataset, made, method, gamma=gamma, seed=seed, fields=fields)
    size, missed = effective(made, gamma, method not in WHOLE)
    found = of_sums(sums, size, level=level, interval=interval, key=seed)
    _check_finite(found, method)
    note = f"{method}, {found.method} over {found.n} episodes, effective sample size {size:.3g}"
    if clip is not None:
        note += f", ratios at most {clip:g}"
    why = refusal(size, missed if clip is None else 0.0)
    if not why:
        return dataclasses.replace(found, method=note)
    return dataclasses.replace(found, low=None, high=None, method=f"{note}; {why}: {NONE}")


def sums_of(
    policy: Policy,
    dataset: Dataset,
    made: Tables,
    method: str,
    *,
    gamma: float,
    seed: int,
    fields: dict[str, Any],
) -> equations.Sums:
    """The tables A and B of a method; ``fields``: of the ``fqe`` inside of ``dr`` and ``wdr``."""
    ratio = jnp.asarray(made.ratio)
    if method in PLAIN:
        if fields:
            raise Mistake(f"{method} has no option {next(iter(fields))!r}")
        return PLAIN[method](ratio, jnp.asarray(made.reward), gamma)
    q, v, reward = _model(policy, dataset, made, gamma, seed=seed, fields=fields)
    return WITH_MODEL[method](ratio, reward, q, v, gamma)


def refusal(size: float, missed: float) -> str:
    """Return why no interval can be stated, or "": ``size`` effective episodes, and by how much
    the mean ratio missed 1 (see :func:`effective`)."""
    if missed > MISSING:
        return f"ratios miss their mean of 1 by {missed:.2g}, so the log lacks paths of the policy"
    return "" if size >= FEW else f"the effective sample size is below {FEW}"  # NaN is below


def _check_finite(found: Estimate, method: str) -> None:
    ends = (found.value, found.low, found.high)
    if not all(end is None or np.isfinite(end) for end in ends):
        raise Mistake(
            f"{method} has no finite interval: rewards are NaN, or products of ratios too large; "
            "see sterling data check, take fqe, or bound ratios with clip"
        )


def effective(made: Tables, gamma: float, per_step: bool) -> tuple[float, float]:
    """Effective episodes (Kish 1965), and by how much the mean ratio misses 1, its expectation: of
    whole episodes, or of steps, each by its discount and by how many episodes lived it (harmonic
    and absolute mean)."""
    sizes = np.asarray(equations.effective_sample_size(jnp.asarray(made.ratio)), np.float64)
    missed = made.missed
    if not per_step:
        return float(sizes[-1]), float(missed[-1])
    share = made.lived.mean(0) * gamma ** np.arange(len(sizes))
    share = share / share.sum()
    some = share > 0  # 0 times infinity is no number
    return float(1.0 / (share / np.maximum(sizes, 1.0)).sum()), float(missed[some] @ share[some])


def _read(
    policy: Policy, behaviour: Policy | None, imitated: bool, record: Record
) -> tuple[Float[Array, "row"], ...]:
    """Both log-probabilities of what was chosen: a world may clip that, a policy does not. An
    imitation learned from what was done, and both are asked for that."""
    action = record.action if imitated else chosen.of(record)
    log_pi = policy.log_prob(record.obs, action)
    if behaviour is None:
        log_mu = record.extras["log_prob"].reshape(log_pi.shape)
    else:
        log_mu = behaviour.log_prob(record.obs, action)
    return log_pi, log_mu, record.reward, record.discount


def _model(
    policy: Policy,
    dataset: Dataset,
    made: Tables,
    gamma: float,
    *,
    seed: int,
    fields: dict[str, Any],
) -> tuple[Array, Array, Array]:
    """Tables of Q and V; and of rewards, to which a cut adds gamma V of what it cut off.

    Q of an episode comes from the other half of them, so that it does not know its outcome.
    """
    layout = Layout.of(dataset)
    episodes = layout.shape[0]
    q, v = (np.zeros(layout.shape, np.float32) for _ in range(2))
    reward = made.reward.copy()
    some = np.flatnonzero(dataset.lengths > 0)
    fold = np.random.default_rng(seed).permutation(episodes) % min(FOLDS, episodes)
    for number in np.unique(fold):
        here = fold == number
        teachers = dataset[some[~here]] if episodes > 1 else dataset
        q[here], v[here], beyond = _asked(
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


def _asked(
    policy: Policy,
    teachers: Dataset,
    asked: Dataset,
    *,
    longest: int,
    gamma: float,
    seed: int,
    fields: dict[str, Any],
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Tables of Q and V of some episodes, and V beyond their ends, as others teach them."""
    layout = dataclasses.replace(Layout.of(asked), shape=(len(asked), longest))
    known, here = finite(teachers, policy), finite(asked, policy)
    if known is not None and here is not None and not fields:
        table = known.solved(gamma)[0]
        value = (here.chances * table).sum(1)
        q, v, beyond = table[here.state, here.action], value[here.state], value[here.following]
        return layout.table(q), layout.table(v), beyond[ends(asked)]
    found = evaluated(policy, teachers, gamma=gamma, seed=seed, **{"members": 1, **fields})
    found = dataclasses.replace(found, dataset=asked)
    q, v = found.rows()
    return layout.table(q), layout.table(v), found.beyond()
