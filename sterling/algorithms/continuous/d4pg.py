"""Distributional deep deterministic policy gradient, D4PG (Barth-Maron 2018, arXiv:1804.08617).

    value       Q(s, a) = sum_i z_i p_i(s, a),   z_i = v_min + i dz,   i = 0 ... N - 1
    targets     m_i  = sum_j [1 - |clip(r + g z_j, v_min, v_max) - z_i| / dz]_0^1 p'_j(s', mu'(s'))
    critic      L_Z  = E[ - w sum_i m_i log p_i(s, a) ]
    actor       L_mu = -E[ Q(s, mu(s)) ]
    behaviour   a    = clip(mu(s) + e, -1, 1),                   e ~ N(0, sigma^2)

This is ddpg with c51's distribution over N = ``atoms`` returns as its critic. r has the rewards of
``n_step`` steps, and g is gamma for each of them, times the environment's discount; every
``target_period`` updates mu' and p' become mu and p (or move by ``tau``); w is 1, or prioritised
replay's importance weight. Returns outside of [v_min, v_max] cannot be represented: choose these
bounds for the environment, which the paper does too.

Deviations from the paper: one process collects in all envs, then learns, instead of 32 actors
beside a learner; replay is uniform by default, and with ``priority`` a row's TD error is
KL(m || p), as in Rainbow. Sizes of layers, bounds and ``target_period`` are those of Acme's D4PG
(Hoffman 2020, arXiv:2006.00979), without its normalised layers (``layer_norm``: the critic's) and
small initial last layer. Images are encoded by one torso, which the actor uses but only the
critic's loss trains. Steps before the first update are random.
Evidence: none at published scale yet; probe worlds and an oracle in tests/contract/.
"""

from __future__ import annotations

import dataclasses
from functools import partial
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, Int, Key

from sterling import random_keys
from sterling.algorithms.online import td3
from sterling.algorithms.q_learning import c51
from sterling.equations.masked_average import masked_mean
from sterling.equations.polyak import polyak
from sterling.field_types import Activation, Count, Depth, Finite, NotNegative, Share, Sizes, Whole
from sterling.nets.action_heads import ONLINE, supported_actions
from sterling.nets.obs_encoder import Encoder
from sterling.nets.optimiser import adam, descend
from sterling.nets.q_ensemble import CriticEnsemble, TwinCritics
from sterling.types import Action, Obs, Record, Signals, Spec, Transitions, config

can_use_unseen = True  # by the critic


@config
class Config:
    """Defaults are the paper's, where Acme's D4PG does not say more (module docstring)."""

    lr: NotNegative = 1e-4  # Adam's step size, for critic and actor
    gamma: Share = 0.99  # discount per step
    atoms: Count = 51  # of every action's return
    v_min: Finite = -150.0  # lowest return that can be represented
    v_max: Finite = 150.0  # highest return that can be represented
    target_period: Count = 100  # updates between changes of the targets
    tau: Share = 1.0  # share by which targets move at each change; 1: copy
    exploration_noise: NotNegative = 0.3  # sigma: standard deviation of exploration noise
    batch: Count = 256  # transitions per update
    collect: Count = 1  # steps of each env per iteration
    learn: Count = 1  # updates per iteration
    capacity: Count = 1_000_000  # replay capacity in transitions, per seed
    warmup: Whole = 1_000  # steps with random actions before the first update
    n_step: Count = 5  # rewards summed before bootstrapping
    priority: NotNegative | None = None  # exponent of prioritised replay (0.6); None: uniform
    correction: Share = 0.4  # exponent of the importance weights of prioritised replay (constant)
    width: Sizes = (300, 200)  # units per hidden layer of the actor, or of each layer
    depth: Depth = 2  # hidden layers of the actor, for vectors (after convolutions: one)
    critic_width: Sizes = (400, 300)  # units per hidden layer of the critic, or of each layer
    critic_depth: Depth = 2  # hidden layers of the critic
    activation: Activation = "relu"  # tanh, relu, silu, elu or gelu
    layer_norm: bool = False  # normalise the critic's hidden layers


class State(eqx.Module):
    """Everything that changes during training."""

    nets: td3.Nets
    target: td3.Nets
    critic_optimiser: optax.OptState
    actor_optimiser: optax.OptState
    updates: Int[Array, ""]
    config: Config


def needs(config: Config) -> Transitions:
    """Ask for transitions from a uniform or prioritised replay buffer."""
    return Transitions.of_config(config)


def init(key: Key[Array, ""], spec: Spec, config: Config) -> State:
    """Create an agent. Raises :class:`Mistake` for action spaces other than Box, and for atoms that
    are no interval."""
    supported_actions("d4pg", spec.action, ("box",), ONLINE)
    nets = create_networks(key, spec, config, members=1)
    optimisers = adam().init(nets.critics), adam().init(nets.actor)
    return State(nets, jax.tree.map(jnp.copy, nets), *optimisers, jnp.zeros((), jnp.int32), config)


