"""Twin delayed deep deterministic policy gradient (Fujimoto 2018, arXiv:1802.09477).

    action      a'    = clip(mu'(s') + clip(e', -c, c), -1, 1),       e' ~ N(0, sigma'^2)
    target      y     = r + g min_i Q'_i(s', a')
    critics     L_Q   = 1/2 sum_i E[ w (Q_i(s, a) - y)^2 ]
    actor       L_mu  = -E[ Q_1(s, mu(s)) ]                           (every ``delay`` updates)
    behaviour   a     = clip(mu(s) + e, -1, 1),                       e ~ N(0, sigma^2)

g is gamma times the environment's discount; mu' and Q'_i follow mu and Q_i at rate ``tau`` whenever
the actor is updated; w is 1, or prioritised replay's importance weight.

Deviations from the paper: networks and step size are those of the authors' later code; images are
encoded by one torso, which the actor uses but only the critics' loss trains; a sum of ``n_step``
rewards is not corrected for the policy's change; ``correction`` of prioritised replay is constant,
as in Dopamine's Rainbow (Schaul 2016, arXiv:1511.05952, anneals it to 1).
With seeds under ``vmap`` the delayed update is computed every time and its result dropped if not
due; under ``map`` and ``processes`` it is skipped.
Evidence: benchmarks/scores/, docs/scores.md.
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
from sterling.equations.masked_average import masked_mean
from sterling.equations.polyak import polyak
from sterling.equations.value_losses import td_target
from sterling.field_types import Activation, Count, Depth, NotNegative, Share, Sizes, Whole, Width
from sterling.nets.action_heads import ONLINE, Actions, supported_actions
from sterling.nets.encoding.unseen_features import without_unseen_features
from sterling.nets.mlp import MLP
from sterling.nets.obs_encoder import Encoder
from sterling.nets.optimiser import adam, descend
from sterling.nets.q_ensemble import CriticEnsemble, TwinCritics
from sterling.types import Action, Obs, Record, Signals, Spec, Transitions, config

can_use_unseen = True  # by the critics


@config
class Config:
    """Defaults are those of the authors' code (github.com/sfujim/TD3), in units of actions."""

    lr: NotNegative = 3e-4  # Adam's step size, for critics and actor
    gamma: Share = 0.99  # discount per step
    tau: Share = 0.005  # rate at which targets follow, per update of the actor
    exploration_noise: NotNegative = 0.1  # sigma: standard deviation of exploration noise
    target_noise: NotNegative = 0.2  # sigma': standard deviation of the noise on target actions
    noise_clip: Width = 0.5  # c: bound of the noise on target actions
    delay: Count = 2  # critic updates per update of actor and targets
    batch: Count = 256  # transitions per update
    collect: Count = 1  # steps of each env per iteration
    learn: Count = 1  # updates per iteration
    capacity: Count = 1_000_000  # replay capacity in transitions, per seed
    warmup: Whole = 25_000  # steps with random actions before the first update
    n_step: Count = 1  # rewards summed before bootstrapping
    priority: NotNegative | None = None  # exponent of prioritised replay (0.6); None: uniform
    correction: Share = 0.4  # exponent of the importance weights of prioritised replay (constant)
    width: Sizes = 256  # units per hidden layer, or of each layer such as 400,300
    depth: Depth = 2  # hidden layers, for vectors (after convolutions: one)
    activation: Activation = "relu"  # tanh, relu, silu, elu or gelu
    layer_norm: bool = False  # normalise the critics' hidden layers


class Actor(eqx.Module):
    """mu(s), given the features of an observation; flat, in (-1, 1)."""

    net: MLP
    actions: Actions = eqx.field(static=True)

    def __call__(self, features: Float[Array, "... features"]) -> Float[Array, "... n"]:
        """Return tanh of the network's output."""
        return jnp.tanh(self.net(features))


class Nets(eqx.Module):
    """Actor and critics; learners that call this file's functions may have a single critic."""

    actor: Actor
    critics: TwinCritics | CriticEnsemble

    def action(self, obs: Obs) -> Float[Array, "... n"]:
        """Return mu(s)."""
        return self.actor(self.critics.torso(obs))


