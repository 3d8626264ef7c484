"""TD3+BC: twin delayed policy gradient held near the log (Fujimoto 2021, arXiv:2106.06860).

    critics   as TD3's (``online/td3.py``)
    actor     L_mu = -lambda E[ Q_1(s, mu(s)) ] + E[ |mu(s) - a|^2 ] / dim(A),
              lambda = alpha / mean |Q_1(s, mu(s))|                    (every ``delay`` updates)

Observations are centred and scaled by the log's moments. While it acts it explores as TD3 does;
``alpha`` may then change (``online={"alpha": ...}``), as the paper's successors let it.
Deviations from the paper: those of TD3 here. Evidence: benchmarks/results/offline.md.
"""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from gymnasium import spaces
from jaxtyping import Array, Float, Int, Key

from sterling.algorithms.online import td3
from sterling.equations.average import masked_mean
from sterling.equations.polyak import polyak
from sterling.field_types import Count, Depth, NotNegative, Share, Whole, Width
from sterling.nets.ensemble import Twins
from sterling.nets.normalise import ObsNormaliser
from sterling.nets.optimiser import adam, descend
from sterling.types import Action, Mistake, Obs, Record, Signals, Spec, Transitions, config


@config
class Config:
    """Defaults are the paper's (its table 3), in units of actions."""

    alpha: NotNegative = 2.5  # weight of the value against imitation
    lr: NotNegative = 3e-4  # Adam's step size, for critics and actor
    gamma: Share = 0.99  # discount per step
    tau: Share = 0.005  # share of the way that targets move with each update of the actor
    exploration_noise: NotNegative = 0.1  # deviation of the noise on actions, once it acts
    target_noise: NotNegative = 0.2  # deviation of the noise on target actions
    noise_clip: Width = 0.5  # bound of that noise
    delay: Count = 2  # critic updates per update of actor and targets
    normalise_obs: bool = True  # centre and scale observations by the log's moments
    batch: Count = 256  # transitions per update
    collect: Count = 1  # steps of each env per iteration, once it acts
    learn: Count = 1  # updates per iteration
    capacity: Count = 1_000_000  # transitions kept, over all envs of a seed, once it acts
    warmup: Whole = 0  # steps before the first update, once it acts
    width: Count = 256  # units per hidden layer
    depth: Depth = 2  # hidden layers, for vectors (after convolutions: one)


class State(eqx.Module):
    """Everything that changes."""

    nets: td3.Nets
    target: td3.Nets
    critic_optimiser: optax.OptState
    actor_optimiser: optax.OptState
    updates: Int[Array, ""]  # of the critics
    normaliser: ObsNormaliser
    config: Config


def needs(config: Config) -> Transitions:
    """Uniform samples."""
    return Transitions(config.batch, config.collect, config.learn, config.capacity, config.warmup)


def init(key: Key[Array, ""], spec: Spec, config: Config) -> State:
    """A new agent; raises :class:`Mistake` for actions that are not a box."""
    if not isinstance(spec.action, spaces.Box):
        others = "cql, iql or awac" if isinstance(spec.action, spaces.Discrete) else "bc"
        raise Mistake(f"td3bc cannot act in {spec.action}; use {others}")
    nets = td3.networks(key, spec, config.width, config.depth)
    return State(
        nets,
        jax.tree.map(jnp.copy, nets),
        adam().init(nets.critics),
        adam().init(nets.actor),
        jnp.zeros((), jnp.int32),
        ObsNormaliser.of_log(spec, config.normalise_obs),
        config,
    )


def act(
    state: State, obs: Obs, key: Key[Array, ""], explore: bool
) -> tuple[Action, dict[str, Array]]:
    """The actor's action, with noise to explore."""
    return td3.act(state, state.normaliser(obs), key, explore)


def value(state: State, obs: Obs) -> Float[Array, "env"]:
    """The smaller critic's value of the actor's action."""
    return td3.value(state, state.normaliser(obs))


def action_value(state: State, obs: Obs, action: Action) -> Float[Array, "env"]:
    """The smaller critic's value of actions."""
    return td3.action_value(state, state.normaliser(obs), action)


def learn(state: State, batch: Record, key: Key[Array, ""]) -> tuple[State, Signals]:
    """One update of the critics on transitions ``(batch, ...)``, every ``delay``-th also of actor
    and targets."""
    batch = state.normaliser.batch(batch)
    y = td3.target(state, batch, key)
    grads, (metrics, error) = jax.grad(td3.critic_loss, has_aux=True)(state.nets.critics, batch, y)
    direction, critic_optimiser = adam().update(grads, state.critic_optimiser)
    critics = descend(state.nets.critics, direction, state.config.lr)
    moved = State(
        td3.Nets(state.nets.actor, critics),
        state.target,
        critic_optimiser,
        state.actor_optimiser,
        state.updates + 1,
        state.normaliser,
        state.config,
    )
    due = jnp.mod(moved.updates, state.config.delay) == 0
    learned = jax.lax.cond(due, lambda: delayed(moved, batch), lambda: moved)
    return learned, Signals(metrics, {"td_error": error})


def delayed(state: State, batch: Record) -> State:
    """One update of the actor, and of the targets."""
    grads = jax.grad(actor_loss)(state.nets.actor, state.nets.critics, batch, state.config.alpha)
    direction, actor_optimiser = adam().update(grads, state.actor_optimiser)
    actor = descend(state.nets.actor, direction, state.config.lr)
    nets = td3.Nets(actor, state.nets.critics)
    slow = polyak(state.target, nets, state.config.tau)
    moments = state.critic_optimiser, actor_optimiser
    return State(nets, slow, *moments, state.updates, state.normaliser, state.config)


def actor_loss(
    actor: td3.Actor, critics: Twins, batch: Record, alpha: Float[Array, ""] | float
) -> Float[Array, ""]:
    """L_mu of the module docstring."""
    logged: Array = batch.action
    action = actor(critics.torso(batch.obs))
    q, _ = critics.of_action(batch.obs, action)
    scale = alpha / jax.lax.stop_gradient(masked_mean(jnp.abs(q), batch.mask))
    distance = jnp.mean(jnp.square(action - logged.reshape(action.shape)), -1)
    return masked_mean(distance, batch.mask) - scale * masked_mean(q, batch.mask)
