"""Implicit Q-learning (Kostrikov 2022, arXiv:2110.06169), for continuous and discrete actions.

    value     L_V  = E[ |tau - 1(u < 0)| u^2 ],      u = min_i Q'_i(s, a) - V(s)
    critics   L_Q  = 1/2 sum_i E[ w (Q_i(s, a) - r - g V(s'))^2 ]
    policy    L_pi = -E[ min(exp(beta u), 100) log pi(a|s) ]

tau of L_V is ``expectile``; g is gamma times the environment's discount; Q' follows Q at rate
``tau`` per update; w is 1, or the source's importance weight. No action outside the dataset is ever
evaluated: V is an upper expectile of Q over the logged actions, for tau -> 1 the largest.

Deviations from the authors' code: the policy's weights use V before its update (there after it);
networks are initialised as SAC's (there orthogonal). The critics' target uses V after its update,
as there. With ``anneal`` the policy's step size falls along a cosine over the planned updates, as
there. With ``scale_reward`` rewards are scaled by 1000 / (largest - smallest return of the
dataset), as in the paper for locomotion (leave it off for sparse rewards of size one).
Evidence: benchmarks/results/offline.md.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Bool, Float, Int, Key

from sterling import random_keys
from sterling.algorithms.online import sac
from sterling.equations.masked_average import masked_mean
from sterling.equations.polyak import polyak
from sterling.equations.regression_losses import advantage_weight, expectile_loss
from sterling.equations.value_losses import td_target
from sterling.field_types import (
    Activation,
    Count,
    Depth,
    Inside,
    Limit,
    NotNegative,
    Share,
    Sizes,
    Whole,
)
from sterling.nets.action_heads import OFFLINE, supported_actions
from sterling.nets.imitation_policy import Policy
from sterling.nets.mlp import MLP
from sterling.nets.obs_encoder import Encoder
from sterling.nets.optimiser import adam, descend
from sterling.nets.q_ensemble import TwinCritics
from sterling.nets.running_statistics import ObsNormaliser
from sterling.types import Action, Obs, Record, Signals, Spec, Transitions, config

ValueLoss = Callable[[Float[Array, "batch"], Bool[Array, "batch"]], Float[Array, ""]]


@config
class Config:
    """Defaults are the paper's for locomotion (appendix B and the authors' code), except
    ``scale_reward``, which is on there."""

    lr: NotNegative = 3e-4  # Adam's step size, for value, critics and policy
    gamma: Share = 0.99  # discount per step
    expectile: Inside = 0.7  # tau of L_V: at 1/2 V is the mean logged value, at 1 the largest
    beta: NotNegative = 3.0  # inverse temperature of the advantage weights (antmaze 10)
    tau: Share = 0.005  # rate at which target critics follow, per update
    most: Limit = 100.0  # upper bound of the advantage weights
    anneal: bool = True  # the policy's step size falls to 0 along a cosine
    scale_reward: bool = False  # scale rewards by 1000 / (range of the dataset's returns)
    normalise_obs: bool = False  # normalise observations by the dataset's mean and deviation
    layer_norm: bool = False  # normalise the hidden layers of V
    batch: Count = 256  # transitions per update
    collect: Count = 1  # steps of each env per iteration of the online phase
    learn: Count = 1  # updates per iteration
    capacity: Count = 1_000_000  # replay capacity in transitions, per seed (online phase)
    warmup: Whole = 0  # steps before the first update of the online phase
    width: Sizes = 256  # units per hidden layer, or of each layer such as 400,300
    depth: Depth = 2  # hidden layers, for vectors (after convolutions: one)
    activation: Activation = "relu"  # tanh, relu, silu, elu or gelu


class State(eqx.Module):
    """Everything that changes during training. Only the critics' loss trains the image encoder."""

    policy: Policy
    value: MLP
    critics: TwinCritics
    target: TwinCritics
    optimisers: tuple[optax.OptState, optax.OptState, optax.OptState]  # value, critics, policy
    normaliser: ObsNormaliser
    reward_scale: Float[Array, ""]
    updates: Int[Array, ""]
    planned: Int[Array, ""]  # updates over which the cosine falls
    config: Any  # a Config, also that of xql.py and fdvl.py, which share this class


S = TypeVar("S", bound=State)


def needs(config: Config) -> Transitions:
    """Ask for single transitions, drawn uniformly."""
    return Transitions(config.batch, config.collect, config.learn, config.capacity, config.warmup)


def init(key: Key[Array, ""], spec: Spec, config: Config) -> State:
    """Create an agent. Raises :class:`Mistake` for actions that are neither a Box nor Discrete."""
    return create_state(State, "iql", key, spec, config)


def act(
    state: Any, obs: Obs, key: Key[Array, ""], explore: bool
) -> tuple[Action, dict[str, Array]]:
    """Return a sample of the policy, or its mode without ``explore``.

    Here and below ``state`` may be any object with the fields of :class:`State`, so that learners
    that differ only in L_V can call these functions.
    """
    obs = state.normaliser(obs)
    return state.policy.act(obs, state.critics.torso(obs), key, explore), {}


def log_prob(state: Any, obs: Obs, action: Action) -> Float[Array, "..."]:
    """Return log pi(a|s)."""
    obs = state.normaliser(obs)
    return state.policy.log_prob(obs, state.critics.torso(obs), action)


