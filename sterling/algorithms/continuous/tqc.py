"""Truncated quantile critics (Kuznetsov 2020, arXiv:2005.04269), for continuous actions.

    atoms        z_1 <= ... <= z_NM  of all N critics' M quantiles theta'_n,m(s', a') together,
                 a' ~ pi(.|s')
    targets      y_k  = r + g (z_k - alpha log pi(a'|s')),      k = 1 ... N (M - d)       (eq. 10)
    critics      L_Z  = sum_n E[ w mean_{m,k} rho_m(y_k - theta_n,m(s, a)) ]              (eq. 13)
    actor        L_pi = E[ alpha log pi(a|s) - mean_{n,m} theta_n,m(s, a) ],  a ~ pi(.|s) (eq. 15)
    temperature  L_a  = E[ alpha (H(pi(.|s)) + dim(A)) ]

rho_m is the quantile Huber loss at (2 m - 1) / (2 M) with threshold 1; g is gamma times the
environment's discount; theta' follow at rate ``tau`` per update; w is 1, or prioritised replay's
importance weight. The ``drop`` = d largest atoms of each critic's M are left out of the targets
(pooled: d N of N M), against overestimation; the actor follows all of them. pi is SAC's.

Deviations from the paper: the critics' loss is the mean over pairs of atoms, which Adam does not
see; images are encoded by one torso, which only the critics' loss trains.
Evidence: none at published scale yet; probe worlds and an oracle in tests/contract/.
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
from sterling.algorithms.online import sac
from sterling.equations import soft_values
from sterling.equations.masked_average import masked_mean
from sterling.equations.polyak import polyak
from sterling.equations.quantile_losses import quantile_huber, quantile_middles
from sterling.equations.value_losses import td_target
from sterling.field_types import Activation, Count, Depth, Finite, NotNegative, Share, Sizes, Whole
from sterling.nets.action_heads import ONLINE, supported_actions
from sterling.nets.action_heads import SquashedPolicy as Policy
from sterling.nets.encoding.unseen_features import without_unseen_features
from sterling.nets.obs_encoder import Encoder
from sterling.nets.optimiser import adam, descend
from sterling.nets.q_ensemble import CriticEnsemble
from sterling.types import Action, Mistake, Obs, Record, Signals, Spec, Transitions, config

can_use_unseen = True  # by the critics


@config
class Config:
    """Defaults are those of the paper for MuJoCo (appendix C); it uses ``drop`` = 5 for Hopper."""

    lr: NotNegative = 3e-4  # Adam's step size, for critics, actor and temperature
    gamma: Share = 0.99  # discount per step
    tau: Share = 0.005  # rate at which target critics follow, per update
    members: Count = 5  # critics
    quantiles: Count = 25  # of each critic
    drop: Whole = 2  # largest atoms left out of the targets, per critic
    alpha: NotNegative = 1.0  # initial temperature; constant without tune_alpha
    tune_alpha: bool = True  # tune alpha so that the policy's entropy stays at target_entropy
    target_entropy: Finite | None = None  # nats; None: -dim(A)
    batch: Count = 256  # transitions per update
    collect: Count = 1  # steps of each env per iteration
    learn: Count = 1  # updates per iteration
    capacity: Count = 1_000_000  # replay capacity in transitions, per seed
    warmup: Whole = 10_000  # steps with random actions before the first update
    n_step: Count = 1  # rewards summed before bootstrapping
    priority: NotNegative | None = None  # exponent of prioritised replay (0.6); None: uniform
    correction: Share = 0.4  # exponent of the importance weights of prioritised replay (constant)
    width: Sizes = 256  # units per hidden layer of the actor, or of each layer such as 400,300
    depth: Depth = 2  # hidden layers of the actor, for vectors (after convolutions: one)
    critic_width: Sizes = 512  # units per hidden layer of the critics
    critic_depth: Depth = 3  # hidden layers of the critics
    activation: Activation = "relu"  # tanh, relu, silu, elu or gelu
    layer_norm: bool = False  # normalise the critics' hidden layers


class State(eqx.Module):
    """Everything that changes during training."""

    actor: Policy
    critics: CriticEnsemble
    target: CriticEnsemble
    log_alpha: Float[Array, ""]
    optimisers: tuple[optax.OptState, optax.OptState, optax.OptState]  # critics, actor, alpha
    config: Config


def needs(config: Config) -> Transitions:
    """Ask for transitions from a uniform or prioritised replay buffer."""
    return Transitions.of_config(config)


def init(key: Key[Array, ""], spec: Spec, config: Config) -> State:
    """Create an agent. Raises :class:`Mistake` for actions that are no Box, and where ``drop``
    leaves no atom."""
    actions = supported_actions("tqc", spec.action, ("box",), ONLINE)
    if config.drop >= config.quantiles:
        raise Mistake(f"drop={config.drop} leaves none of {config.quantiles} quantiles. Lower it.")
    torso = Encoder.create(random_keys.fold(key, "torso"), spec)
    hidden = torso.hidden_sizes(config.width, config.depth)
    actor_key, critic_key = (random_keys.fold(key, name) for name in ("actor", "critics"))
    kind: Any = {"activation": config.activation}
    actor = Policy.create(actor_key, (torso.size, *hidden), actions, **kind)
    actor = dataclasses.replace(actor, net=without_unseen_features(actor.net, torso, spec))
    hidden = torso.hidden_sizes(config.critic_width, config.critic_depth)
    kind |= {"members": config.members, "layer_norm": config.layer_norm}
    sizes = actions.outputs, config.quantiles
    critics = CriticEnsemble.create(critic_key, torso, hidden, *sizes, **kind)
    log_alpha = jnp.log(soft_values.initial_alpha(config.alpha, config.tune_alpha))
    optimisers = adam().init(critics), adam().init(actor), adam().init(log_alpha)
    return State(actor, critics, jax.tree.map(jnp.copy, critics), log_alpha, optimisers, config)


def act(
    state: State, obs: Obs, key: Key[Array, ""], explore: bool
) -> tuple[Action, dict[str, Array]]:
    """Return a sample of the policy, or its mode without ``explore``, in the space's shape."""
    return sac.act(state, obs, key, explore)


