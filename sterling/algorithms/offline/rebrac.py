"""ReBRAC: TD3+BC with two penalties and deep normalised critics (Tarasov 2023, arXiv:2305.09836).

    action      a'    = clip(mu'(s') + clip(e', -c, c), -1, 1),           e' ~ N(0, sigma'^2)
    target      y     = r + g ( min_i Q'_i(s', a') - beta_Q |a' - a_next|^2 )
    critics     L_Q   = 1/2 sum_i E[ w (Q_i(s, a) - y)^2 ]
    actor       L_mu  = E[ beta_mu |mu(s) - a|^2 - lambda min_i Q_i(s, mu(s)) ],
                        lambda = 1 / mean |min_i Q_i(s, mu(s))|       (every ``delay`` updates)

g is gamma times the world's discount; a_next is what the log did in s'; mu' and Q'_i follow by
``tau`` whenever the actor moves. With beta_Q = 0 this is TD3+BC (alpha = 1 / (dim(A) beta_mu)).

Where an episode ends, g is 0 and nothing is left of penalty or value. Where it is cut, the log did
nothing in s' and nobody can say how far from it a' is: such a row bootstraps without a penalty
rather than with a distance to an action that never was (the authors' loader drops the row).

Deviations from the paper: hidden layers are normalised before their activation, where the authors'
code does so after it; networks begin as TD3's; pictures are encoded by one torso that only the
critics' loss trains. Evidence: benchmarks/results/offline.md.
"""

from __future__ import annotations

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from gymnasium import spaces
from jaxtyping import Array, Float, Int, Key

from sterling import keys
from sterling.algorithms.online import td3
from sterling.equations.average import masked_mean
from sterling.equations.polyak import polyak
from sterling.equations.value import td_target
from sterling.field_types import Count, Depth, NotNegative, Share, Whole, Width
from sterling.nets.encoder import Encoder
from sterling.nets.ensemble import Twins
from sterling.nets.heads import Actions
from sterling.nets.mlp import MLP
from sterling.nets.normalise import ObsNormaliser
from sterling.nets.optimiser import adam, descend
from sterling.types import Action, Mistake, Obs, Record, Signals, Spec, Transitions, config


@config
class Config:
    """Defaults are the paper's; its penalties are tuned per dataset (its tables 8 and 9)."""

    lr: NotNegative = 1e-3  # Adam's step size, for critics and actor
    gamma: Share = 0.99  # discount per step
    tau: Share = 0.005  # share of the way that targets move with each update of the actor
    actor_penalty: NotNegative = 0.01  # beta_mu (D4RL locomotion 0.001 to 0.1)
    critic_penalty: NotNegative = 0.01  # beta_Q, in returns per squared action (0 to 0.5)
    layer_norm: bool = True  # normalise the critics' hidden layers
    exploration_noise: NotNegative = 0.1  # deviation of the noise on actions, once it acts
    target_noise: NotNegative = 0.2  # sigma': deviation of the noise on target actions
    noise_clip: Width = 0.5  # c: bound of that noise
    delay: Count = 2  # critic updates per update of actor and targets
    normalise_obs: bool = False  # centre and scale observations by the log's moments
    batch: Count = 1024  # transitions per update (antmaze 256)
    collect: Count = 1  # steps of each env per iteration, once it acts
    learn: Count = 1  # updates per iteration
    capacity: Count = 1_000_000  # transitions kept, over all envs of a seed, once it acts
    warmup: Whole = 0  # steps before the first update, once it acts
    width: Count = 256  # units per hidden layer
    depth: Depth = 3  # hidden layers, for vectors (after convolutions: one)


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
    """Uniform samples that know what was done next."""
    return Transitions(
        *(config.batch, config.collect, config.learn, config.capacity, config.warmup),
        next_action=True,
    )