ActorLoss = Callable[[Actor, TwinCritics, Record], Float[Array, ""]]


class State(eqx.Module):
    """Everything that changes during training."""

    nets: Nets
    target: Nets
    critic_optimiser: optax.OptState
    actor_optimiser: optax.OptState
    updates: Int[Array, ""]  # of the critics
    config: Config


def needs(config: Config) -> Transitions:
    """Ask for transitions from a uniform or prioritised replay buffer."""
    return Transitions.of_config(config)


def init(key: Key[Array, ""], spec: Spec, config: Config) -> State:
    """Create an agent. Raises :class:`Mistake` for action spaces other than Box."""
    supported_actions("td3", spec.action, ("box",), ONLINE)
    nets = create_networks(key, spec, config)
    return State(
        nets,
        jax.tree.map(jnp.copy, nets),
        adam().init(nets.critics),
        adam().init(nets.actor),
        jnp.zeros((), jnp.int32),
        config,
    )


def create_networks(key: Key[Array, ""], spec: Spec, config: Any) -> Nets:
    """Create actor and critics, for any Config with this file's fields of networks."""
    torso = Encoder.create(random_keys.fold(key, "torso"), spec)
    hidden = torso.hidden_sizes(config.width, config.depth)
    actor = create_actor(key, torso, spec, config)
    kind = {"activation": config.activation, "layer_norm": config.layer_norm}
    critic_key = random_keys.fold(key, "critics")
    critics = TwinCritics.create(critic_key, torso, hidden, actor.actions.outputs, **kind)
    return Nets(actor, critics)


def create_actor(key: Key[Array, ""], torso: Encoder, spec: Spec, config: Any) -> Actor:
    """Create an actor on the torso of the critics."""
    actions = Actions.from_space(spec.action)
    sizes = (torso.size, *torso.hidden_sizes(config.width, config.depth), actions.outputs)
    net = MLP.uniform(random_keys.fold(key, "actor"), sizes, config.activation)
    return Actor(without_unseen_features(net, torso, spec), actions)


def act(
    state: Any, obs: Obs, key: Key[Array, ""], explore: bool
) -> tuple[Action, dict[str, Array]]:
    """Return the actor's action in the space's own shape, with noise where ``explore`` holds.

    Here, in ``value`` and in ``target``, ``state`` may be any object with ``nets``, ``target`` and
    ``config``, so that learners that differ only in their losses can call these functions.
    """
    action = state.nets.action(obs)
    if explore:
        noise = state.config.exploration_noise * jax.random.normal(key, action.shape)
        action = jnp.clip(action + noise, -1.0, 1.0)
    return action.reshape(*action.shape[:-1], *state.nets.actor.actions.sizes), {}


def value(state: Any, obs: Obs) -> Float[Array, "env"]:
    """Return min_i Q_i(s, mu(s)), the smaller critic's value of the actor's action."""
    return jnp.minimum(*state.nets.critics.q_values(obs, state.nets.action(obs)))


def action_value(state: Any, obs: Obs, action: Action) -> Float[Array, "env"]:
    """Return min_i Q_i(s, a)."""
    return jnp.minimum(*state.nets.critics.q_values(obs, action.reshape(len(action), -1)))


def learn(state: State, batch: Record, key: Key[Array, ""]) -> tuple[State, Signals]:
    """Update the critics once on transitions ``(batch, ...)``, every ``delay``-th time also the
    actor and the targets."""
    return learn_from_targets(state, batch, target(state, batch, key), actor_loss)


def learn_from_targets(
    state: Any, batch: Record, y: Float[Array, "batch"], loss: ActorLoss, of_critics: Any = None
) -> tuple[Any, Signals]:
    """Update the critics once towards ``y``, every ``delay``-th time also the actor, by ``loss``,
    and the targets. ``state`` may be any dataclass with the fields of :class:`State`."""
    updated, signals = update_critics(state, batch, y, of_critics or critic_loss)
    due = jnp.mod(updated.updates, state.config.delay) == 0
    learned = jax.lax.cond(due, lambda: update_actor(updated, batch, loss), lambda: updated)
    return learned, signals


