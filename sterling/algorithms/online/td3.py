"""Twin delayed deep deterministic policy gradient (Fujimoto 2018, arXiv:1802.09477).

    action      a'    = clip(mu'(s') + clip(e', -c, c), -1, 1),       e' ~ N(0, sigma'^2)
    target      y     = r + g min_i Q'_i(s', a')
    critics     L_Q   = 1/2 sum_i E[ w (Q_i(s, a) - y)^2 ]
    actor       L_mu  = -E[ Q_1(s, mu(s)) ]                           (every ``delay`` updates)
    behaviour   a     = clip(mu(s) + e, -1, 1),                       e ~ N(0, sigma^2)

g is gamma times the world's discount; mu' and Q'_i follow mu and Q_i by ``tau`` whenever the actor
moves; w is 1, or the importance weight of prioritised replay.

Deviations from the paper: networks and step size are those of the authors' later code; pictures
are encoded by one torso, which only the critics' loss trains and the actor looks through; a sum of
``n_step`` rewards is not corrected for the policy having changed; ``correction`` of prioritised
replay stays what it is, as in Dopamine's Rainbow (Schaul 2016, arXiv:1511.05952, anneals it to 1).
In a program with seeds under ``vmap`` the delayed update is computed every time and then dropped;
under ``map`` and ``processes`` it costs nothing.
Evidence: benchmarks/scores/, docs/scores.md.
"""

from __future__ import annotations

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from gymnasium import spaces
from jaxtyping import Array, Float, Int, Key

from sterling import keys
from sterling.equations.average import masked_mean
from sterling.equations.polyak import polyak
from sterling.equations.value import td_target
from sterling.field_types import Count, Depth, NotNegative, Share, Whole, Width
from sterling.nets.encoder import Encoder
from sterling.nets.ensemble import Twins
from sterling.nets.heads import Actions
from sterling.nets.mlp import MLP
from sterling.nets.optimiser import adam, descend
from sterling.types import Action, Mistake, Obs, Record, Signals, Spec, Transitions, config


@config
class Config:
    """Defaults are those of the authors' code (github.com/sfujim/TD3), in units of actions."""

    lr: NotNegative = 3e-4  # Adam's step size, for critics and actor
    gamma: Share = 0.99  # discount per step
    tau: Share = 0.005  # share of the way that targets move with each update of the actor
    exploration_noise: NotNegative = 0.1  # sigma: deviation of the noise on actions taken
    target_noise: NotNegative = 0.2  # sigma': deviation of the noise on target actions
    noise_clip: Width = 0.5  # c: bound of that noise
    delay: Count = 2  # critic updates per update of actor and targets
    batch: Count = 256  # transitions per update
    collect: Count = 1  # steps of each env per iteration
    learn: Count = 1  # updates per iteration
    capacity: Count = 1_000_000  # transitions kept, over all envs of a seed
    warmup: Whole = 25_000  # steps with random actions before the first update
    n_step: Count = 1  # rewards summed before bootstrapping
    priority: NotNegative | None = None  # exponent of prioritised replay (0.6); None: uniform
    correction: Share = 0.4  # exponent of its importance weights, constant
    width: Count = 256  # units per hidden layer
    depth: Depth = 2  # hidden layers, for vectors (after convolutions: one)


class Actor(eqx.Module):
    """mu(s), from the features of an observation; in (-1, 1), flat."""

    net: MLP
    actions: Actions = eqx.field(static=True)

    def __call__(self, features: Float[Array, "... features"]) -> Float[Array, "... n"]:
        """tanh of a network."""
        return jnp.tanh(self.net(features))


class Nets(eqx.Module):
    """Actor and critics."""

    actor: Actor
    critics: Twins

    def action(self, obs: Obs) -> Float[Array, "... n"]:
        """mu(s)."""
        return self.actor(self.critics.torso(obs))


class State(eqx.Module):
    """Everything that changes."""

    nets: Nets
    target: Nets
    critic_optimiser: optax.OptState
    actor_optimiser: optax.OptState
    updates: Int[Array, ""]  # of the critics
    config: Config


def needs(config: Config) -> Transitions:
    """Uniform or prioritised replay."""
    return Transitions.of_config(config)


def init(key: Key[Array, ""], spec: Spec, config: Config) -> State:
    """A new agent; raises :class:`Mistake` for actions that are not a box."""
    if not isinstance(spec.action, spaces.Box):
        others = "dqn, sac or ppo" if isinstance(spec.action, spaces.Discrete) else "ppo"
        raise Mistake(f"td3 cannot act in {spec.action}; use {others}")
    nets = networks(key, spec, config.width, config.depth)
    return State(
        nets,
        jax.tree.map(jnp.copy, nets),
        adam().init(nets.critics),
        adam().init(nets.actor),
        jnp.zeros((), jnp.int32),
        config,
    )


