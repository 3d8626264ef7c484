"""Discriminator-actor-critic (Kostrikov 2019, arXiv:1809.02925): SAC with the reward of a
discriminator of its replay and of demonstrations, which tells a state after the end apart too.

    discriminator   L_D = E_replay[ -log(1 - D) ] + E_expert[ -log D ] + c E[ (|f'(x)| - 1)^2 ]
    reward          r   = log D(x) - log(1 - D(x)) = f(x),    D(x) = sigmoid(f(x))
    inputs          x   = (s, a, 0), or (0, 0, 1) after an end

A termination is followed, for ever, by the absorbing state (0, 0, 1), whose reward is learned as
any: the value after an end is f(0, 0, 1) / (1 - gamma). So it is neither good nor bad to end.

    sterling train examples/methods/dac.py Pendulum-v1 --data data/expert --steps 10_000
"""

from __future__ import annotations

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Bool, Float, Key

from sterling import random_keys
from sterling.algorithms.online import sac
from sterling.equations.discriminator import discriminator_loss, gradient_penalty
from sterling.field_types import Count, NotNegative
from sterling.nets.mlp import MLP
from sterling.nets.optimiser import adam, descend
from sterling.types import Action, Anywhere, Beside, Needs, Obs, Record, Signals, Spec, config


@config
class Config(sac.Config):
    """SAC's fields, and those of the discriminator."""

    discriminator_lr: NotNegative = 1e-3  # Adam's step size
    discriminator_width: Count = 100  # units of each of its two hidden layers
    penalty: NotNegative = 10.0  # c: weight of the squared gradient


class State(eqx.Module):
    """Everything that changes during training."""

    policy: sac.State
    discriminator: MLP
    optimiser: optax.OptState

    config = property(lambda self: self.policy.config, doc="The settings, kept with the policy.")


def needs(config: Config) -> Needs:
    """Ask for SAC's rows of the replay, with as many of the dataset beside them."""
    asked = sac.needs(config)
    expert = Beside("expert", Anywhere(config.batch), of="log")
    feeds = tuple(dataclasses.replace(feed, beside=(expert,)) for feed in asked.feeds)
    return Needs(asked.collect, feeds, asked.capacity, asked.warmup)


def init(key: Key[Array, ""], spec: Spec, config: Config) -> State:
    """Create an agent; observations must be vectors."""
    policy = sac.init(key, spec, config)
    inputs = spec.obs.shape[0] + policy.actor.actions.outputs + 1
    sizes = (inputs, config.discriminator_width, config.discriminator_width, 1)
    net = MLP.uniform(random_keys.fold(key, "discriminator"), sizes, "tanh")
    return State(policy, net, adam().init(net))


def act(
    state: State, obs: Obs, key: Key[Array, ""], explore: bool
) -> tuple[Action, dict[str, Array]]:
    """Return what SAC returns."""
    return sac.act(state.policy, obs, key, explore)


def learn(state: State, batch: Record, key: Key[Array, ""]) -> tuple[State, Signals]:
    """Update the discriminator on rows of the replay and of the dataset, then SAC."""
    expert = batch.beside["expert"]
    own, theirs = (inputs(state, x) for x in (batch, expert))
    grads, metrics = jax.grad(discriminator_objective, has_aux=True)(
        state.discriminator, own, theirs, state.config.penalty, key
    )
    direction, optimiser = adam().update(grads, state.optimiser)
    net = descend(state.discriminator, direction, state.config.discriminator_lr)
    now, after = jnp.split(net(own[0])[..., 0], 2)
    after /= 1.0 - state.config.gamma  # the absorbing state's value
    reward = now + state.config.gamma * (1.0 - batch.discount) * after
    told = dataclasses.replace(batch, reward=jax.lax.stop_gradient(reward), beside={})
    policy, signals = sac.learn(state.policy, told, key)
    found = {f"discriminator/{name}": x for name, x in metrics.items()}
    return State(policy, net, optimiser), Signals(signals.metrics | found, signals.samples)


def discriminator_objective(
    net: MLP,
    own: tuple[Float[Array, "row inputs"], Bool[Array, "row"]],
    expert: tuple[Float[Array, "row inputs"], Bool[Array, "row"]],
    penalty: Float[Array, ""] | float,
    key: Key[Array, ""],
) -> tuple[Float[Array, ""], dict[str, Array]]:
    """Return L_D of own rows and an expert's, and how often they are told right."""
    (x, mask), (y, counts) = own, expert
    loss, right = discriminator_loss(net(x)[..., 0], net(y)[..., 0], mask, counts)
    steep = gradient_penalty(lambda x: net(x)[0], x, y, mask & counts, key, slope=1.0)
    return loss + penalty * steep, {"loss": loss, "accuracy": right}


def inputs(state: State, rows: Record) -> tuple[Float[Array, "row inputs"], Bool[Array, "row"]]:
    """Return x of all rows and then of the states after them, and which of those are: rows that
    count, and the absorbing state after those that end."""
    action = state.policy.actor.actions.encode(rows.action)
    x = jnp.concatenate([rows.obs, action, jnp.zeros_like(action[..., :1])], -1)
    ended = jnp.zeros_like(x).at[:, -1].set(1.0)
    both = rows.mask, rows.mask & (rows.discount == 0.0)
    return jnp.concatenate([x, ended]), jnp.concatenate(both)
