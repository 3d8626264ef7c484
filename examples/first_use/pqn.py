"""PQN (Gallici 2024, arXiv:2407.04811): Q-learning on fresh rollouts, without replay or targets.

    G_t  = r_t + g_t ( lam G_{t+1} + (1 - lam) max_a Q(s_{t+1}, a) )          Q(lambda) returns
    loss = 1/2 E[ (Q(s_t, a_t) - G_t)^2 ]

Layer normalisation keeps Q stable. `sterling check examples/first_use/pqn.py` checks this file.
"""

from __future__ import annotations

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp

from sterling import random_keys
from sterling.equations.masked_average import masked_mean
from sterling.equations.minibatches import minibatch_indices
from sterling.equations.returns import continues
from sterling.field_types import Count, Limit, NotNegative, Share
from sterling.nets.action_heads import Actions
from sterling.nets.mlp import MLP
from sterling.nets.obs_encoder import Encoder
from sterling.nets.optimiser import adam, descend
from sterling.types import Mistake, Rollouts, Signals, config


@config
class Config:
    """Settings; each is an option of `sterling train examples/first_use/pqn.py`."""

    lr: NotNegative = 1e-3  # Adam's step size, falling to 0 over the run
    gamma: Share = 0.99  # discount per step
    lam: Share = 0.65  # lambda of the returns
    epsilon: Share = 0.05  # exploration at the end of its decay
    decay: Share = 0.2  # share of the run over which exploration decays from 1
    max_grad_norm: Limit = 10.0  # gradients are clipped to this global norm
    length: Count = 32  # steps of each env per iteration
    minibatch: Count = 64  # rows per update
    epochs: Count = 2  # passes over a rollout
    width: Count = 64  # units of each of the two hidden layers


class State(eqx.Module):
    """Everything that changes during training."""

    encoder: Encoder
    q: MLP
    optimiser: Any
    iteration: jax.Array  # rollouts learned from
    planned: jax.Array  # rollouts planned
    config: Config
    actions: Actions = eqx.field(static=True)


def needs(config):
    """Ask for fresh rollouts of ``length`` steps of each env."""
    return Rollouts(config.length)


def init(key, spec, config):
    """Create an agent, for Discrete actions."""
    actions = Actions.from_space(spec.action)
    if actions.kind != "discrete":
        raise Mistake(f"pqn needs Discrete actions, not {spec.action}. Use ppo or sac.")
    encoder = Encoder.create(random_keys.fold(key, "encoder"), spec.obs)
    sizes = (encoder.size, config.width, config.width, actions.outputs)
    q = MLP.uniform(random_keys.fold(key, "q"), sizes, layer_norm=True)
    planned = jnp.asarray(float(spec.iterations))
    return State(encoder, q, adam().init((encoder, q)), jnp.zeros(()), planned, config, actions)


def act(state, obs, key, explore):
    """Return the best actions, with ``explore`` random ones with probability epsilon."""
    values = state.q(state.encoder(obs))
    best = values.argmax(-1)
    if not explore:
        return state.actions.shaped(best), {}
    config, done = state.config, state.iteration / state.planned
    chance = jnp.maximum(config.epsilon, 1.0 - done / jnp.maximum(config.decay, 1e-6))
    which, what = random_keys.split(key, "explore", 2)
    other = jax.random.randint(what, best.shape, 0, values.shape[-1], best.dtype)
    explored = jnp.where(jax.random.uniform(which, best.shape) < chance, other, best)
    return state.actions.shaped(explored), {}


def value(state, obs):
    """Return max_a Q(s, a)."""
    return state.q(state.encoder(obs)).max(-1)


def returns(state, batch):
    """Return G of the rollout's rows, ``(time, env)``; where row t+1 does not continue row t, the
    return bootstraps from the true successor."""
    config = state.config
    ahead = value(state, batch.next_obs)
    goes_on = continues(batch.last, batch.mask)

    def back(after, row):
        reward, discount, bootstrap, on = row
        mixed = config.lam * after + (1.0 - config.lam) * bootstrap
        total = reward + config.gamma * discount * jnp.where(on, mixed, bootstrap)
        return total, total

    rows = (batch.reward, batch.discount, ahead, goes_on)
    return jax.lax.scan(back, ahead[-1], rows, reverse=True)[1]


def learn(state, batch, key):
    """Make several epochs of minibatch updates on one rollout ``(time, env, ...)``."""
    config = state.config
    rows = {"obs": batch.obs, "target": returns(state, batch), "mask": batch.mask}
    rows["action"] = state.actions.flat(batch.action)
    rows = jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), rows)
    lr = config.lr * (1.0 - state.iteration / state.planned)

    def loss(nets, part):
        encoder, q = nets
        chosen = jnp.take_along_axis(q(encoder(part["obs"])), part["action"][..., None], -1)[..., 0]
        return masked_mean(0.5 * jnp.square(chosen - part["target"]), part["mask"])

    def update(carry, index):
        nets, optimiser = carry
        part = jax.tree.map(lambda x: x[index], rows)
        part["mask"] &= index >= 0  # the last minibatch of an epoch may be padded
        error, grads = jax.value_and_grad(loss)(nets, part)
        direction, optimiser = adam(max_norm=config.max_grad_norm).update(grads, optimiser)
        return (descend(nets, direction, lr), optimiser), error

    order = minibatch_indices(key, rows["mask"].size, config.minibatch, config.epochs)
    start = ((state.encoder, state.q), state.optimiser)
    ((encoder, q), optimiser), errors = jax.lax.scan(update, start, order)
    made = (encoder, q, optimiser, state.iteration + 1.0, state.planned, config, state.actions)
    return State(*made), Signals({"loss/q": errors.mean()})
