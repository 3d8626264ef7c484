"""Generative adversarial imitation learning (Ho 2016, arXiv:1606.03476): PPO whose reward is how
little a discriminator tells its rows from those of demonstrations.

    discriminator   L_D = E_own[ -log(1 - D(s, a)) ] + E_expert[ -log D(s, a) ] + c E[ |df/dx|^2 ]
    reward          r   = -log(1 - D(s, a))

D is the sigmoid of the network's output f. The true reward is never read. c weighs a penalty on the
gradient of f at mixtures of own and expert rows, which keeps D from telling them apart at once.

    sterling train examples/methods/gail.py CartPole-v1 --data expert.h5 --steps 100_000
"""

from __future__ import annotations

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, Key

from sterling import random_keys
from sterling.algorithms.online import ppo
from sterling.equations.discriminator import discriminator_loss, gradient_penalty
from sterling.field_types import Count, NotNegative
from sterling.nets.mlp import MLP
from sterling.nets.optimiser import adam, descend
from sterling.types import Action, Anywhere, Beside, Feed, Needs, Obs, Record, Signals, Spec, config


@config
class Config(ppo.Config):
    """PPO's fields, and those of the discriminator."""

    discriminator_lr: NotNegative = 3e-4  # Adam's step size
    discriminator_updates: Count = 10  # gradient steps per iteration
    discriminator_width: Count = 64  # units of each of its two hidden layers
    penalty: NotNegative = 1.0  # c: weight of the squared gradient
    demonstrations: Count = 512  # rows of the dataset per iteration


class State(eqx.Module):
    """Everything that changes during training."""

    policy: ppo.State
    discriminator: MLP
    optimiser: optax.OptState

    config = property(lambda self: self.policy.config, doc="The settings, kept with the policy.")


def needs(config: Config) -> Needs:
    """Ask for rollouts, with rows of the dataset beside them."""
    expert = Beside("expert", Anywhere(config.demonstrations), of="log")
    return Needs(config.length, (Feed("fresh", beside=(expert,)),))


def init(key: Key[Array, ""], spec: Spec, config: Config) -> State:
    """Create an agent; observations must be vectors."""
    policy = ppo.init(key, spec, config)
    inputs = spec.obs.shape[0] + policy.nets.actions.outputs
    sizes = (inputs, config.discriminator_width, config.discriminator_width, 1)
    net = MLP.uniform(random_keys.fold(key, "discriminator"), sizes, "tanh")
    return State(policy, net, adam().init(net))


def act(
    state: State, obs: Obs, key: Key[Array, ""], explore: bool
) -> tuple[Action, dict[str, Array]]:
    """Return what PPO returns."""
    return ppo.act(state.policy, obs, key, explore)


def value(state: State, obs: Obs) -> Float[Array, "..."]:
    """Return the critic's estimate of the sum of learned rewards."""
    return ppo.value(state.policy, obs)


def learn(state: State, batch: Record, key: Key[Array, ""]) -> tuple[State, Signals]:
    """Update the discriminator on a rollout and demonstrations, then PPO with its reward."""
    config, expert = state.config, batch.beside["expert"]
    own, theirs = _inputs(state, batch), _inputs(state, expert)

    def update(carry: tuple[MLP, optax.OptState], key: Key[Array, ""]) -> tuple[tuple, dict]:
        net, optimiser = carry
        drawn = jax.random.choice(random_keys.fold(key, "own"), own.shape[0], (len(theirs),))
        rows, mask = own[drawn], batch.mask.reshape(-1)[drawn]
        grads, metrics = jax.grad(discriminator_objective, has_aux=True)(
            net, (rows, theirs), (mask, expert.mask), config.penalty, key
        )
        direction, optimiser = adam().update(grads, optimiser)
        return (descend(net, direction, config.discriminator_lr), optimiser), metrics

    each = random_keys.split(key, "discriminator", config.discriminator_updates)
    begun = state.discriminator, state.optimiser
    (net, optimiser), metrics = jax.lax.scan(update, begun, each)
    reward = jax.nn.softplus(net(own)[..., 0]).reshape(batch.reward.shape)  # -log(1 - D)
    told = dataclasses.replace(batch, reward=jax.lax.stop_gradient(reward), beside={})
    policy, signals = ppo.learn(state.policy, told, key)
    own_metrics = {f"discriminator/{name}": x.mean() for name, x in metrics.items()}
    return State(policy, net, optimiser), Signals(signals.metrics | own_metrics)


def discriminator_objective(
    net: MLP,
    rows: tuple[Float[Array, "row inputs"], Float[Array, "row inputs"]],
    masks: tuple[Array, Array],
    penalty: Float[Array, ""] | float,
    key: Key[Array, ""],
) -> tuple[Float[Array, ""], dict[str, Array]]:
    """Return L_D of own rows and an expert's, and how often they are told right."""
    loss, right = discriminator_loss(*(net(x)[..., 0] for x in rows), *masks)
    steep = gradient_penalty(lambda x: net(x)[0], *rows, masks[0] & masks[1], key)
    return loss + penalty * steep, {"loss": loss, "accuracy": right}


def _inputs(state: State, rows: Record) -> Float[Array, "row inputs"]:
    """Return observations, normalised as PPO's are, beside actions."""
    obs = state.policy.obs_statistics(rows.obs)
    x = jnp.concatenate([obs, state.policy.nets.actions.encode(rows.action)], -1)
    return x.reshape(-1, x.shape[-1])
