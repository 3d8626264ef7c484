"""Learn a model of the world from a dataset, and simulate the policy in it (for vector
observations).

    model   s' - s, r ~ N(mu(s, a), sigma^2),    P(end | s, a) = sigmoid(l(s, a))
    loss    L = sum_m E[ c_m ( -log N(s' - s, r) - log P(end or not) ) ]
    value   V = mean over start states of sum_{t < H} gamma^t (prod_{k < t} (1 - P_k(end))) r_t

``members`` networks, each fitted to its own resample of the episodes (with counts c_m), as in
``fqe``; each is simulated on its own, so their spread shows what the data leaves uncertain. A
truncation is not an end. Predicted states and rewards are clipped to the range of the dataset:
errors accumulate with the horizon, and nothing else would bound them. (Chua 2018, arXiv:1805.12114,
whose networks also learn sigma for each state; Fu 2021, arXiv:2103.16596, compares such models as
estimators.)
"""

from __future__ import annotations

import dataclasses
import math
import sys
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Float, Key

from sterling import random_keys
from sterling.data import Dataset
from sterling.data.episode_returns import summarise_log
from sterling.equations.masked_average import masked_mean
from sterling.equations.model_error import StepPrediction, prediction_nll
from sterling.evaluation.off_policy.episode_intervals import replicate_interval
from sterling.evaluation.off_policy.log_rows import (
    first_rows,
    map_rows,
    resample_counts,
    value_bounds,
)
from sterling.evaluation.off_policy.minibatch_fit import fit_minibatches
from sterling.evaluation.off_policy.policy_probabilities import Policy
from sterling.field_types import Count, Depth, NotNegative
from sterling.nets.action_heads import Actions
from sterling.nets.dynamics_network import observation_size, prediction_target
from sterling.nets.ensemble import Ensemble
from sterling.nets.mlp import MLP
from sterling.nets.optimiser import adam, descend
from sterling.nets.running_statistics import ObsNormaliser
from sterling.statistics import Estimate
from sterling.training.fields.config_fields import make_config
from sterling.types import Obs, Record, Signals, config

MAX_STARTS = 512  # maximum number of start states for simulation
OMITTED_WEIGHT = 0.001  # gamma^H at the default horizon: the share that is left out
MAX_HORIZON = 1000  # maximum of the default horizon, in steps


@config
class Config:
    """Sizes follow Chua 2018, with fewer units."""

    lr: NotNegative = 1e-3  # Adam's step size at the start; falls linearly to 0
    updates: int = 5000  # planned
    batch: Count = 256  # transitions per update
    members: Count = 5  # networks
    width: Count = 128  # units per hidden layer
    depth: Depth = 2  # hidden layers


class DataRange(eqx.Module):
    """Ranges and moments in the dataset of what a model predicts: observation changes, and
    reward."""

    low: Float[Array, "n"]  # minimum of observations and reward
    high: Float[Array, "n"]
    mean: Float[Array, "n"]  # mean of observation changes and reward
    std: Float[Array, "n"]


class Network(eqx.Module):
    """The network of mu and l, and log sigma."""

    net: MLP
    log_std: Float[Array, "n"]

    def __call__(self, x: Float[Array, "row n"]) -> StepPrediction:
        """Return mu and log sigma, in units of the dataset's deviation, and l."""
        out = self.net(x)
        return StepPrediction(out[..., :-1], jnp.clip(self.log_std, -5.0, 2.0)[None], out[..., -1])


class State(eqx.Module):
    """All state that changes during learning."""

    nets: Network  # leaves (member, ...)
    optimiser: optax.OptState
    updates: Float[Array, ""]
    seen: ObsNormaliser
    range: DataRange
    actions: Actions = eqx.field(static=True)
    config: Config


def learn(state: State, batch: Record, key: Key[Array, ""]) -> tuple[State, Signals]:
    """Apply one update on transitions ``(batch, ...)``; ``extras["weight"]`` is ``(batch,
    member)``."""
    config = state.config
    grads, metrics = jax.grad(loss, has_aux=True)(state.nets, state, batch)
    direction, optimiser = adam().update(grads, state.optimiser)
    rate = config.lr * jnp.maximum(1.0 - state.updates / config.updates, 0.0)
    nets = descend(state.nets, direction, rate)
    made = eqx.tree_at(
        lambda s: (s.nets, s.optimiser, s.updates), state, (nets, optimiser, state.updates + 1.0)
    )
    return made, Signals(metrics)


def loss(nets: Network, state: State, batch: Record) -> tuple[Float[Array, ""], dict[str, Array]]:
    """Return L of the module docstring, and metrics."""
    wanted = (prediction_target(batch) - state.range.mean[None]) / state.range.std[None]
    x = _model_inputs(state, batch.obs, batch.action)

    def each(net: Network) -> Float[Array, "batch"]:
        return prediction_nll(net(x), wanted, batch.discount)

    found = eqx.filter_vmap(each)(nets)
    weight = jnp.broadcast_to(batch.extras["weight"].T, found.shape)
    total = masked_mean(weight * found, jnp.broadcast_to(batch.mask[None], found.shape))
    return total * found.shape[0], {"loss/model": total}