def value(state: Any, obs: Obs) -> Float[Array, "env"]:
    """Return V(s), in units of scaled rewards."""
    return state.value(state.critics.torso(state.normaliser(obs)))[..., 0]


def action_value(state: Any, obs: Obs, action: Action) -> Float[Array, "env"]:
    """Return min_i Q_i(s, a), in units of scaled rewards."""
    return jnp.minimum(*sac.q_values(state.critics, state.normaliser(obs), action))


def learn(state: State, batch: Record, key: Key[Array, ""]) -> tuple[State, Signals]:
    """Update value, policy, critics and targets once on transitions ``(batch, ...)``."""
    expectile = state.config.expectile

    def loss(error: Float[Array, "batch"], mask: Bool[Array, "batch"]) -> Float[Array, ""]:
        return masked_mean(expectile_loss(error, expectile), mask)

    return learn_with_value_loss(loss, state, batch)


def create_state(kind: type[S], name: str, key: Key[Array, ""], spec: Spec, config: Any) -> S:
    """Create a state of the given class, for the algorithm ``name``."""
    actions = supported_actions(name, spec.action, ("box", "discrete"), OFFLINE)
    torso = Encoder.create(random_keys.fold(key, "torso"), spec)
    hidden = (torso.size, *torso.hidden_sizes(config.width, config.depth))
    critic_key, sizes = random_keys.fold(key, "critics"), actions.critic_sizes
    layers: Any = {"activation": config.activation}
    policy = Policy.create(random_keys.fold(key, "policy"), hidden, actions, **layers)
    critics = TwinCritics.create(critic_key, torso, hidden[1:], *sizes, **layers)
    layers |= {"layer_norm": config.layer_norm}
    value = MLP.uniform(random_keys.fold(key, "value"), (*hidden, 1), **layers)
    low, high = (0.0, 1000.0) if spec.log is None else spec.log.returns
    scale = 1000.0 / max(high - low, 1e-6) if config.scale_reward else 1.0
    return kind(
        policy=policy,
        value=value,
        critics=critics,
        target=jax.tree.map(jnp.copy, critics),
        optimisers=(adam().init(value), adam().init(critics), adam().init(policy)),
        normaliser=ObsNormaliser.of_log(spec, config.normalise_obs),
        reward_scale=jnp.asarray(scale, jnp.float32),
        updates=jnp.zeros((), jnp.int32),
        planned=jnp.asarray(spec.iterations * config.learn, jnp.int32),
        config=config,
    )


def learn_with_value_loss(loss: ValueLoss, state: Any, batch: Record) -> tuple[Any, Signals]:
    """Update value, policy, critics and targets once, with ``loss(u, mask)`` as L_V."""
    config, (value_state, critic_state, policy_state) = state.config, state.optimisers
    batch = state.normaliser.batch(batch)
    features, next_features = (state.critics.torso(x) for x in (batch.obs, batch.next_obs))
    q = jnp.minimum(*sac.q_values(state.target, batch.obs, batch.action))

    def loss_and_advantage(net: MLP) -> tuple[Float[Array, ""], Float[Array, "batch"]]:
        error = q - net(features)[:, 0]
        return loss(error, batch.mask), error

    value_grad = jax.value_and_grad(loss_and_advantage, has_aux=True)
    (value_loss, advantage), grads = value_grad(state.value)
    direction, value_state = adam().update(grads, value_state)
    value_net = descend(state.value, direction, config.lr)

    weight = advantage_weight(advantage, config.beta, config.most)
    actor_loss, grads = jax.value_and_grad(policy_loss)(state.policy, features, batch, weight)
    direction, policy_state = adam().update(grads, policy_state)
    policy = descend(state.policy, direction, policy_lr(state))

    reward, next_value = batch.reward * state.reward_scale, value_net(next_features)[:, 0]
    y = td_target(reward, config.gamma * batch.discount, next_value)
    grads, (metrics, error) = jax.grad(sac.critic_loss, has_aux=True)(state.critics, batch, y)
    direction, critic_state = adam().update(grads, critic_state)
    critics = descend(state.critics, direction, config.lr)

    learned = dataclasses.replace(
        state,
        policy=policy,
        value=value_net,
        critics=critics,
        target=polyak(state.target, critics, config.tau),
        optimisers=(value_state, critic_state, policy_state),
        updates=state.updates + 1,
    )
    metrics |= {"loss/v": value_loss, "value/v": masked_mean(q - advantage, batch.mask)}
    metrics |= {"loss/policy": actor_loss, "policy/weight": masked_mean(weight, batch.mask)}
    return learned, Signals(metrics, {"td_error": error})


def policy_loss(
    policy: Policy, features: Float[Array, "batch n"], batch: Record, weight: Float[Array, "batch"]
) -> Float[Array, ""]:
    """Return L_pi of the module docstring."""
    return -masked_mean(weight * policy.log_prob(batch.obs, features, batch.action), batch.mask)


def policy_lr(state: Any) -> Float[Array, ""]:
    """Return the policy's current step size."""
    lr = jnp.asarray(state.config.lr, jnp.float32)
    if not state.config.anneal:
        return lr
    progress = state.updates.astype(jnp.float32) / state.planned.astype(jnp.float32)
    return lr * 0.5 * (1.0 + jnp.cos(jnp.pi * jnp.minimum(progress, 1.0)))
