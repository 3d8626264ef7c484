"""TD3+BC: TD3 with a behaviour-cloning term (Fujimoto 2021, arXiv:2106.06860).

    critics   as TD3's (``online/td3.py``)
    actor     L_mu = -lambda E[ Q_1(s, mu(s)) ] + E[ |mu(s) - a|^2 ] / dim(A),
              lambda = alpha / mean |Q_1(s, mu(s))|                    (every ``delay`` updates)

Observations are normalised by the dataset's moments. In the online phase it explores as TD3 does,
and ``alpha`` may change (``online={"alpha": ...}``), as in the paper's successors.
Deviations from the paper: those of TD3 here. Evidence: benchmarks/results/offline.md.
"""

from __future__ import annotations

from typing import Any, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, Int, Key

from sterling.algorithms.online import td3
from sterling.equations.masked_average import masked_mean
from sterling.field_types import Activation, Count, Depth, NotNegative, Share, Sizes, Whole, Width
from sterling.nets.action_heads import OFFLINE, supported_actions
from sterling.nets.optimiser import adam
from sterling.nets.q_ensemble import TwinCritics
from sterling.nets.running_statistics import ObsNormaliser
from sterling.types import Action, Obs, Record, Signals, Spec, Transitions, config

checked_in = {"data": "random"}  # it stays near a log, and so misses the right answers of probes


@config
class Config:
    """Defaults are the paper's (its table 3), in units of actions."""

    alpha: NotNegative = 2.5  # weight of the value relative to imitation
    lr: NotNegative = 3e-4  # Adam's step size, for critics and actor
    gamma: Share = 0.99  # discount per step
    tau: Share = 0.005  # rate at which targets follow, per update of the actor
    exploration_noise: NotNegative = 0.1  # standard deviation of exploration noise on actions
    target_noise: NotNegative = 0.2  # standard deviation of the noise on target actions
    noise_clip: Width = 0.5  # bound of the noise on target actions
    delay: Count = 2  # critic updates per update of actor and targets
    normalise_obs: bool = True  # normalise observations by the dataset's mean and deviation
    batch: Count = 256  # transitions per update
    collect: Count = 1  # steps of each env per iteration of the online phase
    learn: Count = 1  # updates per iteration
    capacity: Count = 1_000_000  # replay capacity in transitions, per seed (online phase)
    warmup: Whole = 0  # steps before the first update of the online phase
    width: Sizes = 256  # units per hidden layer, or of each layer such as 400,300
    depth: Depth = 2  # hidden layers, for vectors (after convolutions: one)
    activation: Activation = "relu"  # tanh, relu, silu, elu or gelu
    layer_norm: bool = False  # normalise the critics' hidden layers


class State(eqx.Module):
    """Everything that changes during training."""

    nets: td3.Nets
    target: td3.Nets
    critic_optimiser: optax.OptState
    actor_optimiser: optax.OptState
    updates: Int[Array, ""]  # of the critics
    normaliser: ObsNormaliser
    config: Any  # a Config, also that of rebrac.py, which shares this class


S = TypeVar("S", bound=State)


def needs(config: Config) -> Transitions:
    """Ask for single transitions, drawn uniformly."""
    return Transitions(config.batch, config.collect, config.learn, config.capacity, config.warmup)


def init(key: Key[Array, ""], spec: Spec, config: Config) -> State:
    """Create an agent. Raises :class:`Mistake` for action spaces other than Box."""
    supported_actions("td3bc", spec.action, ("box",), OFFLINE)
    nets = td3.create_networks(key, spec, config)
    return create_state(State, nets, spec, config)


def create_state(kind: type[S], nets: td3.Nets, spec: Spec, config: Any) -> S:
    """Create a state of the given class from new networks."""
    return kind(
        nets=nets,
        target=jax.tree.map(jnp.copy, nets),
        critic_optimiser=adam().init(nets.critics),
        actor_optimiser=adam().init(nets.actor),
        updates=jnp.zeros((), jnp.int32),
        normaliser=ObsNormaliser.of_log(spec, config.normalise_obs),
        config=config,
    )


def act(
    state: State, obs: Obs, key: Key[Array, ""], explore: bool
) -> tuple[Action, dict[str, Array]]:
    """Return the actor's action, with noise where ``explore`` holds."""
    return td3.act(state, state.normaliser(obs), key, explore)


def value(state: State, obs: Obs) -> Float[Array, "env"]:
    """Return min_i Q_i(s, mu(s)), the smaller critic's value of the actor's action."""
    return td3.value(state, state.normaliser(obs))


def action_value(state: State, obs: Obs, action: Action) -> Float[Array, "env"]:
    """Return min_i Q_i(s, a)."""
    return td3.action_value(state, state.normaliser(obs), action)


def learn(state: State, batch: Record, key: Key[Array, ""]) -> tuple[State, Signals]:
    """Update the critics once on transitions ``(batch, ...)``, every ``delay``-th time also the
    actor and the targets."""
    batch = state.normaliser.batch(batch)

    def loss(actor: td3.Actor, critics: TwinCritics, batch: Record) -> Float[Array, ""]:
        return actor_loss(actor, critics, batch, state.config.alpha)

    return td3.learn_from_targets(state, batch, td3.target(state, batch, key), loss)


def actor_loss(
    actor: td3.Actor, critics: TwinCritics, batch: Record, alpha: Float[Array, ""] | float
) -> Float[Array, ""]:
    """Return L_mu of the module docstring."""
    logged: Array = batch.action
    action = actor(critics.torso(batch.obs))
    q, _ = critics.q_values(batch.obs, action)
    scale = alpha / jax.lax.stop_gradient(masked_mean(jnp.abs(q), batch.mask))
    distance = jnp.mean(jnp.square(action - logged.reshape(action.shape)), -1)
    return masked_mean(distance, batch.mask) - scale * masked_mean(q, batch.mask)