def update_critics(
    state: Any, batch: Record, y: Float[Array, "batch"], loss: Callable[..., Any]
) -> tuple[Any, Signals]:
    """Update the critics once towards ``y``, by a loss like ``critic_loss``; count the update."""
    grads, (metrics, error) = jax.grad(loss, has_aux=True)(state.nets.critics, batch, y)
    direction, critic_optimiser = adam().update(grads, state.critic_optimiser)
    critics = descend(state.nets.critics, direction, state.config.lr)
    nets, count = Nets(state.nets.actor, critics), state.updates + 1
    fresh = {"nets": nets, "critic_optimiser": critic_optimiser, "updates": count}
    updated = dataclasses.replace(state, **fresh)
    return updated, Signals(metrics, {"td_error": error})


def update_actor(state: Any, batch: Record, loss: ActorLoss) -> Any:
    """Update the actor once by ``loss``, and move the targets."""
    learned = step_actor(state, batch, loss)
    target = polyak(learned.target, learned.nets, state.config.tau)
    return dataclasses.replace(learned, target=target)


def step_actor(state: Any, batch: Record, loss: Callable[..., Float[Array, ""]]) -> Any:
    """Update the actor once by ``loss``; the targets stay."""
    grads = jax.grad(loss)(state.nets.actor, state.nets.critics, batch)
    direction, actor_optimiser = adam().update(grads, state.actor_optimiser)
    nets = Nets(descend(state.nets.actor, direction, state.config.lr), state.nets.critics)
    return dataclasses.replace(state, nets=nets, actor_optimiser=actor_optimiser)


def target(state: Any, batch: Record, key: Key[Array, ""]) -> Float[Array, "batch"]:
    """Return the targets y of the module docstring."""
    action = target_action(state, batch, key)
    next_value = jnp.minimum(*state.target.critics.q_values(batch.next_obs, action))
    return td_target(batch.reward, state.config.gamma * batch.discount, next_value)


def target_action(state: Any, batch: Record, key: Key[Array, ""]) -> Float[Array, "batch n"]:
    """Return the noisy target action a' of the module docstring, flat."""
    return noisy(state.target.action(batch.next_obs), key, state.config)


def noisy(
    action: Float[Array, "batch n"], key: Key[Array, ""], config: Any
) -> Float[Array, "batch n"]:
    """Return actions with the clipped noise e' of the module docstring, within the space."""
    noise = config.target_noise * jax.random.normal(key, action.shape)
    noise = jnp.clip(noise, -config.noise_clip, config.noise_clip)
    return jnp.clip(action + noise, -1.0, 1.0)


def critic_loss(
    critics: TwinCritics | CriticEnsemble, batch: Record, y: Float[Array, "batch"]
) -> tuple[Float[Array, ""], tuple[dict[str, Array], Float[Array, "batch"]]]:
    """Return L_Q of the module docstring, metrics, and |TD error| per row (mean over critics)."""
    action: Array = batch.action
    values = critics.q_values(batch.obs, action.reshape(batch.mask.size, -1))
    weight = batch.extras.get("weight", jnp.ones_like(y))
    errors = jnp.stack([q - y for q in values])
    loss = masked_mean(weight * 0.5 * jnp.sum(jnp.square(errors), 0), batch.mask)
    metrics = {"loss/value": loss, "value/q": masked_mean(values[0], batch.mask)}
    return loss, (metrics, jnp.mean(jnp.abs(errors), 0))


def actor_loss(
    actor: Actor, critics: TwinCritics | CriticEnsemble, batch: Record
) -> Float[Array, ""]:
    """Return L_mu of the module docstring."""
    action = actor(critics.torso(batch.obs))
    return -masked_mean(critics.q_values(batch.obs, action)[0], batch.mask)
