"""Advantage-weighted actor-critic (Nair 2020, arXiv:2006.09359), offline and for fine-tuning.

    value       V(s)  = E_a[ min_i Q_i(s, a) ],                       a ~ pi(.|s)
    target      y     = r + g V'(s')
    critics     L_Q   = 1/2 sum_i E[ (Q_i(s, a) - y)^2 ]
    actor       L_pi  = -E[ w log pi(a|s) ],    w = min(exp((min_i Q_i(s, a) - V(s)) / lambda), W)

g is gamma times the environment's discount; V' uses target critics that follow at rate ``tau`` per
update. The policy only imitates actions that were taken, the better ones more: it needs no model of
the behaviour policy, and can continue to learn from its own steps. Continuous actions: pi is a
normal, E_a one sample. Discrete actions: pi is categorical and E_a an exact sum.

Deviations from the paper: weights are clipped at W and not divided by their sum over the batch, so
lambda means the same in every batch; the normal's mean is a tanh and its samples are clipped to the
action space; images are encoded by one torso that only the critics' loss trains. The authors'
examples for MuJoCo (github.com/rail-berkeley/rlkit) also use policies of four hidden layers, with a
weight decay of 1e-4 and log deviations in (-6, 0); this file does not.
Evidence: benchmarks/results/offline.md.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, Key

from sterling import random_keys
from sterling.algorithms.online.sac import critic_loss
from sterling.equations.masked_average import masked_mean
from sterling.equations.polyak import polyak
from sterling.equations.regression_losses import advantage_weight
from sterling.equations.value_losses import q_of_action, td_target
from sterling.field_types import (
    Activation,
    Count,
    Depth,
    Limit,
    NotNegative,
    Positive,
    Share,
    Sizes,
    Whole,
)
from sterling.nets.action_heads import OFFLINE, supported_actions
from sterling.nets.distributions import Categorical
from sterling.nets.imitation_policy import Policy
from sterling.nets.obs_encoder import Encoder
from sterling.nets.optimiser import adam, descend
from sterling.nets.q_ensemble import TwinCritics
from sterling.nets.running_statistics import ObsNormaliser
from sterling.types import Action, Obs, Record, Signals, Spec, Transitions, config


@config
class Config:
    """Defaults are those of the paper's table 4, as far as it gives them."""

    lr: NotNegative = 3e-4  # Adam's step size, for critics and actor
    gamma: Share = 0.99  # discount per step
    tau: Share = 0.005  # rate at which target critics follow, per update
    temperature: Positive = 1.0  # lambda, in units of returns: small is greedy, large imitates
    most: Limit = 100.0  # W: upper bound of the advantage weights (customary)
    batch: Count = 1024  # transitions per update
    collect: Count = 1  # steps of each env per iteration of the online phase
    learn: Count = 1  # updates per iteration
    capacity: Count = 1_000_000  # replay capacity in transitions, per seed (online phase)
    warmup: Whole = 0  # steps before the first update of the online phase
    normalise_obs: bool = False  # normalise observations by the dataset's mean and deviation
    width: Sizes = 256  # units per hidden layer, or of each layer such as 400,300
    depth: Depth = 2  # hidden layers, for vectors (after convolutions: one)
    activation: Activation = "relu"  # tanh, relu, silu, elu or gelu
    layer_norm: bool = False  # normalise the critics' hidden layers


class State(eqx.Module):
    """Everything that changes during training."""

    actor: Policy
    critics: TwinCritics
    target: TwinCritics
    normaliser: ObsNormaliser
    critic_optimiser: optax.OptState
    actor_optimiser: optax.OptState
    config: Config


def needs(config: Config) -> Transitions:
    """Ask for single transitions, drawn uniformly."""
    return Transitions(config.batch, config.collect, config.learn, config.capacity, config.warmup)


def init(key: Key[Array, ""], spec: Spec, config: Config) -> State:
    """Create an agent. Raises :class:`Mistake` for actions that are neither a Box nor Discrete."""
    actions = supported_actions("awac", spec.action, ("box", "discrete"), OFFLINE)
    torso = Encoder.create(random_keys.fold(key, "torso"), spec)
    hidden = torso.hidden_sizes(config.width, config.depth)
    actor_key, critic_key = (random_keys.fold(key, name) for name in ("actor", "critics"))
    how, norm = config.activation, config.layer_norm
    actor = Policy.create(actor_key, (torso.size, *hidden), actions, activation=how)
    sizes = actions.critic_sizes
    critics = TwinCritics.create(critic_key, torso, hidden, *sizes, layer_norm=norm, activation=how)
    return State(
        actor,
        critics,
        jax.tree.map(jnp.copy, critics),
        ObsNormaliser.of_log(spec, config.normalise_obs),
        adam().init(critics),
        adam().init(actor),
        config,
    )


