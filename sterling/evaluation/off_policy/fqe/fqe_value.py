"""Run fitted Q evaluation on a dataset: the value with an interval, and Q for other estimators."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Key

from sterling import random_keys
from sterling.data import Dataset
from sterling.data.episode_returns import monte_carlo_returns, summarise_log
from sterling.evaluation.off_policy.episode_intervals import replicate_interval
from sterling.evaluation.off_policy.fqe import fqe, fqe_convergence
from sterling.evaluation.off_policy.log_rows import (
    first_rows,
    last_rows,
    map_rows,
    resample_counts,
    value_bounds,
)
from sterling.evaluation.off_policy.minibatch_fit import fit_minibatches
from sterling.evaluation.off_policy.policy_probabilities import Policy
from sterling.statistics import Estimate
from sterling.training.fields.config_fields import make_config
from sterling.types import Record

ACTION_SAMPLES = 16  # actions per state, for policies without probabilities


@dataclasses.dataclass(frozen=True)
class FittedQ:
    """A policy's Q, by several networks, each fitted to its own resample of the episodes."""

    state: fqe.State
    dataset: Dataset
    counts: Float[np.ndarray, "member episode"]
    key: Key[Array, ""]

    def estimate(self, level: float) -> Estimate:
        """Return the mean over members and start states, with an interval from the members' spread.

        Each member is averaged over the start states of its own resample. There is no interval if
        the fit has not converged.
        """
        each = self._values(first_rows(self.dataset))
        means = (each * self.counts).sum(1) / self.counts.sum(1)
        members, n = self.counts.shape
        what = f"fqe, {members} networks on resampled episodes (data and initialisation)"
        if members == 1 or n == 1:
            why = "one network" if members == 1 else "one episode"
            return Estimate(float(each.mean()), None, None, n, f"none ({why})", level)
        value, freedom = float(each.mean()), members - 1
        made = replicate_interval(value, means, n=n, level=level, what=what, freedom=freedom)
        return fqe_convergence.check_convergence(made, self.state, self.dataset, self.key)

    def final_values(self) -> Float[np.ndarray, "episode"]:
        """Return V of every episode's final observation."""
        return map_rows(
            _mean_next_value, self.dataset, self.state, self.key, index=last_rows(self.dataset)
        )

    def q_and_values(self) -> tuple[Float[np.ndarray, "row"], Float[np.ndarray, "row"]]:
        """Return Q(s, a) and V(s) of every row."""
        return map_rows(_q_and_value, self.dataset, self.state, self.key)

    def _values(self, index: np.ndarray) -> Float[np.ndarray, "member row"]:
        return map_rows(_member_values, self.dataset, self.state, self.key, index=index).T


def fit_q(
    policy: Policy | None, dataset: Dataset, *, gamma: float, seed: int = 0, **fields: Any
) -> FittedQ:
    """Fit a policy's Q (None: the behaviour policy's V) to a dataset; ``fields`` are those of
    ``fqe.Config``."""
    lived = monte_carlo_returns(dataset, gamma)
    known = {"middle": float(lived.mean()), "scale": float(lived.std()) or 1.0, "gamma": gamma}
    known["low"], known["high"] = value_bounds(dataset, gamma)
    config = make_config(fqe, {**known, **fields}, "fqe")
    n = int((dataset.lengths > 0).sum())
    random = np.random.default_rng(seed)
    counts = resample_counts(n, config.members, random)
    spec = dataclasses.replace(dataset.spec, log=summarise_log(dataset))
    start, rows, ask = random_keys.split(jax.random.key(seed), "fqe", 3)
    state = fqe.init(start, spec, config, policy)
    state, _ = fit_minibatches(
        fqe.learn,
        state,
        dataset,
        updates=config.updates,
        batch=config.batch,
        key=rows,
        counts=counts,
    )
    return FittedQ(state, dataset, counts, ask)


def _member_values(state: fqe.State, key: Array, record: Record) -> Float[Array, "row member"]:
    """Return V(s) of every member."""
    draws = random_keys.split(key, "draw", ACTION_SAMPLES)
    return jnp.mean(jax.lax.map(lambda k: fqe.values(state, record.obs, k), draws), 0).T


def _mean_next_value(state: fqe.State, key: Array, record: Record) -> Float[Array, "row"]:
    draws = random_keys.split(key, "draw", ACTION_SAMPLES)
    return jnp.mean(jax.lax.map(lambda k: fqe.values(state, record.next_obs, k), draws), (0, 1))


def _q_and_value(
    state: fqe.State, key: Array, record: Record
) -> tuple[Float[Array, "row"], Float[Array, "row"]]:
    q = fqe.action_values(state, record.obs, record.action).mean(0)
    return q, _member_values(state, key, record).mean(1)
