"""CURL: contrastive representations (Laskin 2020, arXiv:2004.04136), with DrQ-v2's learner.

    query       q_i   = t(f(aug(s_i)))                       f: the encoder, t: the critics' trunk
    key         k_j   = t_m(f_m(aug(s_j)))                   by other draws of aug
    logits      l_ij  = q_i^T W k_j
    contrast    L_C   = - E[ log( exp l_ii / sum_j exp l_ij ) ]
    momentum    f_m, t_m  <-  f_m, t_m + m (f, t - f_m, t_m)

A state is to be told from the others of the batch when it is seen shifted otherwise. After each
update of DrQ-v2 (drq_v2.py: f, t, critics and actor from shifted pictures), L_C moves f,
t and W by an Adam of its own; keys are constants. Vectors are not shifted: then q and k differ by
the momentum alone.

Deviations from the paper: the learner is DrQ-v2 (paper: SAC with the same architecture of critics
and Adam), so f learns from shifted pictures of the critics' loss as well; aug is DrQ's shift with
repeated edges (paper: crops of 84 of 100 pixels); t ends in tanh (paper: in its layer norm);
``shift`` 0 leaves keys and queries alike.
Evidence: none from pictures yet; probe worlds and an oracle in tests/contract/.
"""

from __future__ import annotations

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, Int, Key

from sterling import random_keys
from sterling.algorithms.pictures import drq_v2
from sterling.equations.masked_average import masked_mean
from sterling.equations.picture_augmentation import OnPictures
from sterling.equations.polyak import polyak
from sterling.field_types import Share
from sterling.nets.action_heads import ONLINE, supported_actions
from sterling.nets.obs_encoder import Encoder
from sterling.nets.optimiser import adam, descend
from sterling.nets.special_layers.feature_trunk import Trunk, TrunkCritics
from sterling.types import Action, Obs, Record, Signals, Spec, Transitions, config


@config
class Config(drq_v2.Config):
    """Defaults are those of drq-v2, and of the contrast those of the paper."""

    key_tau: Share = 0.05  # m: rate at which what computes keys follows, per update


class Contrast(eqx.Module):
    """What L_C learns: encoder, trunk and the matrix W."""

    encoder: Encoder
    trunk: Trunk
    similarity: Float[Array, "n n"]


class State(eqx.Module):
    """Everything that changes during training: what changes in DrQ-v2, and the contrast."""

    nets: drq_v2.Nets
    target: TrunkCritics
    critic_optimiser: optax.OptState
    actor_optimiser: optax.OptState
    key_encoder: Encoder  # f_m
    key_trunk: Trunk  # t_m
    similarity: Float[Array, "n n"]  # W
    contrast_optimiser: optax.OptState  # of f, t and W
    updates: Int[Array, ""]
    planned: Float[Array, ""]  # updates planned
    config: Config
    augment: OnPictures = eqx.field(static=True)


def needs(config: Config) -> Transitions:
    """Ask for transitions from a uniform or prioritised replay buffer."""
    return Transitions.of_config(config)


def init(key: Key[Array, ""], spec: Spec, config: Config) -> State:
    """Create an agent. Raises :class:`Mistake` for action spaces other than Box."""
    supported_actions("curl", spec.action, ("box",), ONLINE)
    plain = drq_v2.init(key, spec, config)
    encoder, trunk = plain.nets.encoder, plain.nets.critics.trunk
    shape = (config.features, config.features)
    similarity = jax.random.uniform(random_keys.fold(key, "similarity"), shape)
    keys = jax.tree.map(jnp.copy, (encoder, trunk))
    return State(
        plain.nets,
        plain.target,
        plain.critic_optimiser,
        plain.actor_optimiser,
        keys[0],
        keys[1],
        similarity,
        adam().init(Contrast(encoder, trunk, similarity)),
        plain.updates,
        plain.planned,
        config,
        plain.augment,
    )


def act(
    state: State, obs: Obs, key: Key[Array, ""], explore: bool
) -> tuple[Action, dict[str, Array]]:
    """Return the actor's action in the space's own shape, with noise where ``explore`` holds."""
    return drq_v2.act(state, obs, key, explore)


def value(state: State, obs: Obs) -> Float[Array, "env"]:
    """Return min_i Q_i(s, mu(s)), the smaller critic's value of the actor's action."""
    return drq_v2.value(state, obs)


def action_value(state: State, obs: Obs, action: Action) -> Float[Array, "env"]:
    """Return min_i Q_i(s, a)."""
    return drq_v2.action_value(state, obs, action)


def learn(state: State, batch: Record, key: Key[Array, ""]) -> tuple[State, Signals]:
    """Update once as DrQ-v2 does on transitions ``(batch, ...)``, then what tells states apart."""
    learned, signals = drq_v2.learn(state, batch, key)
    contrasted, loss = contrast(learned, batch, key)
    return contrasted, dataclasses.replace(
        signals, metrics={**signals.metrics, "loss/contrast": loss}
    )


def contrast(state: State, batch: Record, key: Key[Array, ""]) -> tuple[State, Float[Array, ""]]:
    """Move f, t and W down L_C, and what computes keys towards f and t; return L_C too."""
    seen, other = (state.augment(batch, random_keys.fold(key, x)) for x in ("query", "key"))
    keys = state.key_trunk(state.key_encoder(other.obs))
    nets = state.nets
    parts = Contrast(nets.encoder, nets.critics.trunk, state.similarity)
    loss, grads = jax.value_and_grad(contrastive_loss)(parts, keys, seen)
    direction, optimiser = adam().update(grads, state.contrast_optimiser)
    parts = descend(parts, direction, state.config.lr)
    critics = dataclasses.replace(nets.critics, trunk=parts.trunk)
    slow, fast = (state.key_encoder, state.key_trunk), (parts.encoder, parts.trunk)
    key_encoder, key_trunk = polyak(slow, fast, state.config.key_tau)
    moved = dataclasses.replace(
        state,
        nets=drq_v2.Nets(parts.encoder, nets.actor, critics),
        key_encoder=key_encoder,
        key_trunk=key_trunk,
        similarity=parts.similarity,
        contrast_optimiser=optimiser,
    )
    return moved, loss


def contrastive_loss(
    parts: Contrast, keys: Float[Array, "batch n"], batch: Record
) -> Float[Array, ""]:
    """Return L_C of the module docstring; masked rows are neither queries nor keys."""
    queries = parts.trunk(parts.encoder(batch.obs))
    logits = queries @ parts.similarity @ keys.T
    total = jax.nn.logsumexp(logits, axis=1, where=batch.mask[None])
    return masked_mean(jnp.where(batch.mask, total - jnp.diagonal(logits), 0.0), batch.mask)
