"""CrossQ (Bhatt 2024, arXiv:1902.05605): no target networks, batch renormalisation instead.

    critics      (q_i, q'_i) = Q_i of (s, a) and (s', a'), one batch of both, a' ~ pi(.|s')
    target       y     = r + g (min_i q'_i - alpha log pi(a'|s')),    a constant
    loss         L_Q   = 1/2 sum_i E[ w (q_i - y)^2 ]
    actor        L_pi  = E[ alpha log pi(a|s) - min_i Q_i(s, a) ],    a ~ pi(.|s)
    temperature  L_a   = E[ alpha (H(pi(.|s)) + dim(A)) ]

g is gamma times the environment's discount; w is 1, or prioritised replay's importance weight. All
networks normalise inputs and hidden activations (batch_renorm.py). Actions of the replay and
of the policy have different statistics; normalised together, both are what the critics are trained
on, and they need no slow copy. Critics in L_Q and the policy in L_pi use the batch's statistics;
all else uses the running averages that these two passes update: a', Q_i in L_pi, and acting. Actor
and temperature are updated at every ``delay``-th update. pi is SAC's. Adam's first moments keep
``beta1`` of themselves (the temperature's 0.9).

Deviations from the paper: layers begin as SAC's, where its code draws from a normal distribution
(the normalisation undoes the scale); images are encoded by one torso, which only the critics' loss
trains; rows that are no experience do not count in the statistics. "policy/entropy" is measured in
s'. With seeds under ``vmap`` the actor's update is computed every time and its result dropped if
not due. Entries that only critics may see are not supported.
Evidence: none at published scale yet; probe worlds and an oracle in tests/contract/.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Bool, Float, Int, Key

from sterling import random_keys
from sterling.algorithms.online import sac
from sterling.equations import soft_values
from sterling.equations.masked_average import masked_mean
from sterling.equations.value_losses import td_target
from sterling.field_types import (
    Activation,
    Count,
    Depth,
    Finite,
    NotNegative,
    Share,
    ShareBelowOne,
    Sizes,
    Whole,
)
from sterling.nets.action_heads import ONLINE, supported_actions
from sterling.nets.action_heads import SquashedPolicy as Policy
from sterling.nets.obs_encoder import Encoder
from sterling.nets.optimiser import adam, descend
from sterling.nets.q_ensemble import CriticEnsemble
from sterling.nets.special_layers.batch_renorm import RenormalisedMLP, Running, split_running
from sterling.types import Action, Obs, Record, Signals, Spec, Transitions, config


@config
class Config:
    """Defaults are those of the paper (table 2) and its code."""

    lr: NotNegative = 1e-3  # Adam's step size, for critics, actor and temperature
    beta1: ShareBelowOne = 0.5  # share of Adam's first moments that an update keeps
    gamma: Share = 0.99  # discount per step
    members: Count = 2  # critics
    delay: Count = 3  # updates of the critics per update of actor and temperature
    momentum: Share = 0.99  # share of the running averages that a batch leaves
    renorm_warmup: Whole = 100_000  # batches until running averages correct the batch's
    alpha: NotNegative = 1.0  # initial temperature; constant without tune_alpha
    tune_alpha: bool = True  # tune alpha so that the policy's entropy stays at target_entropy
    target_entropy: Finite | None = None  # nats; None: -dim(A)
    batch: Count = 256  # transitions per update
    collect: Count = 1  # steps of each env per iteration
    learn: Count = 1  # updates per iteration
    capacity: Count = 1_000_000  # replay capacity in transitions, per seed
    warmup: Whole = 5_000  # steps with random actions before the first update
    n_step: Count = 1  # rewards summed before bootstrapping
    priority: NotNegative | None = None  # exponent of prioritised replay (0.6); None: uniform
    correction: Share = 0.4  # exponent of the importance weights of prioritised replay (constant)
    width: Sizes = 256  # units per hidden layer of the actor, or of each layer such as 400,300
    depth: Depth = 2  # hidden layers of the actor, for vectors (after convolutions: one)
    critic_width: Sizes = 2048  # units per hidden layer of the critics
    critic_depth: Depth = 2  # hidden layers of the critics
    activation: Activation = "relu"  # tanh, relu, silu, elu or gelu


class State(eqx.Module):
    """Everything that changes during training."""

    actor: Policy  # its net is a RenormalisedMLP
    critics: CriticEnsemble  # as are these, with a leading axis of members
    log_alpha: Float[Array, ""]
    optimisers: tuple[optax.OptState, optax.OptState, optax.OptState]  # critics, actor, alpha
    updates: Int[Array, ""]  # of the critics
    config: Config


def needs(config: Config) -> Transitions:
    """Ask for transitions from a uniform or prioritised replay buffer."""
    return Transitions.of_config(config)


def init(key: Key[Array, ""], spec: Spec, config: Config) -> State:
    """Create an agent. Raises :class:`Mistake` for actions that are no Box."""
    actions = supported_actions("crossq", spec.action, ("box",), ONLINE)
    torso = Encoder.create(random_keys.fold(key, "torso"), spec)
    hidden = torso.hidden_sizes(config.width, config.depth)
    sizes = (torso.size, *hidden, 2 * actions.outputs)
    net = RenormalisedMLP.create(random_keys.fold(key, "actor"), sizes, config.activation)
    hidden = torso.hidden_sizes(config.critic_width, config.critic_depth)
    sizes = (torso.size + actions.outputs, *hidden, 1)
    keys = random_keys.split(random_keys.fold(key, "critics"), "member", config.members)
    make = jax.vmap(lambda key: RenormalisedMLP.create(key, sizes, config.activation))
    actor, critics = Policy(net, actions), CriticEnsemble(torso, make(keys))
    log_alpha = jnp.log(soft_values.initial_alpha(config.alpha, config.tune_alpha))
    parts = split_running(critics)[0], split_running(actor)[0], log_alpha
    optimisers = tuple(adam().init(part) for part in parts)
    return State(actor, critics, log_alpha, optimisers, jnp.zeros((), jnp.int32), config)


def act(
    state: State, obs: Obs, key: Key[Array, ""], explore: bool
) -> tuple[Action, dict[str, Array]]:
    """Return a sample of the policy, or its mode without ``explore``, in the space's shape."""
    return sac.act(state, obs, key, explore)


