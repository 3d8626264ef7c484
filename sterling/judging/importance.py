"""Importance sampling and doubly robust estimates of a log, with intervals over episodes."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from sterling.data import Dataset
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
FEW = 10  # effective episodes below which an estimate is not to be trusted
MISSING = 0.5  # by how much the mean ratio may miss 1
DOUBT = "the interval cannot be trusted, take fqe or more data"
FOLDS = 2


@dataclasses.dataclass(frozen=True)
class Tables:
    """What importance sampling needs of a log, ``(episode, time)``."""

    ratio: Float[np.ndarray, "episode time"]  # w_t
    reward: Float[np.ndarray, "episode time"]
    lived: Float[np.ndarray, "episode time"]  # 1 where there was a step


def tables(
    policy: Policy,
    dataset: Dataset,
    behaviour: str | Policy | None = None,
    clip: float | None = None,
    seed: int = 0,
) -> Tables:
    """Cumulative ratios and rewards; see :func:`sterling.judging.judge` for the arguments."""
    layout = Layout.of(dataset)
    logged = "extra/log_prob" in dataset.columns
    if behaviour is None:
        behaviour = "logged" if logged else "cloned"
    if behaviour == "logged" and not logged:
        raise Mistake("the log holds no log_prob of its actions; take behaviour='cloned'")
    if isinstance(behaviour, str) and behaviour not in ("logged", "cloned"):
        raise Mistake(f"behaviour is 'logged', 'cloned' or a policy; got {behaviour!r}")
    if behaviour == "cloned":
        behaviour = cloned(dataset, seed=seed)
    log_pi, log_mu, reward = over_rows(
        _read, dataset, policy, None if isinstance(behaviour, str) else behaviour
    )
    if not np.isfinite(log_mu).all():
        raise Mistake("the log holds actions that its policy never does; its log_prob is wrong")
    ratio = equations.cumulative_ratio(
        jnp.asarray(layout.table(log_pi)), jnp.asarray(layout.table(log_mu)), clip
    )
    ones = layout.table(np.ones(dataset.rows, np.float32))
    return Tables(np.asarray(ratio), layout.table(reward), ones)


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
    made = tables(policy, dataset, behaviour, clip, seed)
    ratio = jnp.asarray(made.ratio)
    if method in PLAIN:
        if fields:
            raise Mistake(f"{method} has no option {next(iter(fields))!r}")
        sums = PLAIN[method](ratio, jnp.asarray(made.reward), gamma)
    else:
        q, v, reward = _model(policy, dataset, made.reward, gamma, seed=seed, fields=fields)
        sums = WITH_MODEL[method](ratio, reward, q, v, gamma)
    per_step = method not in ("is", "wis")
    size, missed = effective(made, gamma, per_step)
    found = of_sums(sums, size, level=level, interval=interval, key=seed)
    note = f"{method}, {found.method} over {found.n} episodes, effective sample size {size:.3g}"
    if clip is not None:
        note += f", ratios at most {clip:g}"
    if clip is None and missed > MISSING:
        note += f"; ratios miss their mean of 1 by {missed:.2g}, so paths are missing: {DOUBT}"
    elif size < FEW:
        note += f"; that is below {FEW}: {DOUBT}"
    return dataclasses.replace(found, method=note)


def effective(made: Tables, gamma: float, per_step: bool) -> tuple[float, float]:
    """Effective episodes (Kish 1965), and by how much the mean ratio misses 1, its expectation: of
    whole episodes, or of steps, each by its discount and by how many episodes lived it (harmonic
    and absolute mean)."""
    sizes = np.asarray(equations.effective_sample_size(jnp.asarray(made.ratio)), np.float64)
    missed = np.abs(made.ratio.mean(0) - 1.0)
    if not per_step:
        return float(sizes[-1]), float(missed[-1])
    share = made.lived.mean(0) * gamma ** np.arange(len(sizes))
    share = share / share.sum()
    return float(1.0 / (share / np.maximum(sizes, 1.0)).sum()), float(missed @ share)


def _read(
    policy: Policy, behaviour: Policy | None, record: Record
) -> tuple[Float[Array, "row"], Float[Array, "row"], Float[Array, "row"]]:
    log_pi = policy.log_prob(record.obs, record.action)
    if behaviour is None:
        return log_pi, record.extras["log_prob"].reshape(log_pi.shape), record.reward
    return log_pi, behaviour.log_prob(record.obs, record.action), record.reward


def _model(
    policy: Policy,
    dataset: Dataset,
    reward: Float[np.ndarray, "episode time"],
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
    reward = reward.copy()
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
        reward[np.flatnonzero(here), last] += np.where(cut, gamma * beyond, 0.0)
    return jnp.asarray(q), jnp.asarray(v), jnp.asarray(reward)


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
