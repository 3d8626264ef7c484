"""Implicit Q-learning (Kostrikov 2022, arXiv:2110.06169), for continuous and discrete actions.

    value     L_V  = E[ |tau - 1(u < 0)| u^2 ],      u = min_i Q'_i(s, a) - V(s)
    critics   L_Q  = 1/2 sum_i E[ w (Q_i(s, a) - r - g V(s'))^2 ]
    policy    L_pi = -E[ min(exp(beta u), 100) log pi(a|s) ]

tau of L_V is ``expectile``; g is gamma times the world's discount; Q' follows Q by ``tau`` per
update; w is 1, or an importance weight of the source. No action outside the log is ever valued: V
is an upper expectile over the logged actions, and for tau -> 1 the largest of them.

Deviations from the authors' code: the policy's weights come from V before its step (there after
it, as the critics' target does here too); networks begin as SAC's (there orthogonal). The policy's
step size falls along a cosine over the planned updates, as there, where ``anneal`` is on. Rewards
are scaled by 1000 / (largest - smallest return of the log) with ``scale_reward``, as the paper does
for locomotion (leave it off where the log has sparse rewards of size one).
Evidence: benchmarks/results/offline.md.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Bool, Float, Int, Key

from sterling import keys
from sterling.algorithms.online import sac
from sterling.equations.average import masked_mean
from sterling.equations.polyak import polyak
from sterling.equations.regression import advantage_weight, expectile_loss
from sterling.equations.value import td_target
from sterling.field_types import Count, Depth, Inside, Limit, NotNegative, Share, Whole
from sterling.nets.encoder import Encoder
from sterling.nets.ensemble import Twins
from sterling.nets.heads import Actions
from sterling.nets.mlp import MLP
from sterling.nets.normalise import ObsNormaliser
from sterling.nets.optimiser import adam, descend
from sterling.nets.policy import Policy
from sterling.types import Action, Mistake, Obs, Record, Signals, Spec, Transitions, config

Loss = Callable[[Float[Array, "batch"], Bool[Array, "batch"]], Float[Array, ""]]


@config
class Config:
    """Defaults are the paper's for locomotion (its appendix B and the authors' code), but for
    ``scale_reward``, which is on there."""

    lr: NotNegative = 3e-4  # Adam's step size, for value, critics and policy
    gamma: Share = 0.99  # discount per step
    expectile: Inside = 0.7  # tau: 1/2 is the mean of the logged actions' values, 1 the largest
    beta: NotNegative = 3.0  # inverse temperature of the policy's weights (antmaze 10)
    tau: Share = 0.005  # share of the way that target critics move per update
    most: Limit = 100.0  # bound of the policy's weights
    anneal: bool = True  # the policy's step size falls to 0 along a cosine
    scale_reward: bool = False  # by 1000 / (range of the log's returns)
    normalise_obs: bool = False  # centre and scale observations by the log's moments
    layer_norm: bool = False  # normalise the hidden layers of V
    batch: Count = 256  # transitions per update
    collect: Count = 1  # steps of each env per iteration, once it acts
    learn: Count = 1  # updates per iteration
    capacity: Count = 1_000_000  # transitions kept, over all envs of a seed, once it acts
    warmup: Whole = 0  # steps before the first update, once it acts
    width: Count = 256  # units per hidden layer
    depth: Depth = 2  # hidden layers, for vectors (after convolutions: one)


class State(eqx.Module):
    """Everything that changes; the torso of pictures is the critics' and they alone train it."""

    policy: Policy
    value: MLP
    critics: Twins
    target: Twins
    optimisers: tuple[optax.OptState, optax.OptState, optax.OptState]  # value, critics, policy
    normaliser: ObsNormaliser
    reward_scale: Float[Array, ""]
    updates: Int[Array, ""]
    planned: Int[Array, ""]  # updates that the cosine runs over
    config: Config


def needs(config: Config) -> Transitions:
    """Uniform samples."""
    return Transitions(config.batch, config.collect, config.learn, config.capacity, config.warmup)


def init(key: Key[Array, ""], spec: Spec, config: Config) -> State:
    """A new agent; raises :class:`Mistake` for several choices at once."""
    return State(*parts("iql", key, spec, config))


def act(
    state: Any, obs: Obs, key: Key[Array, ""], explore: bool
) -> tuple[Action, dict[str, Array]]:
    """A sample of the policy, or its mode.

    Here and below a state is anything with this file's parts, so that learners which
    differ only in L_V can call these functions.
    """
    obs = state.normaliser(obs)
    return state.policy.act(obs, state.critics.torso(obs), key, explore), {}


def log_prob(state: Any, obs: Obs, action: Action) -> Float[Array, "..."]:
    """log pi(a|s)."""
    obs = state.normaliser(obs)
    return state.policy.log_prob(obs, state.critics.torso(obs), action)


