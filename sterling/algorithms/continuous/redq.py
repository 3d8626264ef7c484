"""Randomised ensembled double Q-learning (Chen 2021, arXiv:2101.05982), for continuous actions.

    target       y     = r + g (min_{i in M} Q'_i(s', a') - alpha log pi(a'|s')),  a' ~ pi(.|s')
    critics      L_Q   = 1/2 sum_i E[ w (Q_i(s, a) - y)^2 ],                       i = 1 ... N
    actor        L_pi  = E[ alpha log pi(a|s) - 1/N sum_i Q_i(s, a) ],             a ~ pi(.|s)
    temperature  L_a   = E[ alpha (H(pi(.|s)) + dim(A)) ]

M are ``subset`` of the N = ``members`` critics, drawn for each update without replacement; g is
gamma times the environment's discount; Q'_i follow at rate ``tau`` per update; w is 1, or
prioritised replay's importance weight. Critics are updated ``learn`` times for each collected step;
actor and temperature at every ``delay``-th of these updates, on its batch (algorithm 1: once for
each step). Many updates for a step overfit a single critic. The minimum over two of many
overestimates little, and its errors differ from update to update. pi is SAC's.

Deviations from the paper: the critics' loss is halved, which Adam does not see; H_target is
-dim(A), where the authors' code takes values of its own for MuJoCo's tasks (``target_entropy``);
images are encoded by one torso, which only the critics' loss trains. "policy/entropy" is measured
in s'. With seeds under ``vmap`` the actor's update is computed every time and its result dropped if
not due.
Evidence: none at published scale yet; probe worlds and an oracle in tests/contract/.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, Int, Key

from sterling import random_keys
from sterling.algorithms.online import sac
from sterling.equations import soft_values
from sterling.equations.masked_average import masked_mean
from sterling.equations.polyak import polyak
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
View = Callable[[CriticEnsemble, Key[Array, ""]], Any]  # what one forward pass sees of the critics


@config
class Config:
    """Defaults are those of the paper for MuJoCo (table 2)."""

    lr: NotNegative = 3e-4  # Adam's step size, for critics, actor and temperature
    gamma: Share = 0.99  # discount per step
    tau: Share = 0.005  # rate at which target critics follow, per update
    members: Count = 10  # N: critics
    subset: Count = 2  # critics drawn for each target
    delay: Count = 20  # updates of the critics per update of actor and temperature
    alpha: NotNegative = 1.0  # initial temperature; constant without tune_alpha
    tune_alpha: bool = True  # tune alpha so that the policy's entropy stays at target_entropy
    target_entropy: Finite | None = None  # nats; None: -dim(A)
    batch: Count = 256  # transitions per update
    collect: Count = 1  # steps of each env per iteration
    learn: Count = 20  # updates per iteration
    capacity: Count = 1_000_000  # replay capacity in transitions, per seed
    warmup: Whole = 5_000  # steps with random actions before the first update
    n_step: Count = 1  # rewards summed before bootstrapping
    priority: NotNegative | None = None  # exponent of prioritised replay (0.6); None: uniform
    correction: Share = 0.4  # exponent of the importance weights of prioritised replay (constant)
    width: Sizes = 256  # units per hidden layer, or of each layer such as 400,300
    depth: Depth = 2  # hidden layers, for vectors (after convolutions: one)
    activation: Activation = "relu"  # tanh, relu, silu, elu or gelu
    layer_norm: bool = False  # normalise the critics' hidden layers


class State(eqx.Module):
    """Everything that changes during training."""

    actor: Policy
    critics: CriticEnsemble
    target: CriticEnsemble
    log_alpha: Float[Array, ""]
    optimisers: tuple[optax.OptState, optax.OptState, optax.OptState]  # critics, actor, alpha
    updates: Int[Array, ""]  # of the critics
    config: Any  # of this file, or with the same fields


def needs(config: Any) -> Transitions:
    """Ask for transitions from a uniform or prioritised replay buffer."""
    return Transitions.of_config(config)


def init(key: Key[Array, ""], spec: Spec, config: Config) -> State:
    """Create an agent. Raises :class:`Mistake` for actions that are no Box, and for a ``subset`` of
    more critics than there are."""
    return create("redq", key, spec, config)


def create(name: str, key: Key[Array, ""], spec: Spec, config: Any) -> State:
    """Create an agent for the algorithm ``name``, whose Config has this file's fields."""
    actions = supported_actions(name, spec.action, ("box",), ONLINE)
    if config.subset > config.members:
        raise Mistake(f"subset={config.subset} exceeds members={config.members}. Lower it.")
    torso = Encoder.create(random_keys.fold(key, "torso"), spec)
    hidden = torso.hidden_sizes(config.width, config.depth)
    actor_key, critic_key = (random_keys.fold(key, part) for part in ("actor", "critics"))
    kind: Any = {"activation": config.activation}
    actor = Policy.create(actor_key, (torso.size, *hidden), actions, **kind)
    actor = dataclasses.replace(actor, net=without_unseen_features(actor.net, torso, spec))
    kind |= {"members": config.members, "layer_norm": config.layer_norm}
    critics = CriticEnsemble.create(critic_key, torso, hidden, *actions.critic_sizes, **kind)
    log_alpha = jnp.log(soft_values.initial_alpha(config.alpha, config.tune_alpha))
    optimisers = adam().init(critics), adam().init(actor), adam().init(log_alpha)
    copy, none = jax.tree.map(jnp.copy, critics), jnp.zeros((), jnp.int32)
    return State(actor, critics, copy, log_alpha, optimisers, none, config)


def act(
    state: State, obs: Obs, key: Key[Array, ""], explore: bool
) -> tuple[Action, dict[str, Array]]:
    """Return a sample of the policy, or its mode without ``explore``, in the space's shape."""
    return sac.act(state, obs, key, explore)