def log_prob(state: State, obs: Obs, action: Action) -> Float[Array, "env"]:
    """Return log pi(a|s) of actions in the form that ``act`` returns."""
    return sac.log_prob(state, obs, action)


def value(state: State, obs: Obs) -> Float[Array, "env"]:
    """Return the smallest critic's value of the policy's mode."""
    pi = state.actor(obs, state.critics.torso(obs))
    return state.critics.q_values(obs, pi.mode()).min(0)


def action_value(state: State, obs: Obs, action: Action) -> Float[Array, "env"]:
    """Return min_i Q_i(s, a)."""
    return state.critics.q_values(obs, state.actor.actions.flat(action)).min(0)


def learn(state: State, batch: Record, key: Key[Array, ""]) -> tuple[State, Signals]:
    """Update the critics once on transitions ``(batch, ...)``, every ``delay``-th time also actor
    and temperature."""
    config, (critic_state, *others) = state.config, state.optimisers
    parameters, running = split_running(state.critics)
    pi = state.actor(batch.next_obs, state.critics.torso(batch.next_obs))
    following = pi.sample_and_log_prob(random_keys.fold(key, "next"))
    critic_grad = jax.grad(critic_loss, has_aux=True)
    grads, (metrics, error, moved) = critic_grad(parameters, running, state, batch, following)
    direction, critic_state = adam(beta1=config.beta1).update(grads, critic_state)
    critics = eqx.combine(descend(parameters, direction, config.lr), running)
    critics = eqx.tree_at(lambda tree: tree.nets.running, critics, moved)
    updated = dataclasses.replace(
        state, critics=critics, optimisers=(critic_state, *others), updates=state.updates + 1
    )
    due, now = jnp.mod(updated.updates, config.delay) == 0, random_keys.fold(key, "now")
    learned = jax.lax.cond(due, lambda: update_actor(updated, batch, now), lambda: updated)
    metrics["policy/entropy"] = masked_mean(-following[1], batch.mask)
    metrics["policy/alpha"] = jnp.exp(state.log_alpha)
    return learned, Signals(metrics, {"td_error": error})