def value(state: Any, obs: Obs) -> Float[Array, "env"]:
    """V(s), of scaled rewards."""
    return state.value(state.critics.torso(state.normaliser(obs)))[..., 0]


def action_value(state: Any, obs: Obs, action: Action) -> Float[Array, "env"]:
    """The smaller critic's value of actions, of scaled rewards."""
    return jnp.minimum(*sac.logged(state.critics, state.normaliser(obs), action))


def learn(state: State, batch: Record, key: Key[Array, ""]) -> tuple[State, Signals]:
    """One update of value, policy, critics and targets on transitions ``(batch, ...)``."""
    tau = state.config.expectile

    def loss(error: Float[Array, "batch"], mask: Bool[Array, "batch"]) -> Float[Array, ""]:
        return masked_mean(expectile_loss(error, tau), mask)

    return learn_by(loss, state, batch)


def parts(name: str, key: Key[Array, ""], spec: Spec, config: Any) -> tuple[Any, ...]:
    """What a new State has."""
    actions = Actions.of(spec.action)
    if actions.kind == "multi":
        raise Mistake(f"{name} cannot value {spec.action}; use bc")
    torso = Encoder.create(keys.fold(key, "torso"), spec.obs)
    hidden = (torso.size, *(config.width,) * (config.depth if torso.is_flat else 1))
    ins, outs = (actions.outputs, 1) if actions.kind == "box" else (0, actions.outputs)
    policy = Policy.create(keys.fold(key, "policy"), hidden, actions)
    net = MLP.uniform(keys.fold(key, "value"), (*hidden, 1), layer_norm=config.layer_norm)
    critics = Twins.create(keys.fold(key, "critics"), torso, hidden[1:], ins, outs)
    low, high = (0.0, 1000.0) if spec.log is None else spec.log.returns
    scale = 1000.0 / max(high - low, 1e-6) if config.scale_reward else 1.0
    return (
        policy,
        net,
        critics,
        jax.tree.map(jnp.copy, critics),
        (adam().init(net), adam().init(critics), adam().init(policy)),
        ObsNormaliser.of_log(spec, config.normalise_obs),
        jnp.asarray(scale, jnp.float32),
        jnp.zeros((), jnp.int32),
        jnp.asarray(spec.iterations * config.learn, jnp.int32),
        config,
    )


def learn_by(loss: Loss, state: Any, batch: Record) -> tuple[Any, Signals]:
    """One update with ``loss`` of u and mask as L_V."""
    config, (value_state, critic_state, policy_state) = state.config, state.optimisers
    batch = state.normaliser.batch(batch)
    features, next_features = (state.critics.torso(x) for x in (batch.obs, batch.next_obs))
    q = jnp.minimum(*sac.logged(state.target, batch.obs, batch.action))

    def value_loss(net: MLP) -> tuple[Float[Array, ""], Float[Array, "batch"]]:
        error = q - net(features)[:, 0]
        return loss(error, batch.mask), error

    (spent, advantage), grads = jax.value_and_grad(value_loss, has_aux=True)(state.value)
    direction, value_state = adam().update(grads, value_state)
    net = descend(state.value, direction, config.lr)

    weight = advantage_weight(advantage, config.beta, config.most)
    lost, grads = jax.value_and_grad(policy_loss)(state.policy, features, batch, weight)
    direction, policy_state = adam().update(grads, policy_state)
    policy = descend(state.policy, direction, policy_rate(state))

    reward, next_value = batch.reward * state.reward_scale, net(next_features)[:, 0]
    y = td_target(reward, config.gamma * batch.discount, next_value)
    grads, (metrics, error) = jax.grad(sac.critic_loss, has_aux=True)(state.critics, batch, y)
    direction, critic_state = adam().update(grads, critic_state)
    critics = descend(state.critics, direction, config.lr)

    learned = dataclasses.replace(
        state,
        policy=policy,
        value=net,
        critics=critics,
        target=polyak(state.target, critics, config.tau),
        optimisers=(value_state, critic_state, policy_state),
        updates=state.updates + 1,
    )
    metrics |= {"loss/v": spent, "value/v": masked_mean(q - advantage, batch.mask)}
    metrics |= {"loss/policy": lost, "policy/weight": masked_mean(weight, batch.mask)}
    return learned, Signals(metrics, {"td_error": error})


def policy_loss(
    policy: Policy, features: Float[Array, "batch n"], batch: Record, weight: Float[Array, "batch"]
) -> Float[Array, ""]:
    """L_pi of the module docstring."""
    return -masked_mean(weight * policy.log_prob(batch.obs, features, batch.action), batch.mask)


def policy_rate(state: Any) -> Float[Array, ""]:
    """The policy's step size now."""
    rate = jnp.asarray(state.config.lr, jnp.float32)
    if not state.config.anneal:
        return rate
    done = state.updates.astype(jnp.float32) / state.planned.astype(jnp.float32)
    return rate * 0.5 * (1.0 + jnp.cos(jnp.pi * jnp.minimum(done, 1.0)))