def log_prob(state: State, obs: Obs, action: Action) -> Float[Array, "env"]:
    """Return log pi(a|s) of actions in the form that ``act`` returns."""
    return sac.log_prob(state, obs, action)


def value(state: State, obs: Obs) -> Float[Array, "env"]:
    """Return the critics' mean value of the policy's mode."""
    pi = state.actor(obs, state.critics.torso(obs))
    return state.critics.q_values(obs, pi.mode()).mean(0)


def action_value(state: State, obs: Obs, action: Action) -> Float[Array, "env"]:
    """Return the mean of all Q_i(s, a)."""
    return state.critics.q_values(obs, state.actor.actions.flat(action)).mean(0)


def whole(critics: CriticEnsemble, key: Key[Array, ""]) -> CriticEnsemble:
    """Return the critics as they are, as the :data:`View` of every forward pass."""
    return critics


def learn(
    state: State, batch: Record, key: Key[Array, ""], view: View = whole
) -> tuple[State, Signals]:
    """Update the critics once on transitions ``(batch, ...)``, every ``delay``-th time also actor
    and temperature. Each forward pass of critics goes through ``view(critics, key)``, which has
    ``torso`` and ``q_values``; its key is of its own."""
    critic_state, *others = state.optimisers
    y, entropy = target(state, batch, random_keys.fold(key, "next"), view)
    now = random_keys.fold(key, "critics")

    def loss(critics: CriticEnsemble) -> Any:
        return critic_loss(view(critics, now), batch, y)

    grads, (metrics, error) = jax.grad(loss, has_aux=True)(state.critics)
    direction, critic_state = adam().update(grads, critic_state)
    critics = descend(state.critics, direction, state.config.lr)
    updated = dataclasses.replace(
        state,
        critics=critics,
        target=polyak(state.target, critics, state.config.tau),
        optimisers=(critic_state, *others),
        updates=state.updates + 1,
    )
    due = jnp.mod(updated.updates, state.config.delay) == 0
    now = random_keys.fold(key, "now")
    learned = jax.lax.cond(due, lambda: update_actor(updated, batch, now, view), lambda: updated)
    metrics |= {"policy/entropy": entropy, "policy/alpha": jnp.exp(state.log_alpha)}
    return learned, Signals(metrics, {"td_error": error})


def target(
    state: State, batch: Record, key: Key[Array, ""], view: View
) -> tuple[Float[Array, "batch"], Float[Array, ""]]:
    """Return the targets y of the module docstring, and the policy's mean entropy in s'."""
    config, alpha = state.config, jnp.exp(state.log_alpha)
    pi = state.actor(batch.next_obs, state.critics.torso(batch.next_obs))
    action, log_p = pi.sample_and_log_prob(key)
    order = jax.random.permutation(random_keys.fold(key, "members"), config.members)
    drawn = state.target.take_members(order[: config.subset])
    q = view(drawn, random_keys.fold(key, "critics")).q_values(batch.next_obs, action).min(0)
    soft = soft_values.soft_value(q, log_p, alpha)
    y = td_target(batch.reward, config.gamma * batch.discount, soft)
    return y, masked_mean(-log_p, batch.mask)


def critic_loss(
    critics: Any, batch: Record, y: Float[Array, "batch"]
) -> tuple[Float[Array, ""], tuple[dict[str, Array], Float[Array, "batch"]]]:
    """Return L_Q of the module docstring, metrics, and |TD error| per row (mean over members)."""
    q = critics.q_values(batch.obs, batch.action.reshape(len(y), -1))
    weight = batch.extras.get("weight", jnp.ones_like(y))
    error = q - y[None]
    loss = masked_mean(weight * 0.5 * jnp.sum(jnp.square(error), 0), batch.mask)
    metrics = {
        "loss/value": loss,
        "value/q": masked_mean(q.mean(0), batch.mask),
        "value/spread": masked_mean(jnp.std(q, 0), batch.mask),
    }
    return loss, (metrics, jnp.mean(jnp.abs(error), 0))


def update_actor(state: State, batch: Record, key: Key[Array, ""], view: View) -> State:
    """Update actor and temperature once."""
    config, (critic_state, actor_state, alpha_state) = state.config, state.optimisers
    critics = view(state.critics, random_keys.fold(key, "critics"))
    grads, entropy = jax.grad(actor_loss, has_aux=True)(state.actor, critics, state, batch, key)
    direction, actor_state = adam().update(grads, actor_state)
    actor, log_alpha = descend(state.actor, direction, config.lr), state.log_alpha
    if config.tune_alpha:
        goal = sac.target_entropy(actor.actions, config.target_entropy, batch.obs, share=1.0)
        grads = jax.grad(sac.alpha_loss)(log_alpha, entropy, goal, batch)
        direction, alpha_state = adam().update(grads, alpha_state)
        log_alpha = descend(log_alpha, direction, config.lr)
    optimisers = (critic_state, actor_state, alpha_state)
    return dataclasses.replace(state, actor=actor, log_alpha=log_alpha, optimisers=optimisers)


def actor_loss(
    actor: Policy, critics: Any, state: State, batch: Record, key: Key[Array, ""]
) -> tuple[Float[Array, ""], Float[Array, "batch"]]:
    """Return L_pi of the module docstring and each row's estimate of the entropy."""
    action, log_p = actor(batch.obs, state.critics.torso(batch.obs)).sample_and_log_prob(key)
    q = critics.q_values(batch.obs, action).mean(0)
    soft = soft_values.soft_value(q, log_p, jnp.exp(state.log_alpha))
    return -masked_mean(soft, batch.mask), -log_p
