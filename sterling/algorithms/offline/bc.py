"""Behaviour cloning: imitate what was done (Pomerleau 1989; the baseline of every log).

    policy   L_pi = -E[ log pi(a|s) ]

With ``top`` < 1 among the words of the run only the best episodes are imitated (%BC, Chen 2021,
arXiv:2106.01345, section 5.1). Boxes: pi is the normal of ``nets/policy.py``, with a learned
deviation; without ``likelihood`` its mean alone is fitted by squared error, as TD3+BC's code and
CORL do, and the sampled policy then has the initial deviation.
Evidence: benchmarks/results/offline.md.
"""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, Key

from sterling import keys
from sterling.equations.average import masked_mean
from sterling.field_types import Count, Depth, NotNegative, Whole
from sterling.nets.encoder import Encoder
from sterling.nets.heads import Actions
from sterling.nets.normalise import ObsNormaliser
from sterling.nets.optimiser import adam, descend
from sterling.nets.policy import Policy
from sterling.types import Action, Obs, Record, Signals, Spec, Transitions, config


@config
class Config:
    """Defaults are those of CORL's BC but for ``likelihood``: its policy is deterministic and
    fitted by squared error."""

    lr: NotNegative = 3e-4  # Adam's step size
    likelihood: bool = True  # boxes: maximise log pi; without it squared error of the mean
    normalise_obs: bool = True  # centre and scale observations by the log's moments
    batch: Count = 256  # transitions per update
    collect: Count = 1  # steps of each env per iteration, once it acts
    learn: Count = 1  # updates per iteration
    capacity: Count = 1_000_000  # transitions kept, over all envs of a seed, once it acts
    warmup: Whole = 0  # steps before the first update, once it acts
    width: Count = 256  # units per hidden layer
    depth: Depth = 2  # hidden layers, for vectors (after convolutions: one)


class Nets(eqx.Module):
    """What is learned."""

    torso: Encoder
    policy: Policy


class State(eqx.Module):
    """Everything that changes."""

    nets: Nets
    optimiser: optax.OptState
    normaliser: ObsNormaliser
    config: Config


def needs(config: Config) -> Transitions:
    """Uniform samples."""
    return Transitions(config.batch, config.collect, config.learn, config.capacity, config.warmup)


def init(key: Key[Array, ""], spec: Spec, config: Config) -> State:
    """A new agent; any action space that a policy covers."""
    torso = Encoder.create(keys.fold(key, "torso"), spec.obs)
    hidden = (config.width,) * (config.depth if torso.is_flat else 1)
    policy = Policy.create(keys.fold(key, "policy"), (torso.size, *hidden), Actions.of(spec.action))
    nets = Nets(torso, policy)
    return State(nets, adam().init(nets), ObsNormaliser.of_log(spec, config.normalise_obs), config)


def act(
    state: State, obs: Obs, key: Key[Array, ""], explore: bool
) -> tuple[Action, dict[str, Array]]:
    """A sample of the policy, or its mode."""
    obs = state.normaliser(obs)
    return state.nets.policy.act(obs, state.nets.torso(obs), key, explore), {}


def log_prob(state: State, obs: Obs, action: Action) -> Float[Array, "..."]:
    """log pi(a|s)."""
    obs = state.normaliser(obs)
    return state.nets.policy.log_prob(obs, state.nets.torso(obs), action)


def learn(state: State, batch: Record, key: Key[Array, ""]) -> tuple[State, Signals]:
    """One update on transitions ``(batch, ...)``."""
    grads, (metrics, error) = jax.grad(loss, has_aux=True)(state.nets, state, batch)
    direction, optimiser = adam().update(grads, state.optimiser)
    nets = descend(state.nets, direction, state.config.lr)
    learned = State(nets, optimiser, state.normaliser, state.config)
    return learned, Signals(metrics, {"td_error": error})


def loss(
    nets: Nets, state: State, batch: Record
) -> tuple[Float[Array, ""], tuple[dict[str, Array], Float[Array, "batch"]]]:
    """L_pi of the module docstring; also each row's share of it."""
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