def networks(key: Key[Array, ""], spec: Spec, width: int, depth: int) -> Nets:
    """Actor and critics for a problem."""
    actions = Actions.of(spec.action)
    torso = Encoder.create(keys.fold(key, "torso"), spec.obs)
    hidden = (width,) * (depth if torso.is_flat else 1)
    net = MLP.uniform(keys.fold(key, "actor"), (torso.size, *hidden, actions.outputs))
    critics = Twins.create(keys.fold(key, "critics"), torso, hidden, actions.outputs)
    return Nets(Actor(net, actions), critics)


def act(
    state: Any, obs: Obs, key: Key[Array, ""], explore: bool
) -> tuple[Action, dict[str, Array]]:
    """The actor's action, with noise to explore, in the space's own shape.

    Here, in ``value`` and in ``target`` a state is anything with ``nets``, ``target`` and
    ``config``, so that learners which differ only in their losses can call them.
    """
    action = state.nets.action(obs)
    if explore:
        noise = state.config.exploration_noise * jax.random.normal(key, action.shape)
        action = jnp.clip(action + noise, -1.0, 1.0)
    return action.reshape(*action.shape[:-1], *state.nets.actor.actions.sizes), {}


def value(state: Any, obs: Obs) -> Float[Array, "env"]:
    """The smaller critic's value of the actor's action."""
    return jnp.minimum(*state.nets.critics.of_action(obs, state.nets.action(obs)))


def action_value(state: Any, obs: Obs, action: Action) -> Float[Array, "env"]:
    """The smaller critic's value of actions."""
    return jnp.minimum(*state.nets.critics.of_action(obs, action.reshape(len(action), -1)))


def learn(state: State, batch: Record, key: Key[Array, ""]) -> tuple[State, Signals]:
    """One update of the critics on transitions ``(batch, ...)``, every ``delay``-th also of actor
    and targets."""
    y = target(state, batch, key)
    grads, (metrics, error) = jax.grad(critic_loss, has_aux=True)(state.nets.critics, batch, y)
    direction, critic_optimiser = adam().update(grads, state.critic_optimiser)
    critics = descend(state.nets.critics, direction, state.config.lr)
    moved = State(
        Nets(state.nets.actor, critics),
        state.target,
        critic_optimiser,
        state.actor_optimiser,
        state.updates + 1,
        state.config,
    )
    due = jnp.mod(moved.updates, state.config.delay) == 0
    learned = jax.lax.cond(due, lambda: delayed(moved, batch), lambda: moved)
    return learned, Signals(metrics, {"td_error": error})


def delayed(state: State, batch: Record) -> State:
    """One update of the actor, and of the targets."""
    grads = jax.grad(actor_loss)(state.nets.actor, state.nets.critics, batch)
    direction, actor_optimiser = adam().update(grads, state.actor_optimiser)
    actor = descend(state.nets.actor, direction, state.config.lr)
    nets = Nets(actor, state.nets.critics)
    slow = polyak(state.target, nets, state.config.tau)
    return State(nets, slow, state.critic_optimiser, actor_optimiser, state.updates, state.config)


def target(state: Any, batch: Record, key: Key[Array, ""]) -> Float[Array, "batch"]:
    """y of the module docstring."""
    config = state.config
    action = state.target.action(batch.next_obs)
    noise = config.target_noise * jax.random.normal(key, action.shape)
    noise = jnp.clip(noise, -config.noise_clip, config.noise_clip)
    action = jnp.clip(action + noise, -1.0, 1.0)
    next_value = jnp.minimum(*state.target.critics.of_action(batch.next_obs, action))
    return td_target(batch.reward, config.gamma * batch.discount, next_value)


def critic_loss(
    critics: Twins, batch: Record, y: Float[Array, "batch"]
) -> tuple[Float[Array, ""], tuple[dict[str, Array], Float[Array, "batch"]]]:
    """L_Q of the module docstring; also each row's |TD error|, averaged over the critics."""
    action: Array = batch.action
    values = critics.of_action(batch.obs, action.reshape(batch.mask.size, -1))
    weight = batch.extras.get("weight", jnp.ones_like(y))
    errors = jnp.stack([q - y for q in values])
    loss = masked_mean(weight * 0.5 * jnp.sum(jnp.square(errors), 0), batch.mask)
    metrics = {"loss/value": loss, "value/q": masked_mean(values[0], batch.mask)}
    return loss, (metrics, jnp.mean(jnp.abs(errors), 0))


def actor_loss(actor: Actor, critics: Twins, batch: Record) -> Float[Array, ""]:
    """L_mu of the module docstring."""
    action = actor(critics.torso(batch.obs))
    first, _ = critics.of_action(batch.obs, action)
    return -masked_mean(first, batch.mask)
