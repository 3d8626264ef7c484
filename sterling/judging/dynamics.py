"""The world learned from a log, and the policy tried out in it (for vectors of observations).

    model   s' - s, r ~ N(mu(s, a), sigma^2),    P(end | s, a) = sigmoid(l(s, a))
    loss    L = sum_m E[ c_m ( -log N(s' - s, r) - log P(end or not) ) ]
    value   V = mean over start states of sum_{t < H} gamma^t (prod_{k < t} (1 - P_k(end))) r_t

``members`` networks, each from its own resample of the episodes (c_m of them), as in ``fqe``; every
one is tried out on its own, so their spread shows what the log leaves open. A cut is no end. States
and rewards that a model dreams up stay within the range the log has seen: errors add up with the
horizon, and nothing else would stop them. (Chua 2018, arXiv:1805.12114, whose networks also learn
sigma for each state; Fu 2021, arXiv:2103.16596, compares such models as estimators.)
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

from sterling import keys
from sterling.data import Dataset
from sterling.data.returns import summary
from sterling.equations.average import masked_mean
from sterling.equations.dynamics import Foretold, surprise
from sterling.field_types import Count, Depth, NotNegative
from sterling.judging.fit import fit
from sterling.judging.interval import spread
from sterling.judging.policies import Policy
from sterling.judging.rows import bounds, over_rows, starts
from sterling.nets.dynamics import numbers, outcome
from sterling.nets.heads import Actions
from sterling.nets.mlp import MLP
from sterling.nets.normalise import ObsNormaliser
from sterling.nets.optimiser import adam, descend
from sterling.statistics import Estimate
from sterling.training.fields import make_config
from sterling.types import Obs, Record, Signals, config

STARTS = 512  # start states that the policy is tried out from, at most
REST = 0.001  # gamma^H at the default horizon: what is left out, as a share
LONGEST = 1000  # steps of a default horizon


@config
class Config:
    """Sizes after Chua 2018, with fewer units."""

    lr: NotNegative = 1e-3  # Adam's step size at the start; falls linearly to 0
    updates: int = 5000  # planned
    batch: Count = 256  # transitions per update
    members: Count = 5  # networks
    width: Count = 128  # units per hidden layer
    depth: Depth = 2  # hidden layers


class Range(eqx.Module):
    """What the log has seen of what a model predicts: changes of the observation, and reward."""

    low: Float[Array, "n"]  # of observations and reward
    high: Float[Array, "n"]
    mean: Float[Array, "n"]  # of changes and reward
    std: Float[Array, "n"]


class Network(eqx.Module):
    """mu, l and log sigma."""

    net: MLP
    log_std: Float[Array, "n"]

    def __call__(self, x: Float[Array, "row n"]) -> Foretold:
        """mu and log sigma in units of the log's deviation, and l."""
        out = self.net(x)
        return Foretold(out[..., :-1], jnp.clip(self.log_std, -5.0, 2.0)[None], out[..., -1])


class State(eqx.Module):
    """Everything that changes."""

    nets: Network  # leaves (member, ...)
    optimiser: optax.OptState
    updates: Float[Array, ""]
    seen: ObsNormaliser
    range: Range
    actions: Actions = eqx.field(static=True)
    config: Config


def learn(state: State, batch: Record, key: Key[Array, ""]) -> tuple[State, Signals]:
    """One update on transitions ``(batch, ...)``; ``extras["weight"]`` is ``(batch, member)``."""
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
    """L of the module docstring."""
    wanted = (outcome(batch) - state.range.mean[None]) / state.range.std[None]
    x = _inputs(state, batch.obs, batch.action)

    def each(net: Network) -> Float[Array, "batch"]:
        return surprise(net(x), wanted, batch.discount)

    found = eqx.filter_vmap(each)(nets)
    weight = jnp.broadcast_to(batch.extras["weight"].T, found.shape)
    total = masked_mean(weight * found, jnp.broadcast_to(batch.mask[None], found.shape))
    return total * found.shape[0], {"loss/model": total}


