"""Diversity is all you need (Eysenbach 2019, arXiv:1802.06070): SAC learns skills that a
discriminator tells apart by the states they lead to, without the world's reward.

    reward   r = log q(z | s') - log p(z),     z uniform among ``skills``, one for each episode

The skill is the memory of an episode; the policy and the critics see it beside the observation.

    sterling train examples/methods/diayn.py Pendulum-v1 --steps 10_000
"""

from __future__ import annotations

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from gymnasium import spaces
from jaxtyping import Array, Float, Int, Key

from sterling import random_keys
from sterling.actor import Past
from sterling.algorithms.online import sac
from sterling.equations.masked_average import masked_mean
from sterling.field_types import Count, NotNegative
from sterling.nets.mlp import MLP
from sterling.nets.optimiser import adam, descend
from sterling.types import Action, Needs, Obs, Record, Signals, Spec, config


@config
class Config(sac.Config):
    """SAC's fields, and those of the skills."""

    skills: Count = 8  # number of skills
    discriminator_lr: NotNegative = 3e-4  # Adam's step size
    discriminator_width: Count = 128  # units of each of its two hidden layers


class State(eqx.Module):
    """Everything that changes during training."""

    policy: sac.State
    discriminator: MLP
    optimiser: optax.OptState

    config = property(lambda self: self.policy.config, doc="The settings, kept with the policy.")


def needs(config: Config) -> Needs:
    """Ask for SAC's rows of the replay, with the skill that each was acted by."""
    asked = sac.needs(config)
    return Needs(asked.collect, asked.feeds, asked.capacity, asked.warmup, keep=("skill",))


def init(key: Key[Array, ""], spec: Spec, config: Config) -> State:
    """Create an agent; observations must be vectors."""
    size = spec.obs.shape[0]
    wide = spaces.Box(-np.inf, np.inf, (size + config.skills,), np.float32)
    width = config.discriminator_width
    net_key = random_keys.fold(key, "discriminator")
    net = MLP.uniform(net_key, (size, width, width, config.skills), "relu")
    policy = sac.init(key, dataclasses.replace(spec, obs=wide), config)
    return State(policy, net, adam().init(net))


def memory(state: State, envs: int, key: Key[Array, ""]) -> Int[Array, "env"]:
    """Draw the skills of new episodes."""
    return jax.random.randint(key, (envs,), 0, state.config.skills, jnp.int32)


def recall(
    state: State, past: Past, obs: Obs, key: Key[Array, ""], explore: bool
) -> tuple[Action, Int[Array, "env"], dict[str, Array]]:
    """Return SAC's action for the episode's skill."""
    skill = past.memory
    action, _ = sac.act(state.policy, with_skill(state, obs, skill), key, explore)
    return action, skill, {"skill": skill}


def learn(state: State, batch: Record, key: Key[Array, ""]) -> tuple[State, Signals]:
    """Update the discriminator and SAC once on rows of the replay."""
    skill, config = batch.extras["skill"], state.config

    def loss(net: MLP) -> tuple[Float[Array, ""], Array]:
        log_q = jax.nn.log_softmax(net(batch.next_obs))
        own = jnp.take_along_axis(log_q, skill[:, None], -1)[:, 0]
        return -masked_mean(own, batch.mask), own

    (value, own), grads = jax.value_and_grad(loss, has_aux=True)(state.discriminator)
    direction, optimiser = adam().update(grads, state.optimiser)
    net = descend(state.discriminator, direction, config.discriminator_lr)
    obs, next_obs = (with_skill(state, x, skill) for x in (batch.obs, batch.next_obs))
    reward = jax.lax.stop_gradient(own + np.log(config.skills))
    told = dataclasses.replace(batch, obs=obs, next_obs=next_obs, reward=reward)
    policy, signals = sac.learn(state.policy, told, key)
    found = {"skills/loss": value, "skills/reward": masked_mean(reward, batch.mask)}
    return State(policy, net, optimiser), Signals(signals.metrics | found, signals.samples)


def with_skill(state: State, obs: Obs, skill: Int[Array, "row"]) -> Float[Array, "row features"]:
    """Return observations beside their skills, one of ``skills`` numbers 1."""
    return jnp.concatenate([obs, jax.nn.one_hot(skill, state.config.skills)], -1)
