"""Fitted Q evaluation carried out on a log: its value with an interval, and Q for others to use."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Key

from sterling import keys
from sterling.data import Dataset
from sterling.data.returns import monte_carlo, summary
from sterling.judging import convergence, fqe
from sterling.judging.fit import fit
from sterling.judging.interval import spread
from sterling.judging.policies import Policy
from sterling.judging.rows import bounds, ends, over_rows, starts
from sterling.statistics import Estimate
from sterling.training.fields import make_config
from sterling.types import Record

DRAWS = 16  # actions per start state where a policy has no probabilities


@dataclasses.dataclass(frozen=True)
class Evaluated:
    """A policy's Q, by several networks, each from its own resample of the episodes."""

    state: fqe.State
    dataset: Dataset
    counts: Float[np.ndarray, "member episode"]
    key: Key[Array, ""]

    def estimate(self, level: float) -> Estimate:
        """The mean over members and start states; the interval from the members' spread, each with
        the start states of its own resample. No interval where the fit has not converged."""
        each = self._values(starts(self.dataset))
        means = (each * self.counts).sum(1) / self.counts.sum(1)
        members, n = self.counts.shape
        what = f"fqe, {members} networks on resampled episodes (data and initialisation)"
        if members == 1 or n == 1:
            why = "one network" if members == 1 else "one episode"
            return Estimate(float(each.mean()), None, None, n, f"none ({why})", level)
        value, freedom = float(each.mean()), members - 1
        made = spread(value, means, n=n, level=level, what=what, freedom=freedom)
        return convergence.checked(made, self.state, self.dataset, self.key)

    def beyond(self) -> Float[np.ndarray, "episode"]:
        """V of the last observation of every episode."""
        return over_rows(_next_value, self.dataset, self.state, self.key, index=ends(self.dataset))

    def rows(self) -> tuple[Float[np.ndarray, "row"], Float[np.ndarray, "row"]]:
        """Q(s, a) and V(s) of every row."""
        return over_rows(_both, self.dataset, self.state, self.key)

    def _values(self, index: np.ndarray) -> Float[np.ndarray, "member row"]:
        return over_rows(_value, self.dataset, self.state, self.key, index=index).T


def evaluated(
    policy: Policy | None, dataset: Dataset, *, gamma: float, seed: int = 0, **fields: Any
) -> Evaluated:
    """Learn a policy's Q (None: the behaviour's V) from a log; ``fields`` of ``fqe.Config``."""
    lived = monte_carlo(dataset, gamma)
    known = {"middle": float(lived.mean()), "scale": float(lived.std()) or 1.0, "gamma": gamma}
    known["low"], known["high"] = bounds(dataset, gamma)
    config = make_config(fqe, {**known, **fields}, "fqe")
    n = int((dataset.lengths > 0).sum())
    random = np.random.default_rng(seed)
    counts = random.multinomial(n, np.full(n, 1 / n), config.members).astype(float)
    if config.members == 1 or n == 1:
        counts = np.ones((config.members, n))
    spec = dataclasses.replace(dataset.spec, log=summary(dataset))
    start, rows, ask = keys.deal(jax.random.key(seed), "fqe", 3)
    state = fqe.init(start, spec, config, policy)
    state, _ = fit(
        fqe.learn,
        state,
        dataset,
        updates=config.updates,
        batch=config.batch,
        key=rows,
        counts=counts,
    )
    return Evaluated(state, dataset, counts, ask)


def _value(state: fqe.State, key: Array, record: Record) -> Float[Array, "row member"]:
    """V(s) of every member."""
    draws = keys.deal(key, "draw", DRAWS)
    return jnp.mean(jax.lax.map(lambda k: fqe.values(state, record.obs, k), draws), 0).T


def _next_value(state: fqe.State, key: Array, record: Record) -> Float[Array, "row"]:
    draws = keys.deal(key, "draw", DRAWS)
    return jnp.mean(jax.lax.map(lambda k: fqe.values(state, record.next_obs, k), draws), (0, 1))


def _both(
    state: fqe.State, key: Array, record: Record
) -> tuple[Float[Array, "row"], Float[Array, "row"]]:
    q = fqe.action_values(state, record.obs, record.action).mean(0)
    return q, _value(state, key, record).mean(1)