def judged(
    policy: Policy,
    dataset: Dataset,
    *,
    gamma: float,
    level: float,
    seed: int,
    horizon: int | None = None,
    **fields: Any,
) -> Estimate:
    """The value of ``policy`` in models of the log; see :func:`sterling.judging.judge`.

    ``horizon``: steps tried out; by default as many as leave out a thousandth of gamma's weight, at
    most 1000. What may lie beyond is within the interval, not in the value. Raises Mistake for
    observations that are no vector of numbers.
    """
    config = make_config(sys.modules[__name__], fields, "model")
    if horizon is None:
        horizon = min(math.ceil(math.log(REST) / math.log(gamma)), LONGEST)
    n = int((dataset.lengths > 0).sum())
    random = np.random.default_rng(seed)
    counts = random.multinomial(n, np.full(n, 1 / n), config.members).astype(float)
    if config.members == 1 or n == 1:
        counts = np.ones((config.members, n))
    start, rows, dream = keys.deal(jax.random.key(seed), "dynamics", 3)
    state, _ = fit(
        learn,
        _fresh(start, dataset, config),
        dataset,
        updates=config.updates,
        batch=config.batch,
        key=rows,
        counts=counts,
    )
    chosen = random.permutation(n)[:STARTS]
    obs = dataset.transitions(starts(dataset)[chosen]).obs
    found = np.asarray(_tried(state, policy, obs, dream, gamma=gamma, horizon=horizon), np.float64)
    weight = np.maximum(counts[:, chosen], 1e-9)
    means = (found * weight).sum(1) / weight.sum(1)
    beyond = [gamma**horizon * bound for bound in bounds(dataset, gamma)]
    what = f"{config.members} models on resampled episodes, {horizon} steps tried out"
    if config.members == 1:
        return Estimate(float(found.mean()), None, None, n, "none (one model)", level)
    freedom = config.members - 1
    made = spread(float(found.mean()), means, n=n, level=level, what=what, freedom=freedom)
    return _widened(made, *beyond)


def _widened(made: Estimate, low: float, high: float) -> Estimate:
    """An interval that also holds what lies beyond the horizon."""
    if made.low is None or made.high is None:
        return made
    return dataclasses.replace(made, low=made.low + low, high=made.high + high)


def _fresh(key: Key[Array, ""], dataset: Dataset, config: Config) -> State:
    width = numbers(dataset.spec.obs, "take fqe")
    actions = Actions.of(dataset.spec.action)
    spec = dataclasses.replace(dataset.spec, log=summary(dataset))
    sizes = (width + actions.outputs, *(config.width,) * config.depth, width + 2)

    def one(key: Key[Array, ""]) -> Network:
        return Network(MLP.uniform(key, sizes, "silu"), jnp.zeros(width + 1))

    nets = eqx.filter_vmap(one)(keys.deal(key, "member", config.members))
    seen = ObsNormaliser.of_log(spec)
    return State(nets, adam().init(nets), jnp.zeros(()), seen, _range(dataset), actions, config)


def _range(dataset: Dataset) -> Range:
    obs, reward, made = over_rows(_seen, dataset)
    both = np.concatenate([obs, reward[:, None]], 1)
    parts = both.min(0), both.max(0), made.mean(0), made.std(0) + 1e-6
    return Range(*(jnp.asarray(part, jnp.float32) for part in parts))


def _seen(record: Record) -> tuple[Array, Array, Array]:
    return record.next_obs, record.reward, outcome(record)


def _inputs(state: State, obs: Obs, action: Any) -> Float[Array, "row n"]:
    return jnp.concatenate([state.seen(obs), state.actions.codes(action)], -1)


@eqx.filter_jit
def _tried(
    state: State, policy: Policy, obs: Obs, key: Key[Array, ""], *, gamma: float, horizon: int
) -> Float[Array, "member start"]:
    """Each member's discounted return from every start."""
    ranges = state.range

    def one(net: Network, key: Key[Array, ""]) -> Float[Array, "start"]:
        def step(carry: tuple[Array, Array], at: Array) -> tuple[tuple[Array, Array], Array]:
            obs, alive = carry
            action = policy.sample(obs, keys.fold(key, "act", at))
            mean, log_std, logit = net(_inputs(state, obs, action))
            noise = jax.random.normal(keys.fold(key, "noise", at), mean.shape)
            drawn = mean + jnp.exp(log_std) * noise
            made = drawn * ranges.std[None] + ranges.mean[None]
            reward = jnp.clip(made[:, -1], ranges.low[-1], ranges.high[-1])
            moved = jnp.clip(obs + made[:, :-1], ranges.low[None, :-1], ranges.high[None, :-1])
            return (moved, alive * gamma * jax.nn.sigmoid(-logit)), alive * reward

        steps = jnp.arange(horizon, dtype=jnp.int32)
        return jax.lax.scan(step, (obs, jnp.ones(obs.shape[0])), steps)[1].sum(0)

    members = keys.deal(key, "member", state.config.members)
    return eqx.filter_vmap(one)(state.nets, members)
