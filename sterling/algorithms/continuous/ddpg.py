"""Deep deterministic policy gradient (Lillicrap 2016, arXiv:1509.02971), as Fujimoto 2018 tuned it.

    target      y     = r + g Q'(s', mu'(s'))
    critic      L_Q   = 1/2 E[ w (Q(s, a) - y)^2 ]
    actor       L_mu  = -E[ Q(s, mu(s)) ]
    behaviour   a     = clip(mu(s) + e, -1, 1),                       e ~ N(0, sigma^2)

g is gamma times the environment's discount; mu' and Q' follow mu and Q at rate ``tau`` in every
update, after the step of the critic and then that of the actor; w is 1, or prioritised replay's
importance weight. td3 is this with two critics, noise on target actions and delayed actors.

Deviations from the paper, all of Fujimoto's "our DDPG" (arXiv:1802.09477, appendix D, with the
networks, step size and batch of the authors' later code): Gaussian instead of Ornstein-Uhlenbeck
noise, one step size for both networks, the action enters the critic's first layer, no decay of
weights, no batch normalisation, no small initial last layers. Images are encoded by one torso,
which the actor uses but only the critic's loss trains. Steps before the first update are random.
Evidence: none at published scale yet; probe worlds and an oracle in tests/contract/.
"""

from __future__ import annotations

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, Int, Key

from sterling import random_keys
from sterling.algorithms.online import td3
from sterling.equations.value_losses import td_target
from sterling.field_types import Activation, Count, Depth, NotNegative, Share, Sizes, Whole
from sterling.nets.action_heads import ONLINE, supported_actions
from sterling.nets.obs_encoder import Encoder
from sterling.nets.optimiser import adam
from sterling.nets.q_ensemble import CriticEnsemble
from sterling.types import Action, Obs, Record, Signals, Spec, Transitions, config

can_use_unseen = True  # by the critic


@config
class Config:
    """Defaults are those of "our DDPG" in the code of TD3's authors, in units of actions."""

    lr: NotNegative = 3e-4  # Adam's step size, for critic and actor
    gamma: Share = 0.99  # discount per step
    tau: Share = 0.005  # rate at which targets follow, per update
    exploration_noise: NotNegative = 0.1  # sigma: standard deviation of exploration noise
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
    """Create an agent. Raises :class:`Mistake` for action spaces other than Box."""
    actions = supported_actions("ddpg", spec.action, ("box",), ONLINE)
    torso = Encoder.create(random_keys.fold(key, "torso"), spec)
    hidden = torso.hidden_sizes(config.width, config.depth)
    kind: Any = {"activation": config.activation, "layer_norm": config.layer_norm, "members": 1}
    critic_key = random_keys.fold(key, "critics")
    critic = CriticEnsemble.create(critic_key, torso, hidden, actions.outputs, **kind)
    nets = td3.Nets(td3.create_actor(key, torso, spec, config), critic)
    optimisers = adam().init(nets.critics), adam().init(nets.actor)
    return State(nets, jax.tree.map(jnp.copy, nets), *optimisers, jnp.zeros((), jnp.int32), config)


def act(
    state: State, obs: Obs, key: Key[Array, ""], explore: bool
) -> tuple[Action, dict[str, Array]]:
    """Return the actor's action in the space's own shape, with noise where ``explore`` holds."""
    return td3.act(state, obs, key, explore)


def value(state: State, obs: Obs) -> Float[Array, "env"]:
    """Return Q(s, mu(s))."""
    return state.nets.critics.q_values(obs, state.nets.action(obs))[0]


def action_value(state: State, obs: Obs, action: Action) -> Float[Array, "env"]:
    """Return Q(s, a)."""
    return state.nets.critics.q_values(obs, action.reshape(len(action), -1))[0]


def learn(state: State, batch: Record, key: Key[Array, ""]) -> tuple[State, Signals]:
    """Update critic, actor and targets once on transitions ``(batch, ...)``. ``key`` is not
    used."""
    updated, signals = td3.update_critics(state, batch, target(state, batch), td3.critic_loss)
    return td3.update_actor(updated, batch, td3.actor_loss), signals


def target(state: State, batch: Record) -> Float[Array, "batch"]:
    """Return the targets y of the module docstring."""
    action = state.target.action(batch.next_obs)
    next_value = state.target.critics.q_values(batch.next_obs, action)[0]
    return td_target(batch.reward, state.config.gamma * batch.discount, next_value)