def init(key: Key[Array, ""], spec: Spec, config: Config) -> State:
    """A new agent; raises :class:`Mistake` for actions that are not a box."""
    if not isinstance(spec.action, spaces.Box):
        others = "cql, iql or awac" if isinstance(spec.action, spaces.Discrete) else "bc"
        raise Mistake(f"rebrac cannot act in {spec.action}; use {others}")
    actions = Actions.of(spec.action)
    torso = Encoder.create(keys.fold(key, "torso"), spec.obs)
    hidden = (config.width,) * (config.depth if torso.is_flat else 1)
    net = MLP.uniform(keys.fold(key, "actor"), (torso.size, *hidden, actions.outputs))
    critics = Twins.create(
        keys.fold(key, "critics"), torso, hidden, actions.outputs, layer_norm=config.layer_norm
    )
    nets = td3.Nets(td3.Actor(net, actions), critics)
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


def learn(state: State, batch: Record, key: Key[Array, ""]) -> tuple[State, Signals]:
    """One update of the critics on transitions ``(batch, ...)``, every ``delay``-th also of actor
    and targets."""
    see = state.normaliser
    batch = dataclasses.replace(batch, obs=see(batch.obs), next_obs=see(batch.next_obs))
    y, far = target(state, batch, key)
    grads, (metrics, error) = jax.grad(td3.critic_loss, has_aux=True)(state.nets.critics, batch, y)
    direction, critic_optimiser = adam().update(grads, state.critic_optimiser)
    critics = descend(state.nets.critics, direction, state.config.lr)
    moved = State(
        td3.Nets(state.nets.actor, critics),
        state.target,
        critic_optimiser,
        state.actor_optimiser,
        state.updates + 1,
        see,
        state.config,
    )
    due = jnp.mod(moved.updates, state.config.delay) == 0
    learned = jax.lax.cond(due, lambda: delayed(moved, batch), lambda: moved)
    metrics = {**metrics, "policy/distance": masked_mean(far, batch.mask)}
    return learned, Signals(metrics, {"td_error": error})


def delayed(state: State, batch: Record) -> State:
    """One update of the actor, and of the targets."""
    penalty = state.config.actor_penalty
    grads = jax.grad(actor_loss)(state.nets.actor, state.nets.critics, batch, penalty)
    direction, actor_optimiser = adam().update(grads, state.actor_optimiser)
    actor = descend(state.nets.actor, direction, state.config.lr)
    nets = td3.Nets(actor, state.nets.critics)
    slow = polyak(state.target, nets, state.config.tau)
    moments = state.critic_optimiser, actor_optimiser
    return State(nets, slow, *moments, state.updates, state.normaliser, state.config)


def target(
    state: State, batch: Record, key: Key[Array, ""]
) -> tuple[Float[Array, "batch"], Float[Array, "batch"]]:
    """y of the module docstring, and |a' - a_next|^2, which is 0 where there is no next action."""
    config = state.config
    action = state.target.action(batch.next_obs)
    noise = config.target_noise * jax.random.normal(key, action.shape)
    noise = jnp.clip(noise, -config.noise_clip, config.noise_clip)
    action = jnp.clip(action + noise, -1.0, 1.0)
    done = batch.extras["next_action"].reshape(action.shape)
    far = jnp.where(batch.last, 0.0, jnp.sum(jnp.square(action - done), -1))
    next_value = jnp.minimum(*state.target.critics.of_action(batch.next_obs, action))
    next_value = next_value - config.critic_penalty * far
    return td_target(batch.reward, config.gamma * batch.discount, next_value), far


def actor_loss(
    actor: td3.Actor, critics: Twins, batch: Record, penalty: Float[Array, ""] | float
) -> Float[Array, ""]:
    """L_mu of the module docstring."""
    logged: Array = batch.action
    action = actor(critics.torso(batch.obs))
    q = jnp.minimum(*critics.of_action(batch.obs, action))
    scale = jax.lax.stop_gradient(masked_mean(jnp.abs(q), batch.mask))
    distance = jnp.sum(jnp.square(action - logged.reshape(action.shape)), -1)
    return masked_mean(penalty * distance - q / jnp.maximum(scale, 1e-6), batch.mask)
