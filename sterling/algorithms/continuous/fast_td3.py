"""FastTD3 (Seo 2025, arXiv:2505.22642): TD3 for many envs, large batches and few updates.

    value        Q_k(s, a) = sum_i z_i p_k,i(s, a),    k = 1, 2
    action       a'   = clip(mu(s') + clip(e', -c, c), -1, 1),          e' ~ N(0, sigma'^2)
    targets      m_k  = the projection of r + g z_j with the chances of p'_k*(s', a')   (d4pg)
                 k*   = argmin_k E_p'_k [clip(r + g z, v_min, v_max)] if ``clipped``, else k
    critics      L_Z  = sum_k E[ - w sum_i m_k,i log p_k,i(s, a) ]
    actor        L_mu = -E[ min_k Q_k(s, mu(s)) ] if ``clipped``, else of their mean
                                                               (every ``delay`` updates)
    behaviour    a    = clip(mu(s) + sigma_n e, -1, 1),                e ~ N(0, 1)
                 in env n, with its own sigma_n ~ U(noise_min, noise_max)

g is gamma times the environment's discount; p'_k follow p_k at rate ``tau`` in every update; w is
1, or prioritised replay's importance weight. Observations are normalised by running statistics;
AdamW (simba's) decays weights. Give it many envs (``--envs 128``), and bounds of returns that fit.

Defaults for CPUs, and the authors' for GPUs: ``batch`` 2048 (32768), ``capacity`` 1,000,000 (51,200
for each env), ``width`` 128 (512,256,128), ``critic_width`` 256 (1024,512,256), two hidden layers.
Deviations from the authors' code: sigma_n is noise_min + (noise_max - noise_min) frac(u + n q),
u ~ U(0, 1), q the golden ratio less 1: uniform in every env, spread evenly over envs, and the same
for the run (theirs are independent, and drawn anew after each episode); statistics are those of
replayed observations; no small initial last layer; numbers have 32 bits; steps before the first
update are random; images are encoded by one torso, which the actor uses but only the critics' loss
trains. As there, a' is the actor's own: it has no target network.
Evidence: none at published scale yet; probe worlds and an oracle in tests/contract/.
"""

from __future__ import annotations

import dataclasses
import math

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, Int, Key

from sterling import random_keys
from sterling.algorithms.continuous import d4pg, simba
from sterling.algorithms.online import td3
from sterling.algorithms.q_learning import c51
from sterling.equations.categorical_values import make_support
from sterling.equations.masked_average import masked_mean
from sterling.equations.polyak import polyak
from sterling.field_types import (
    Activation,
    Count,
    Depth,
    Finite,
    NotNegative,
    Share,
    Sizes,
    Whole,
    Width,
)
from sterling.nets.action_heads import ONLINE, supported_actions
from sterling.nets.optimiser import adam
from sterling.nets.q_ensemble import CriticEnsemble
from sterling.nets.running_statistics import ObsNormaliser
from sterling.types import Action, Mistake, Obs, Record, Signals, Spec, Transitions, config

can_use_unseen = True  # by the critics

GOLDEN = (math.sqrt(5.0) - 1.0) / 2.0  # its multiples are spread evenly over [0, 1), modulo 1


@config
class Config:
    """Defaults are those of the authors' code (github.com/younggyoseo/FastTD3) for HumanoidBench,
    with smaller sizes for CPUs (module docstring)."""

    lr: NotNegative = 3e-4  # AdamW's step size, for critics and actor
    weight_decay: NotNegative = 0.1  # AdamW's weight decay
    gamma: Share = 0.99  # discount per step
    tau: Share = 0.1  # rate at which target critics follow, per update
    atoms: Count = 101  # of every action's return
    v_min: Finite = -250.0  # lowest return that can be represented
    v_max: Finite = 250.0  # highest return that can be represented
    clipped: bool = True  # the smaller critic counts (clipped double Q), otherwise both
    noise_min: NotNegative = 0.001  # smallest standard deviation of an env's exploration noise
    noise_max: NotNegative = 0.4  # largest standard deviation of an env's exploration noise
    target_noise: NotNegative = 0.001  # sigma': standard deviation of the noise on target actions
    noise_clip: Width = 0.5  # c: bound of the noise on target actions
    delay: Count = 2  # critic updates per update of the actor
    normalise_obs: bool = True  # normalise observations by their running mean and deviation
    batch: Count = 2_048  # transitions per update
    collect: Count = 1  # steps of each env per iteration
    learn: Count = 2  # updates per iteration
    capacity: Count = 1_000_000  # replay capacity in transitions, per seed
    warmup: Whole = 2_048  # steps with random actions before the first update
    n_step: Count = 1  # rewards summed before bootstrapping
    priority: NotNegative | None = None  # exponent of prioritised replay (0.6); None: uniform
    correction: Share = 0.4  # exponent of the importance weights of prioritised replay (constant)
    width: Sizes = 128  # units per hidden layer of the actor, or of each layer such as 400,300
    depth: Depth = 2  # hidden layers of the actor, for vectors (after convolutions: one)
    critic_width: Sizes = 256  # units per hidden layer of the critics
    critic_depth: Depth = 2  # hidden layers of the critics
    activation: Activation = "relu"  # tanh, relu, silu, elu or gelu
    layer_norm: bool = False  # normalise the critics' hidden layers


class State(eqx.Module):
    """Everything that changes during training."""

    nets: td3.Nets
    target: CriticEnsemble
    normaliser: ObsNormaliser
    offset: Float[Array, ""]  # u of the module docstring
    critic_optimiser: optax.OptState
    actor_optimiser: optax.OptState
    updates: Int[Array, ""]  # of the critics
    config: Config


