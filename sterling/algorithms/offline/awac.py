"""Advantage-weighted actor-critic (Nair 2020, arXiv:2006.09359), for logs and for what follows.

    value       V(s)  = E_a[ min_i Q_i(s, a) ],                       a ~ pi(.|s)
    target      y     = r + g V'(s')
    critics     L_Q   = 1/2 sum_i E[ (Q_i(s, a) - y)^2 ]
    actor       L_pi  = -E[ w log pi(a|s) ],    w = min(exp((min_i Q_i(s, a) - V(s)) / lambda), W)

g is gamma times the world's discount; V' uses target critics that follow by ``tau`` per update.
The policy only ever imitates actions that were taken, the better ones more: it needs no model of
the log's policy and goes on learning from its own steps. Continuous actions: pi is a normal within
bounds, E_a one sample. Discrete actions: pi is categorical and E_a an exact sum.

Deviations from the paper: weights are cut at W and not divided by their sum over the batch, so that
lambda means the same for every batch; the normal's mean is a tanh and its samples are cut at the
edge of the action space; pictures are encoded by one torso that only the critics' loss trains. The
authors' examples for MuJoCo (github.com/rail-berkeley/rlkit) have policies of four hidden layers, a
weight decay of 1e-4 on them and log deviations in (-6, 0); here none of this is so.
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

from sterling import keys
from sterling.algorithms.online.sac import critic_loss
from sterling.equations.average import masked_mean
from sterling.equations.polyak import polyak
from sterling.equations.regression import advantage_weight
from sterling.equations.value import take_action, td_target
from sterling.field_types import Count, Depth, Limit, NotNegative, Positive, Share, Whole
from sterling.nets.distributions import Categorical
from sterling.nets.encoder import Encoder
from sterling.nets.ensemble import Twins
from sterling.nets.heads import Actions
from sterling.nets.normalise import ObsNormaliser
from sterling.nets.optimiser import adam, descend
from sterling.nets.policy import Policy
from sterling.types import Action, Mistake, Obs, Record, Signals, Spec, Transitions, config


@config
class Config:
    """Defaults are those of the paper's table 4, where it names them."""

    lr: NotNegative = 3e-4  # Adam's step size, for critics and actor
    gamma: Share = 0.99  # discount per step
    tau: Share = 0.005  # share of the way that target critics move per update
    temperature: Positive = 1.0  # lambda, in units of returns: small is greedy, large imitates
    most: Limit = 100.0  # W: bound of the policy's weights (customary)
    batch: Count = 1024  # transitions per update
    collect: Count = 1  # steps of each env per iteration, once it acts
    learn: Count = 1  # updates per iteration
    capacity: Count = 1_000_000  # transitions kept, over all envs of a seed, once it acts
    warmup: Whole = 0  # steps before the first update, once it acts
    normalise_obs: bool = False  # centre and scale observations by the log's moments
    width: Count = 256  # units per hidden layer
    depth: Depth = 2  # hidden layers, for vectors (after convolutions: one)


class State(eqx.Module):
    """Everything that changes."""

    actor: Policy
    critics: Twins
    target: Twins
    normaliser: ObsNormaliser
    critic_optimiser: optax.OptState
    actor_optimiser: optax.OptState
    config: Config


def needs(config: Config) -> Transitions:
    """Single transitions, drawn uniformly."""
    return Transitions(config.batch, config.collect, config.learn, config.capacity, config.warmup)


def init(key: Key[Array, ""], spec: Spec, config: Config) -> State:
    """A new agent; raises :class:`Mistake` for several choices at once."""
    actions = Actions.of(spec.action)
    if actions.kind == "multi":
        raise Mistake(f"awac cannot value {spec.action}; use bc")
    torso = Encoder.create(keys.fold(key, "torso"), spec.obs)
    hidden = (config.width,) * (config.depth if torso.is_flat else 1)
    actor = Policy.create(keys.fold(key, "actor"), (torso.size, *hidden), actions)
    ins, outs = (actions.outputs, 1) if actions.kind == "box" else (0, actions.outputs)
    critics = Twins.create(keys.fold(key, "critics"), torso, hidden, ins, outs)
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
    """A sample of the policy, or its mode, in the space's own shape."""
    obs = state.normaliser(obs)
    return state.actor.act(obs, state.critics.torso(obs), key, explore), {}