def critic_loss(
    parameters: CriticEnsemble,
    running: CriticEnsemble,
    state: State,
    batch: Record,
    following: tuple[Float[Array, "batch n"], Float[Array, "batch"]],
) -> tuple[Float[Array, ""], tuple[dict[str, Array], Float[Array, "batch"], Running]]:
    """Return L_Q of the module docstring, metrics, |TD error| per row (mean over critics), and the
    critics' running averages after this batch. ``following`` are a' and log pi(a'|s')."""
    critics, config = eqx.combine(parameters, running), state.config
    next_action, log_p = following
    action = batch.action.reshape(next_action.shape)
    pairs = (batch.obs, action), (batch.next_obs, next_action)
    x = jnp.concatenate([jnp.concatenate([critics.torso(s), a], -1) for s, a in pairs])
    both, moved = train_members(critics.nets, x, jnp.tile(batch.mask, 2), config)
    q, next_q = jnp.split(both, 2, -1)
    soft = soft_values.soft_value(next_q.min(0), log_p, jnp.exp(state.log_alpha))
    y = td_target(batch.reward, config.gamma * batch.discount, jax.lax.stop_gradient(soft))
    weight, error = batch.extras.get("weight", jnp.ones_like(y)), q - y[None]
    loss = masked_mean(weight * 0.5 * jnp.sum(jnp.square(error), 0), batch.mask)
    metrics = {"loss/value": loss, "value/q": masked_mean(q[0], batch.mask)}
    return loss, (metrics, jnp.mean(jnp.abs(error), 0), moved)


def train_members(
    nets: Any, x: Float[Array, "row inputs"], mask: Bool[Array, "row"], config: Config
) -> tuple[Float[Array, "member row"], Running]:
    """Return all critics' values, each normalised by the batch, and their running averages."""
    train = jax.vmap(lambda net: net.train(x, mask, config.renorm_warmup, config.momentum))
    values, moved = train(nets)
    return values[..., 0], moved


def update_actor(state: State, batch: Record, key: Key[Array, ""]) -> State:
    """Update actor and temperature once."""
    config, (critic_state, actor_state, alpha_state) = state.config, state.optimisers
    parameters, running = split_running(state.actor)
    actor_grad = jax.grad(actor_loss, has_aux=True)
    grads, (entropy, moved) = actor_grad(parameters, running, state, batch, key)
    direction, actor_state = adam(beta1=config.beta1).update(grads, actor_state)
    actor = eqx.combine(descend(parameters, direction, config.lr), running)
    actor = eqx.tree_at(lambda tree: tree.net.running, actor, moved)
    log_alpha = state.log_alpha
    if config.tune_alpha:
        goal = sac.target_entropy(actor.actions, config.target_entropy, batch.obs, share=1.0)
        grads = jax.grad(sac.alpha_loss)(log_alpha, entropy, goal, batch)
        direction, alpha_state = adam().update(grads, alpha_state)
        log_alpha = descend(log_alpha, direction, config.lr)
    optimisers = (critic_state, actor_state, alpha_state)
    return dataclasses.replace(state, actor=actor, log_alpha=log_alpha, optimisers=optimisers)


def actor_loss(
    parameters: Policy, running: Policy, state: State, batch: Record, key: Key[Array, ""]
) -> tuple[Float[Array, ""], tuple[Float[Array, "batch"], Running]]:
    """Return L_pi of the module docstring, each row's estimate of the entropy, and the policy's
    running averages after this batch."""
    actor, config, critics = eqx.combine(parameters, running), state.config, state.critics
    net: Any = actor.net
    features = critics.torso(batch.obs)
    outputs, moved = net.train(features, batch.mask, config.renorm_warmup, config.momentum)
    action, log_p = actor.squashed_normal(outputs).sample_and_log_prob(key)
    q = critics.q_values(batch.obs, action).min(0)
    soft = soft_values.soft_value(q, log_p, jnp.exp(state.log_alpha))
    return -masked_mean(soft, batch.mask), (-log_p, moved)