def needs(config: Config) -> Transitions:
    """Ask for transitions from a uniform or prioritised replay buffer."""
    return Transitions.of_config(config)


def init(key: Key[Array, ""], spec: Spec, config: Config) -> State:
    """Create an agent. Raises :class:`Mistake` for action spaces other than Box, and for intervals
    of noise or of atoms that are none."""
    supported_actions("fast-td3", spec.action, ("box",), ONLINE)
    low, high = config.noise_min, config.noise_max
    if all(isinstance(x, int | float) for x in (low, high)) and low > high:
        raise Mistake(f"noise_min={low:g} is above noise_max={high:g}. Lower noise_min.")
    nets = d4pg.create_networks(key, spec, config, members=2)
    return State(
        nets,
        jax.tree.map(jnp.copy, nets.critics),
        ObsNormaliser.create(spec.obs, config.normalise_obs, jnp.inf),
        jax.random.uniform(random_keys.fold(key, "noise"), ()),
        adam().init(nets.critics),
        adam().init(nets.actor),
        jnp.zeros((), jnp.int32),
        config,
    )


def noise_sizes(state: State, envs: int) -> Float[Array, "env"]:
    """Return sigma_n of the module docstring for ``envs`` envs."""
    low, high = state.config.noise_min, state.config.noise_max
    turns = state.offset + GOLDEN * jnp.arange(envs, dtype=jnp.float32)
    return low + (high - low) * jnp.mod(turns, 1.0)


def act(
    state: State, obs: Obs, key: Key[Array, ""], explore: bool
) -> tuple[Action, dict[str, Array]]:
    """Return the actor's action in the space's own shape, with each env's own size of noise where
    ``explore`` holds."""
    action = state.nets.action(state.normaliser(obs))
    lead = action.shape[:-1]
    if explore:
        sizes = noise_sizes(state, math.prod(lead)).reshape(*lead, 1)
        action = jnp.clip(action + sizes * jax.random.normal(key, action.shape), -1.0, 1.0)
    return action.reshape(*lead, *state.nets.actor.actions.sizes), {}


def value(state: State, obs: Obs) -> Float[Array, "env"]:
    """Return the critics' Q(s, mu(s)): the smaller, or their mean without ``clipped``."""
    seen, config = state.normaliser(obs), state.config
    return joined(d4pg.q_values(state.nets.critics, seen, state.nets.action(seen), config), config)


def action_value(state: State, obs: Obs, action: Action) -> Float[Array, "env"]:
    """Return the critics' Q(s, a): the smaller, or their mean without ``clipped``."""
    seen, flat, config = state.normaliser(obs), action.reshape(len(action), -1), state.config
    return joined(d4pg.q_values(state.nets.critics, seen, flat, config), config)


def joined(q: Float[Array, "member ..."], config: Config) -> Float[Array, "..."]:
    """Return the smaller Q, or the mean without ``clipped``."""
    return q.min(0) if config.clipped else q.mean(0)


def learn(state: State, batch: Record, key: Key[Array, ""]) -> tuple[State, Signals]:
    """Count the observations of transitions ``(batch, ...)`` into the running statistics, then
    update the critics and their targets once, and every ``delay``-th time the actor."""
    config, nets = state.config, state.nets
    normaliser = state.normaliser.update(batch.obs, batch.mask)
    batch = normaliser.batch(batch)
    m, grad = targets(state, batch, key), jax.grad(d4pg.critic_loss, has_aux=True)
    grads, (metrics, error) = grad(nets.critics, batch, m, config)
    critics, optimiser = simba.decayed_step(nets.critics, grads, state.critic_optimiser, config)
    updated = dataclasses.replace(
        state,
        nets=td3.Nets(nets.actor, critics),
        target=polyak(state.target, critics, config.tau),
        normaliser=normaliser,
        critic_optimiser=optimiser,
        updates=state.updates + 1,
    )
    due = jnp.mod(updated.updates, config.delay) == 0
    learned = jax.lax.cond(due, lambda: update_actor(updated, batch), lambda: updated)
    return learned, Signals(metrics, {"td_error": error})


def update_actor(state: State, batch: Record) -> State:
    """Update the actor once."""
    nets, config = state.nets, state.config
    grads = jax.grad(actor_loss)(nets.actor, nets.critics, batch, config)
    actor, optimiser = simba.decayed_step(nets.actor, grads, state.actor_optimiser, config)
    return dataclasses.replace(state, nets=td3.Nets(actor, nets.critics), actor_optimiser=optimiser)


def targets(state: State, batch: Record, key: Key[Array, ""]) -> Float[Array, "2 batch atom"]:
    """Return the m_k of the module docstring, of normalised observations."""
    config = state.config
    action = td3.noisy(state.nets.action(batch.next_obs), key, config)
    following = state.target.outputs(batch.next_obs, action)
    m = jax.vmap(lambda own: c51.projected(own, batch, config))(following)
    if not config.clipped:
        return m
    first, second = jnp.dot(m, make_support(config.v_min, config.v_max, config.atoms))
    least = jnp.where((first < second)[:, None], m[0], m[1])
    return jnp.broadcast_to(least, m.shape)


def actor_loss(
    actor: td3.Actor, critics: CriticEnsemble, batch: Record, config: Config
) -> Float[Array, ""]:
    """Return L_mu of the module docstring."""
    action = actor(critics.torso(batch.obs))
    q = d4pg.q_values(critics, batch.obs, action, config)
    return -masked_mean(joined(q, config), batch.mask)