def log_prob(state: State, obs: Obs, action: Action) -> Float[Array, "..."]:
    """log pi(a|s) of actions as ``act`` gives them."""
    obs = state.normaliser(obs)
    return state.actor.log_prob(obs, state.critics.torso(obs), action)


def value(state: State, obs: Obs) -> Float[Array, "env"]:
    """The smaller critic's value of the policy's mode (discrete: of the policy)."""
    obs = state.normaliser(obs)
    pi = state.actor(obs, state.critics.torso(obs))
    if isinstance(pi, Categorical):
        return policy_value(pi, state.critics, obs, jax.random.key(0))
    return jnp.minimum(*state.critics.of_action(obs, pi.mode()))


def learn(state: State, batch: Record, key: Key[Array, ""]) -> tuple[State, Signals]:
    """One update of critics and actor on transitions ``(batch, ...)``."""
    config, see = state.config, state.normaliser
    batch = dataclasses.replace(batch, obs=see(batch.obs), next_obs=see(batch.next_obs))

    y = target(state, batch, keys.fold(key, "next"))
    grads, (metrics, error) = jax.grad(critic_loss, has_aux=True)(state.critics, batch, y)
    direction, critic_optimiser = adam().update(grads, state.critic_optimiser)
    critics = descend(state.critics, direction, config.lr)

    weight = weights(state.actor, critics, batch, config, keys.fold(key, "now"))
    grads, policy_metrics = jax.grad(actor_loss, has_aux=True)(state.actor, critics, batch, weight)
    direction, actor_optimiser = adam().update(grads, state.actor_optimiser)
    actor = descend(state.actor, direction, config.lr)

    slow = polyak(state.target, critics, config.tau)
    learned = State(actor, critics, slow, see, critic_optimiser, actor_optimiser, config)
    return learned, Signals({**metrics, **policy_metrics}, {"td_error": error})


def target(state: State, batch: Record, key: Key[Array, ""]) -> Float[Array, "batch"]:
    """y of the module docstring."""
    pi = state.actor(batch.next_obs, state.critics.torso(batch.next_obs))
    next_value = policy_value(pi, state.target, batch.next_obs, key)
    return td_target(batch.reward, state.config.gamma * batch.discount, next_value)


def weights(
    actor: Policy, critics: Twins, batch: Record, config: Config, key: Key[Array, ""]
) -> Float[Array, "batch"]:
    """w of the module docstring."""
    action: Array = batch.action
    if actor.actions.kind == "discrete":
        q = take_action(jnp.minimum(*critics.of_choices(batch.obs)), action)
    else:
        q = jnp.minimum(*critics.of_action(batch.obs, action.reshape(batch.mask.size, -1)))
    pi = actor(batch.obs, critics.torso(batch.obs))
    advantage = q - policy_value(pi, critics, batch.obs, key)
    return advantage_weight(advantage, 1.0 / config.temperature, config.most)


def actor_loss(
    actor: Policy, critics: Twins, batch: Record, weight: Float[Array, "batch"]
) -> tuple[Float[Array, ""], dict[str, Array]]:
    """L_pi of the module docstring."""
    log_prob = actor.log_prob(batch.obs, critics.torso(batch.obs), batch.action)
    loss = -masked_mean(weight * log_prob, batch.mask)
    return loss, {"loss/policy": loss, "policy/weight": masked_mean(weight, batch.mask)}


def policy_value(pi: Any, critics: Twins, obs: Obs, key: Key[Array, ""]) -> Float[Array, "batch"]:
    """V(s) of the module docstring; of a normal, by one sample."""
    if isinstance(pi, Categorical):
        q = jnp.minimum(*critics.of_choices(obs))
        return jnp.sum(jax.nn.softmax(pi.logits) * q, -1)
    return jnp.minimum(*critics.of_action(obs, jnp.clip(pi.sample(key), -1.0, 1.0)))