def act(
    state: State, obs: Obs, key: Key[Array, ""], explore: bool
) -> tuple[Action, dict[str, Array]]:
    """Return a sample of the policy, or its mode without ``explore``, in the space's own shape."""
    obs = state.normaliser(obs)
    return state.actor.act(obs, state.critics.torso(obs), key, explore), {}


def log_prob(state: State, obs: Obs, action: Action) -> Float[Array, "..."]:
    """Return log pi(a|s) of actions in the form that ``act`` returns."""
    obs = state.normaliser(obs)
    return state.actor.log_prob(obs, state.critics.torso(obs), action)


def value(state: State, obs: Obs) -> Float[Array, "env"]:
    """Return the smaller critic's value of the policy's mode (discrete: its mean value)."""
    obs = state.normaliser(obs)
    pi = state.actor(obs, state.critics.torso(obs))
    if isinstance(pi, Categorical):
        return policy_value(pi, state.critics, obs, jax.random.key(0))
    return jnp.minimum(*state.critics.q_values(obs, pi.mode()))


def learn(state: State, batch: Record, key: Key[Array, ""]) -> tuple[State, Signals]:
    """Update critics and actor once on transitions ``(batch, ...)``."""
    config, batch = state.config, state.normaliser.batch(batch)

    y = target(state, batch, random_keys.fold(key, "next"))
    grads, (metrics, error) = jax.grad(critic_loss, has_aux=True)(state.critics, batch, y)
    direction, critic_optimiser = adam().update(grads, state.critic_optimiser)
    critics = descend(state.critics, direction, config.lr)

    weight = policy_weights(state.actor, critics, batch, config, random_keys.fold(key, "now"))
    grads, policy_metrics = jax.grad(actor_loss, has_aux=True)(state.actor, critics, batch, weight)
    direction, actor_optimiser = adam().update(grads, state.actor_optimiser)
    actor = descend(state.actor, direction, config.lr)

    learned = dataclasses.replace(
        state,
        actor=actor,
        critics=critics,
        target=polyak(state.target, critics, config.tau),
        critic_optimiser=critic_optimiser,
        actor_optimiser=actor_optimiser,
    )
    return learned, Signals({**metrics, **policy_metrics}, {"td_error": error})


def target(state: State, batch: Record, key: Key[Array, ""]) -> Float[Array, "batch"]:
    """Return the targets y of the module docstring."""
    pi = state.actor(batch.next_obs, state.critics.torso(batch.next_obs))
    next_value = policy_value(pi, state.target, batch.next_obs, key)
    return td_target(batch.reward, state.config.gamma * batch.discount, next_value)


def policy_weights(
    actor: Policy, critics: TwinCritics, batch: Record, config: Config, key: Key[Array, ""]
) -> Float[Array, "batch"]:
    """Return the weights w of the module docstring."""
    action: Array = batch.action
    if actor.actions.kind == "discrete":
        q = q_of_action(jnp.minimum(*critics.all_q_values(batch.obs)), action)
    else:
        q = jnp.minimum(*critics.q_values(batch.obs, action.reshape(batch.mask.size, -1)))
    pi = actor(batch.obs, critics.torso(batch.obs))
    advantage = q - policy_value(pi, critics, batch.obs, key)
    return advantage_weight(advantage, 1.0 / config.temperature, config.most)


def actor_loss(
    actor: Policy, critics: TwinCritics, batch: Record, weight: Float[Array, "batch"]
) -> tuple[Float[Array, ""], dict[str, Array]]:
    """Return L_pi of the module docstring."""
    log_prob = actor.log_prob(batch.obs, critics.torso(batch.obs), batch.action)
    loss = -masked_mean(weight * log_prob, batch.mask)
    return loss, {"loss/policy": loss, "policy/weight": masked_mean(weight, batch.mask)}


def policy_value(
    pi: Any, critics: TwinCritics, obs: Obs, key: Key[Array, ""]
) -> Float[Array, "batch"]:
    """Return V(s) of the module docstring; for a normal by one sample."""
    if isinstance(pi, Categorical):
        q = jnp.minimum(*critics.all_q_values(obs))
        return jnp.sum(jax.nn.softmax(pi.logits) * q, -1)
    return jnp.minimum(*critics.q_values(obs, jnp.clip(pi.sample(key), -1.0, 1.0)))