def log_prob(state: State, obs: Obs, action: Action) -> Float[Array, "env"]:
    """Return log pi(a|s) of actions in the form that ``act`` returns."""
    return sac.log_prob(state, obs, action)


def value(state: Any, obs: Obs) -> Float[Array, "env"]:
    """Return the mean of all atoms at the policy's mode. Here and in ``action_value`` ``state`` may
    be any object with ``actor`` and ``critics``."""
    pi = state.actor(obs, state.critics.torso(obs))
    return state.critics.outputs(obs, pi.mode()).mean((0, -1))


def action_value(state: Any, obs: Obs, action: Action) -> Float[Array, "env"]:
    """Return the mean of all atoms."""
    return state.critics.outputs(obs, state.actor.actions.flat(action)).mean((0, -1))


def learn(state: State, batch: Record, key: Key[Array, ""]) -> tuple[State, Signals]:
    """Update critics, actor and temperature once on transitions ``(batch, ...)``."""
    config, (critic_state, actor_state, alpha_state) = state.config, state.optimisers
    next_key, key = random_keys.fold(key, "next"), random_keys.fold(key, "now")
    y = targets(state, batch, next_key)
    grads, (metrics, error) = jax.grad(critic_loss, has_aux=True)(state.critics, batch, y)
    direction, critic_state = adam().update(grads, critic_state)
    critics = descend(state.critics, direction, config.lr)
    alpha = jnp.exp(state.log_alpha)
    actor_grad = jax.grad(actor_loss, has_aux=True)
    grads, (policy_metrics, entropy) = actor_grad(state.actor, critics, batch, alpha, key)
    direction, actor_state = adam().update(grads, actor_state)
    actor, log_alpha = descend(state.actor, direction, config.lr), state.log_alpha
    if config.tune_alpha:
        goal = sac.target_entropy(actor.actions, config.target_entropy, batch.obs, share=1.0)
        grads = jax.grad(sac.alpha_loss)(log_alpha, entropy, goal, batch)
        direction, alpha_state = adam().update(grads, alpha_state)
        log_alpha = descend(log_alpha, direction, config.lr)

    optimisers = (critic_state, actor_state, alpha_state)
    target = polyak(state.target, critics, config.tau)
    learned = State(actor, critics, target, log_alpha, optimisers, config)
    metrics = {**metrics, **policy_metrics, "policy/alpha": alpha}
    return learned, Signals(metrics, {"td_error": error})


def targets(state: State, batch: Record, key: Key[Array, ""]) -> Float[Array, "batch kept"]:
    """Return the atoms y_k of the module docstring, sorted."""
    config = state.config
    pi = state.actor(batch.next_obs, state.critics.torso(batch.next_obs))
    action, log_p = pi.sample_and_log_prob(key)
    atoms = jnp.moveaxis(state.target.outputs(batch.next_obs, action), 0, 1)
    pooled = jnp.sort(atoms.reshape(len(log_p), -1), -1)
    kept = pooled[:, : config.members * (config.quantiles - config.drop)]
    soft = soft_values.soft_value(kept, log_p[:, None], jnp.exp(state.log_alpha))
    return td_target(batch.reward[:, None], config.gamma * batch.discount[:, None], soft)


def critic_loss(
    critics: CriticEnsemble, batch: Record, y: Float[Array, "batch kept"]
) -> tuple[Float[Array, ""], tuple[dict[str, Array], Float[Array, "batch"]]]:
    """Return L_Z of the module docstring, metrics, and |mean atom - mean target| per row."""
    atoms = critics.outputs(batch.obs, batch.action.reshape(len(y), -1))
    shares = jnp.broadcast_to(quantile_middles(atoms.shape[-1]), atoms.shape)
    each = quantile_huber(atoms, jnp.broadcast_to(y, (len(atoms), *y.shape)), shares)
    weight = batch.extras.get("weight", jnp.ones_like(batch.reward))
    loss = masked_mean(weight * jnp.sum(each, 0), batch.mask)
    q = atoms.mean((0, -1))
    metrics = {"loss/value": loss, "value/q": masked_mean(q, batch.mask)}
    return loss, (metrics, jnp.abs(q - y.mean(-1)))


def actor_loss(
    actor: Policy, critics: CriticEnsemble, batch: Record, alpha: Array, key: Key[Array, ""]
) -> tuple[Float[Array, ""], tuple[dict[str, Array], Float[Array, "batch"]]]:
    """Return L_pi of the module docstring, metrics, and each row's estimate of the entropy."""
    action, log_p = actor(batch.obs, critics.torso(batch.obs)).sample_and_log_prob(key)
    q = critics.outputs(batch.obs, action).mean((0, -1))
    loss = -masked_mean(soft_values.soft_value(q, log_p, alpha), batch.mask)
    metrics = {"loss/policy": loss, "policy/entropy": masked_mean(-log_p, batch.mask)}
    return loss, (metrics, -log_p)