def estimate_value(
    policy: Policy,
    dataset: Dataset,
    *,
    gamma: float,
    level: float,
    seed: int,
    horizon: int | None = None,
    **fields: Any,
) -> Estimate:
    """Estimate the value of ``policy`` in models of the dataset; see
    :func:`sterling.evaluation.off_policy.estimate_policy_value`.

    ``horizon``: number of simulated steps; by default as many as leave out a thousandth of gamma's
    weight, at most 1000. What may lie beyond widens the interval, but is not in the value. Raises
    Mistake for observations that are not a vector of numbers.
    """
    config = make_config(sys.modules[__name__], fields, "model")
    if horizon is None:
        horizon = min(math.ceil(math.log(OMITTED_WEIGHT) / math.log(gamma)), MAX_HORIZON)
    n = int((dataset.lengths > 0).sum())
    random = np.random.default_rng(seed)
    counts = resample_counts(n, config.members, random)
    start, rows, dream = random_keys.split(jax.random.key(seed), "dynamics", 3)
    state, _ = fit_minibatches(
        learn,
        _init_state(start, dataset, config),
        dataset,
        updates=config.updates,
        batch=config.batch,
        key=rows,
        counts=counts,
    )
    chosen = random.permutation(n)[:MAX_STARTS]
    obs = dataset.transitions(first_rows(dataset)[chosen]).obs
    returns = _simulate_returns(state, policy, obs, dream, gamma=gamma, horizon=horizon)
    found = np.asarray(returns, np.float64)
    weight = np.maximum(counts[:, chosen], 1e-9)
    means = (found * weight).sum(1) / weight.sum(1)
    beyond = [gamma**horizon * bound for bound in value_bounds(dataset, gamma)]
    what = f"{config.members} models on resampled episodes, {horizon} simulated steps"
    if config.members == 1:
        return Estimate(float(found.mean()), None, None, n, "none (one model)", level)
    value, freedom = float(found.mean()), config.members - 1
    made = replicate_interval(value, means, n=n, level=level, what=what, freedom=freedom)
    return _allow_for_horizon(made, *beyond)


def _allow_for_horizon(made: Estimate, low: float, high: float) -> Estimate:
    """Widen the interval by the smallest and largest possible value beyond the horizon."""
    if made.low is None or made.high is None:
        return made
    return dataclasses.replace(made, low=made.low + low, high=made.high + high)


def _init_state(key: Key[Array, ""], dataset: Dataset, config: Config) -> State:
    width = observation_size(dataset.spec.obs, "Use fqe.")
    actions = Actions.from_space(dataset.spec.action)
    spec = dataclasses.replace(dataset.spec, log=summarise_log(dataset))
    sizes = (width + actions.outputs, *(config.width,) * config.depth, width + 2)

    def one(key: Key[Array, ""]) -> Network:
        return Network(MLP.uniform(key, sizes, "silu"), jnp.zeros(width + 1))

    nets = Ensemble.create(key, config.members, one).nets
    seen = ObsNormaliser.of_log(spec)
    return State(
        nets, adam().init(nets), jnp.zeros(()), seen, _data_range(dataset), actions, config
    )


def _data_range(dataset: Dataset) -> DataRange:
    obs, reward, made = map_rows(_range_arrays, dataset)
    both = np.concatenate([obs, reward[:, None]], 1)
    parts = both.min(0), both.max(0), made.mean(0), made.std(0) + 1e-6
    return DataRange(*(jnp.asarray(part, jnp.float32) for part in parts))


def _range_arrays(record: Record) -> tuple[Array, Array, Array]:
    return record.next_obs, record.reward, prediction_target(record)


def _model_inputs(state: State, obs: Obs, action: Any) -> Float[Array, "row n"]:
    return jnp.concatenate([state.seen(obs), state.actions.encode(action)], -1)


@eqx.filter_jit
def _simulate_returns(
    state: State, policy: Policy, obs: Obs, key: Key[Array, ""], *, gamma: float, horizon: int
) -> Float[Array, "member start"]:
    """Simulate the policy, and return each member's discounted return from every start state."""
    ranges = state.range

    def one(net: Network, key: Key[Array, ""]) -> Float[Array, "start"]:
        def step(carry: tuple[Array, Array], at: Array) -> tuple[tuple[Array, Array], Array]:
            obs, alive = carry
            action = policy.sample(obs, random_keys.fold(key, "act", at))
            mean, log_std, logit = net(_model_inputs(state, obs, action))
            noise = jax.random.normal(random_keys.fold(key, "noise", at), mean.shape)
            drawn = mean + jnp.exp(log_std) * noise
            made = drawn * ranges.std[None] + ranges.mean[None]
            reward = jnp.clip(made[:, -1], ranges.low[-1], ranges.high[-1])
            moved = jnp.clip(obs + made[:, :-1], ranges.low[None, :-1], ranges.high[None, :-1])
            return (moved, alive * gamma * jax.nn.sigmoid(-logit)), alive * reward

        steps = jnp.arange(horizon, dtype=jnp.int32)
        return jax.lax.scan(step, (obs, jnp.ones(obs.shape[0])), steps)[1].sum(0)

    members = random_keys.split(key, "member", state.config.members)
    return eqx.filter_vmap(one)(state.nets, members)
