"""Behaviour cloning: imitate the logged actions (Pomerleau 1989), the baseline of every dataset.

    policy   L_pi = -E[ log pi(a|s) ]

With the run's setting ``top`` < 1 only the best episodes are imitated (%BC, Chen 2021,
arXiv:2106.01345, section 5.1). For Box actions pi is the normal of ``nets/imitation_policy.py``,
with a learned deviation; without ``likelihood`` only its mean is fitted, by squared error as in
TD3+BC's code and CORL, and the deviation stays at its initial value.
Evidence: benchmarks/results/offline.md.
"""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, Key

from sterling import random_keys
from sterling.equations.masked_average import masked_mean
from sterling.field_types import Activation, Count, Depth, NotNegative, Sizes, Whole
from sterling.nets.action_heads import OFFLINE, supported_actions
from sterling.nets.imitation_policy import Policy
from sterling.nets.obs_encoder import Encoder
from sterling.nets.optimiser import adam, descend
from sterling.nets.running_statistics import ObsNormaliser
from sterling.types import Action, Obs, Record, Signals, Spec, Transitions, config


@config
class Config:
    """Defaults are those of CORL's BC except ``likelihood``: its policy is deterministic and
    fitted by squared error."""

    lr: NotNegative = 3e-4  # Adam's step size
    likelihood: bool = True  # Box: maximise log pi; False: squared error of the mean
    normalise_obs: bool = True  # normalise observations by the dataset's mean and deviation
    batch: Count = 256  # transitions per update
    collect: Count = 1  # steps of each env per iteration of the online phase
    learn: Count = 1  # updates per iteration
    capacity: Count = 1_000_000  # replay capacity in transitions, per seed (online phase)
    warmup: Whole = 0  # steps before the first update of the online phase
    width: Sizes = 256  # units per hidden layer, or of each layer such as 400,300
    depth: Depth = 2  # hidden layers, for vectors (after convolutions: one)
    activation: Activation = "relu"  # tanh, relu, silu, elu or gelu
    layer_norm: bool = False  # normalise the hidden layers


class Nets(eqx.Module):
    """The learned networks."""

    torso: Encoder
    policy: Policy


class State(eqx.Module):
    """Everything that changes during training."""

    nets: Nets
    optimiser: optax.OptState
    normaliser: ObsNormaliser
    config: Config


def needs(config: Config) -> Transitions:
    """Ask for single transitions, drawn uniformly."""
    return Transitions(config.batch, config.collect, config.learn, config.capacity, config.warmup)


def init(key: Key[Array, ""], spec: Spec, config: Config) -> State:
    """Create an agent, for any action space that policies support."""
    torso = Encoder.create(random_keys.fold(key, "torso"), spec)
    hidden = torso.hidden_sizes(config.width, config.depth)
    policy = Policy.create(
        random_keys.fold(key, "policy"),
        (torso.size, *hidden),
        supported_actions("bc", spec.action, ("box", "discrete", "multi"), OFFLINE),
        activation=config.activation,
        layer_norm=config.layer_norm,
    )
    nets = Nets(torso, policy)
    return State(nets, adam().init(nets), ObsNormaliser.of_log(spec, config.normalise_obs), config)


def act(
    state: State, obs: Obs, key: Key[Array, ""], explore: bool
) -> tuple[Action, dict[str, Array]]:
    """Return a sample of the policy, or its mode without ``explore``."""
    obs = state.normaliser(obs)
    return state.nets.policy.act(obs, state.nets.torso(obs), key, explore), {}


def log_prob(state: State, obs: Obs, action: Action) -> Float[Array, "..."]:
    """Return log pi(a|s)."""
    obs = state.normaliser(obs)
    return state.nets.policy.log_prob(obs, state.nets.torso(obs), action)


def learn(state: State, batch: Record, key: Key[Array, ""]) -> tuple[State, Signals]:
    """Make one update on transitions ``(batch, ...)``."""
    grads, (metrics, error) = jax.grad(loss, has_aux=True)(state.nets, state, batch)
    direction, optimiser = adam().update(grads, state.optimiser)
    nets = descend(state.nets, direction, state.config.lr)
    learned = State(nets, optimiser, state.normaliser, state.config)
    return learned, Signals(metrics, {"td_error": error})


def loss(
    nets: Nets, state: State, batch: Record
) -> tuple[Float[Array, ""], tuple[dict[str, Array], Float[Array, "batch"]]]:
    """Return L_pi of the module docstring, metrics, and each row's loss."""
    obs = state.normaliser(batch.obs)
    features = nets.torso(obs)
    if nets.policy.log_std is None or state.config.likelihood:
        each = -nets.policy.log_prob(obs, features, batch.action)
    else:
        action: Array = batch.action
        mean = nets.policy(obs, features).mode()
        each = jnp.sum(jnp.square(mean - action.reshape(mean.shape)), -1)
    total = masked_mean(each, batch.mask)
    return total, ({"loss/policy": total}, jnp.abs(each))
