"""Dyna (Sutton 1990, "Integrated architectures for learning, planning, and reacting") from a log
alone: Q-learning on rollouts of a model that predicts reward, next observation and end.

    model       s' - s = d(s, a),   r = r(s, a),   P(end | s, a) = sigmoid(l(s, a))
    L_model     E_log[ |s' - s - d|^2 + (r - r(s, a))^2 ] + E_log[ -log P(end or not) ]
    rollouts    s_0 from the log; a epsilon-greedy; the rollout ends with probability P(end | s, a)
    planning    DQN's update on rollouts, of discount 1 - P(end | s, a), and on rows of the log

Observations and changes are in units of the log's deviations. The model is fitted first, then DQN
learns. Deviations: networks where Sutton has tables, a replay of model rollouts, no real steps.
Nothing keeps the policy near the log's. Two seeds reached 354 and 500 (random: 22) by

    sterling data make CartPole-v1 --quality random --size 5_000 --out data/random
    sterling train examples/methods/dyna_log.py CartPole-v1 --data data/random --updates 8_000
"""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Bool, Float, Key

from sterling import random_keys
from sterling.algorithms.online import dqn
from sterling.equations.masked_average import masked_mean
from sterling.field_types import Count, NotNegative, Share
from sterling.nets.mlp import MLP
from sterling.nets.optimiser import adam, descend
from sterling.types import Action, Dreams, Feed, Mistake, Needs, Obs, Record, Signals, Spec, config

checked_in = {"data": "random"}


@config
class Config(dqn.Config):
    """DQN's fields, with other defaults, and those of the model."""

    lr = 1e-3
    batch = 128
    width = 64
    target_period = 100
    double = True
    real: Share = 0.1  # share of each batch that is rows of the log
    horizon: Count = 5  # steps of a model rollout
    branches: Count = 20  # model rollouts started per iteration
    kept: Count = 20_000  # capacity for model-generated rows
    epsilon: Share = 0.2  # probability of a random action in model rollouts
    model_updates: Count = 3_000  # updates of the model, one an iteration, before those of DQN
    model_batch: Count = 128  # rows of the log per update of the model
    model_lr: NotNegative = 1e-3  # Adam's step size
    model_width: Count = 64  # units of each of the model's two hidden layers


class State(eqx.Module):
    """Everything that changes during training."""

    q: dqn.State
    model: MLP
    optimiser: optax.OptState
    mean: Float[Array, "features"]  # of the log's observations
    deviation: Float[Array, "features"]

    config = property(lambda self: self.q.config, doc="The settings, kept with DQN's state.")


def needs(config: Config) -> Needs:
    """Ask for rows of the log for the model, then for model rollouts and rows for DQN."""
    model = Feed(name="model", batch=config.model_batch, until=config.model_updates)
    dreams = Dreams(config.branches, config.horizon, config.kept, config.real)
    sizes = {"batch": config.batch, "updates": config.learn, "after": config.model_updates}
    planning = Feed("dream", dreams=dreams, **sizes)
    return Needs(1, (model, planning), config.capacity, config.warmup)


def init(key: Key[Array, ""], spec: Spec, config: Config) -> State:
    """Create an agent; observations must be vectors. Raise Mistake where there is no log."""
    if spec.log is None:
        raise Mistake("dyna_log learns from a log: give --data FILE and --updates N.")
    q, size = dqn.init(key, spec, config), spec.obs.shape[0]
    sizes = (size + q.net.actions.outputs, *(config.model_width,) * 2, size + 2)
    model = MLP.uniform(random_keys.fold(key, "model"), sizes, "relu")
    mean, deviation = jnp.asarray(spec.log.obs_mean), jnp.asarray(spec.log.obs_std) + 1e-6
    return State(q, model, adam().init(model), mean, deviation)


def act(
    state: State, obs: Obs, key: Key[Array, ""], explore: bool
) -> tuple[Action, dict[str, Array]]:
    """Return the best action; with ``explore`` sometimes a random one."""
    return dqn.act(state.q, obs, key, explore)


def value(state: State, obs: Obs) -> Float[Array, "env"]:
    """Return max_a Q(s, a)."""
    return dqn.value(state.q, obs)


def predict(state: State, model: MLP, obs: Obs, action: Action) -> tuple[Array, Array, Array]:
    """Return the change in deviations, the reward, and the logit of an end."""
    x = (obs - state.mean[None]) / state.deviation[None]
    out = model(jnp.concatenate([x, state.q.net.actions.encode(action)], -1))
    return out[..., :-2], out[..., -2], out[..., -1]


def learn_model(state: State, batch: Record, key: Key[Array, ""]) -> tuple[State, Signals]:
    """Update the model once on rows of the log ``(batch, ...)``."""
    moved = (batch.next_obs - batch.obs) / state.deviation[None]
    ended = (batch.discount == 0.0).astype(jnp.float32)

    def loss(model: MLP) -> tuple[Float[Array, ""], dict[str, Array]]:
        change, reward, logit = predict(state, model, batch.obs, batch.action)
        squared = jnp.square(moved - change).sum(-1) + jnp.square(batch.reward - reward)
        error = masked_mean(squared, batch.mask)
        end = masked_mean(optax.sigmoid_binary_cross_entropy(logit, ended), batch.mask)
        return error + end, {"model/error": error, "model/end": end}

    grads, metrics = jax.grad(loss, has_aux=True)(state.model)
    direction, optimiser = adam().update(grads, state.optimiser)
    model = descend(state.model, direction, state.config.model_lr)
    return State(state.q, model, optimiser, state.mean, state.deviation), Signals(metrics)


def imagine(
    state: State, rows: Record, valid: Bool[Array, "branch"], key: Key[Array, ""]
) -> Record:
    """Generate branches ``(time, branch, ...)`` of ``horizon`` steps from rows of the log."""

    def step(carry: tuple[Obs, Array], key: Key[Array, ""]) -> tuple[tuple[Obs, Array], Record]:
        obs, alive = carry
        best, _ = dqn.act(state.q, obs, key, False)
        draw = random_keys.split(key, "step", 3)
        other = jax.random.randint(draw[0], best.shape, 0, state.q.net.actions.outputs, best.dtype)
        explores = jax.random.uniform(draw[1], best.shape) < state.config.epsilon
        action = jnp.where(explores, other, best)
        change, reward, logit = predict(state, state.model, obs, action)
        after, end = obs + change * state.deviation[None], jax.nn.sigmoid(logit)
        over = jax.random.bernoulli(draw[2], end)
        made = Record(obs, action, reward, 1.0 - end, after, over, alive)
        return (after, alive & ~over), made

    keys = random_keys.split(key, "branches", state.config.horizon)
    return jax.lax.scan(step, (rows.obs, valid), keys)[1]


def learn(state: State, batch: Record, key: Key[Array, ""]) -> tuple[State, Signals]:
    """Update DQN once on model rollouts and rows of the log ``(batch, ...)``."""
    q, signals = dqn.learn(state.q, batch, key)
    return State(q, state.model, state.optimiser, state.mean, state.deviation), signals
