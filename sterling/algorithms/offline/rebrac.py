"""ReBRAC: TD3+BC with two penalties and deep normalised critics (Tarasov 2023, arXiv:2305.09836).

    action      a'    = clip(mu'(s') + clip(e', -c, c), -1, 1),           e' ~ N(0, sigma'^2)
    target      y     = r + g ( min_i Q'_i(s', a') - beta_Q |a' - a_next|^2 )
    critics     L_Q   = 1/2 sum_i E[ w (Q_i(s, a) - y)^2 ]
    actor       L_mu  = E[ beta_mu |mu(s) - a|^2 - lambda min_i Q_i(s, mu(s)) ],
                        lambda = 1 / mean |min_i Q_i(s, mu(s))|       (every ``delay`` updates)

g is gamma times the environment's discount; a_next is the logged action in s'; mu' and Q'_i follow
at rate ``tau`` whenever the actor is updated. With beta_Q = 0 this is TD3+BC (alpha = 1 / (dim(A)
beta_mu)).

At a termination g is 0, so neither penalty nor value count. At a truncation there is no logged
action in s', so such a row bootstraps without a penalty (the authors' loader drops the row).

Deviations from the paper: hidden layers are normalised before their activation (in the authors'
code after it); networks are initialised as TD3's; images are encoded by one torso that only the
critics' loss trains. Evidence: benchmarks/results/offline.md.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Key

from sterling.algorithms.offline import td3bc
from sterling.algorithms.online import td3
from sterling.equations.masked_average import masked_mean
from sterling.equations.value_losses import td_target
from sterling.field_types import Activation, Count, Depth, NotNegative, Share, Sizes, Whole, Width
from sterling.nets.action_heads import OFFLINE, supported_actions
from sterling.nets.q_ensemble import TwinCritics
from sterling.types import Action, Obs, Record, Signals, Spec, Transitions, config


@config
class Config:
    """Defaults are the paper's, which tunes the penalties per dataset (tables 8 and 9)."""

    lr: NotNegative = 1e-3  # Adam's step size, for critics and actor
    gamma: Share = 0.99  # discount per step
    tau: Share = 0.005  # rate at which targets follow, per update of the actor
    actor_penalty: NotNegative = 0.01  # beta_mu: weight of imitation (D4RL locomotion 0.001 to 0.1)
    critic_penalty: NotNegative = 0.01  # beta_Q, in returns per squared action distance (0 to 0.5)
    layer_norm: bool = True  # normalise the critics' hidden layers
    exploration_noise: NotNegative = 0.1  # standard deviation of exploration noise on actions
    target_noise: NotNegative = 0.2  # sigma': standard deviation of the noise on target actions
    noise_clip: Width = 0.5  # c: bound of the noise on target actions
    delay: Count = 2  # critic updates per update of actor and targets
    normalise_obs: bool = False  # normalise observations by the dataset's mean and deviation
    batch: Count = 1024  # transitions per update (antmaze 256)
    collect: Count = 1  # steps of each env per iteration of the online phase
    learn: Count = 1  # updates per iteration
    capacity: Count = 1_000_000  # replay capacity in transitions, per seed (online phase)
    warmup: Whole = 0  # steps before the first update of the online phase
    width: Sizes = 256  # units per hidden layer, or of each layer such as 400,300
    depth: Depth = 3  # hidden layers, for vectors (after convolutions: one)
    activation: Activation = "relu"  # tanh, relu, silu, elu or gelu


class State(td3bc.State):
    """Everything that changes during training: TD3+BC's fields."""


def needs(config: Config) -> Transitions:
    """Ask for single transitions with the next logged action, drawn uniformly."""
    return Transitions(
        *(config.batch, config.collect, config.learn, config.capacity, config.warmup),
        add=("next_action",),
    )


def init(key: Key[Array, ""], spec: Spec, config: Config) -> State:
    """Create an agent. Raises :class:`Mistake` for action spaces other than Box."""
    supported_actions("rebrac", spec.action, ("box",), OFFLINE)
    nets = td3.create_networks(key, spec, config)
    return td3bc.create_state(State, nets, spec, config)


def act(
    state: State, obs: Obs, key: Key[Array, ""], explore: bool
) -> tuple[Action, dict[str, Array]]:
    """Return the actor's action, with noise where ``explore`` holds."""
    return td3bc.act(state, obs, key, explore)


def value(state: State, obs: Obs) -> Float[Array, "env"]:
    """Return min_i Q_i(s, mu(s)), the smaller critic's value of the actor's action."""
    return td3bc.value(state, obs)


def learn(state: State, batch: Record, key: Key[Array, ""]) -> tuple[State, Signals]:
    """Update the critics once on transitions ``(batch, ...)``, every ``delay``-th time also the
    actor and the targets."""
    batch = state.normaliser.batch(batch)
    y, distance = target(state, batch, key)

    def loss(actor: td3.Actor, critics: TwinCritics, batch: Record) -> Float[Array, ""]:
        return actor_loss(actor, critics, batch, state.config.actor_penalty)

    learned, signals = td3.learn_from_targets(state, batch, y, loss)
    metrics = {**signals.metrics, "policy/distance": masked_mean(distance, batch.mask)}
    return learned, Signals(metrics, signals.samples)


def target(
    state: State, batch: Record, key: Key[Array, ""]
) -> tuple[Float[Array, "batch"], Float[Array, "batch"]]:
    """Return y of the module docstring, and |a' - a_next|^2 (0 if there is no next action)."""
    config, action = state.config, td3.target_action(state, batch, key)
    logged = batch.extras["next_action"].reshape(action.shape)
    distance = jnp.where(batch.last, 0.0, jnp.sum(jnp.square(action - logged), -1))
    next_value = jnp.minimum(*state.target.critics.q_values(batch.next_obs, action))
    next_value = next_value - config.critic_penalty * distance
    return td_target(batch.reward, config.gamma * batch.discount, next_value), distance


def actor_loss(
    actor: td3.Actor, critics: TwinCritics, batch: Record, penalty: Float[Array, ""] | float
) -> Float[Array, ""]:
    """Return L_mu of the module docstring."""
    logged: Array = batch.action
    action = actor(critics.torso(batch.obs))
    q = jnp.minimum(*critics.q_values(batch.obs, action))
    scale = jax.lax.stop_gradient(masked_mean(jnp.abs(q), batch.mask))
    distance = jnp.sum(jnp.square(action - logged.reshape(action.shape)), -1)
    return masked_mean(penalty * distance - q / jnp.maximum(scale, 1e-6), batch.mask)