def create_networks(key: Key[Array, ""], spec: Spec, config: Any, members: int) -> td3.Nets:
    """Create an actor and ``members`` critics that return logits of atoms, for any Config with this
    file's fields of networks. Raises :class:`Mistake` for atoms that are no interval."""
    c51.check_support(config)
    torso = Encoder.create(random_keys.fold(key, "torso"), spec)
    actor = td3.create_actor(key, torso, spec, config)
    hidden = torso.hidden_sizes(config.critic_width, config.critic_depth)
    kind: Any = {"activation": config.activation, "layer_norm": config.layer_norm}
    sizes = actor.actions.outputs, config.atoms
    critic_key = random_keys.fold(key, "critics")
    critics = CriticEnsemble.create(critic_key, torso, hidden, *sizes, members=members, **kind)
    return td3.Nets(actor, critics)


def act(
    state: State, obs: Obs, key: Key[Array, ""], explore: bool
) -> tuple[Action, dict[str, Array]]:
    """Return the actor's action in the space's own shape, with noise where ``explore`` holds."""
    return td3.act(state, obs, key, explore)


def value(state: State, obs: Obs) -> Float[Array, "env"]:
    """Return Q(s, mu(s))."""
    return q_values(state.nets.critics, obs, state.nets.action(obs), state.config)[0]


def action_value(state: State, obs: Obs, action: Action) -> Float[Array, "env"]:
    """Return Q(s, a)."""
    return q_values(state.nets.critics, obs, action.reshape(len(action), -1), state.config)[0]


def q_values(
    critics: TwinCritics | CriticEnsemble, obs: Obs, action: Float[Array, "... n"], config: Any
) -> Float[Array, "member ..."]:
    """Return every critic's Q(s, a), the mean of its distribution."""
    return c51.q_values(logits(critics, obs, action), config)


def logits(
    critics: TwinCritics | CriticEnsemble, obs: Obs, action: Float[Array, "... n"]
) -> Float[Array, "member ... atom"]:
    """Return every critic's logits of p(s, a); ``critics`` is what ``create_networks`` made."""
    assert isinstance(critics, CriticEnsemble)
    return critics.outputs(obs, action)


def learn(state: State, batch: Record, key: Key[Array, ""]) -> tuple[State, Signals]:
    """Update critic and actor once on transitions ``(batch, ...)``, and the targets where they are
    due. ``key`` is not used."""
    config, nets = state.config, state.nets
    m = targets(state, batch)
    grads, (metrics, error) = jax.grad(critic_loss, has_aux=True)(nets.critics, batch, m, config)
    direction, critic_optimiser = adam().update(grads, state.critic_optimiser)
    critics = descend(nets.critics, direction, config.lr)
    updated = dataclasses.replace(
        state,
        nets=td3.Nets(nets.actor, critics),
        critic_optimiser=critic_optimiser,
        updates=state.updates + 1,
    )
    learned = td3.step_actor(updated, batch, partial(actor_loss, config=config))
    due = jnp.mod(learned.updates, config.target_period) == 0
    target = polyak(state.target, learned.nets, jnp.where(due, config.tau, 0.0))
    return dataclasses.replace(learned, target=target), Signals(metrics, {"td_error": error})


def targets(state: State, batch: Record) -> Float[Array, "member batch atom"]:
    """Return the m_i of the module docstring."""
    action = state.target.action(batch.next_obs)
    following = logits(state.target.critics, batch.next_obs, action)[0]
    return c51.projected(following, batch, state.config)[None]


def critic_loss(
    critics: CriticEnsemble, batch: Record, m: Float[Array, "member batch atom"], config: Any
) -> tuple[Float[Array, ""], tuple[dict[str, Array], Float[Array, "batch"]]]:
    """Return L_Z of the module docstring, summed over the critics, metrics, and each row's
    KL(m || p), the mean over the critics."""
    found = logits(critics, batch.obs, batch.action.reshape(batch.mask.size, -1))
    each = jax.vmap(lambda own, goal: c51.distribution_loss(own, batch, goal, config))
    losses, (metrics, divergence) = each(found, m)
    loss = losses.sum()
    metrics = {"loss/value": loss, "value/q": metrics["value/q"].mean()}
    return loss, (metrics, divergence.mean(0))


def actor_loss(
    actor: td3.Actor, critics: CriticEnsemble, batch: Record, config: Any
) -> Float[Array, ""]:
    """Return L_mu of the module docstring."""
    action = actor(critics.torso(batch.obs))
    return -masked_mean(q_values(critics, batch.obs, action, config)[0], batch.mask)
