"""Intrinsic curiosity (Pathak 2017, arXiv:1705.05363): surprise about what actions do.

    inverse    L_I = - log p(a | phi(s), phi(s'))       trains phi: what actions can change counts
    forward    L_F = 1/2 | phi_hat(phi(s), a) - phi(s') |^2         (eq. 5; trains phi_hat only)
    bonus      b   = 1/2 | phi_hat(phi(s), a) - phi(s') |^2         (eq. 6)
    loss       L   = 0.8 L_I + 0.2 L_F                              (eq. 7 with beta = 0.2)

For numbers as actions L_I is the squared error of the predicted action. Of all bonuses this one
alone may round otherwise for a seed alone than among several under ``map``: seen with PPO.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, Key

from sterling import random_keys
from sterling.equations.masked_average import masked_mean
from sterling.experience.exploration.bonus_training import (
    squared_distance,
    start_optimiser,
    train_once,
)
from sterling.experience.exploration.exploration_bonus import bonus_layer
from sterling.experience.exploration.random_network import CLIP, WIDTH, FeatureNetwork
from sterling.nets.action_heads import Actions
from sterling.nets.mlp import MLP
from sterling.nets.running_statistics import ObsNormaliser
from sterling.types import Action, Record, Spec

LR = 1e-3
FORWARD_SHARE = 0.2  # beta of eq. 7


class CuriosityNetworks(eqx.Module):
    """Features, and the models of what happens between them."""

    features: FeatureNetwork
    inverse: MLP
    forward: MLP
    actions: Actions = eqx.field(static=True)

    def predicted(
        self, features: Float[Array, "row features"], action: Action
    ) -> Float[Array, "row features"]:
        """Return the forward model's next features."""
        return self.forward(jnp.concatenate([features, self.actions.encode(action)], -1))

    def surprise(self, rows: Record) -> Float[Array, "row"]:
        """Return L_F of each row, divided by the number of features; only the forward model
        learns from it."""
        now, after = (
            jax.lax.stop_gradient(self.features(obs)) for obs in (rows.obs, rows.next_obs)
        )
        return 0.5 * squared_distance(self.predicted(now, rows.action), after)

    def inverse_loss(self, rows: Record) -> Float[Array, "row"]:
        """Return L_I of each row."""
        pair = jnp.concatenate([self.features(rows.obs), self.features(rows.next_obs)], -1)
        output, action = self.inverse(pair), rows.action
        if self.actions.kind in ("discrete", "multi"):
            return -self.actions.distribution(output).log_prob(action)
        return squared_distance(output, self.actions.encode(action))


class ForwardCuriosity(eqx.Module):
    """The bonus of intrinsic curiosity, of one seed."""

    nets: CuriosityNetworks
    optimiser: optax.OptState
    normaliser: ObsNormaliser

    @classmethod
    def create(cls, key: Key[Array, ""], spec: Spec) -> ForwardCuriosity:
        """Create the bonus of one seed."""
        actions = Actions.from_space(spec.action)
        features = FeatureNetwork.create(random_keys.fold(key, "features"), spec, 1)
        inverse, forward = (
            MLP.uniform(random_keys.fold(key, name), sizes)
            for name, sizes in (
                ("inverse", (2 * WIDTH, WIDTH, actions.outputs)),
                ("forward", (WIDTH + actions.outputs, WIDTH, WIDTH)),
            )
        )
        nets = CuriosityNetworks(features, inverse, forward, actions)
        normaliser = ObsNormaliser.create(spec.obs, clip=CLIP)
        return cls(nets, start_optimiser(nets), normaliser)

    def explore(
        self, rows: Record, key: Key[Array, ""]
    ) -> tuple[ForwardCuriosity, Float[Array, "row"]]:
        """Give each row the forward model's error, then learn from all."""
        normaliser = self.normaliser.update(rows.obs, rows.mask)
        seen = normaliser.batch(rows)

        def loss(nets: CuriosityNetworks, rows: Record, mask: Any) -> Float[Array, ""]:
            both = (1.0 - FORWARD_SHARE) * nets.inverse_loss(rows)
            return masked_mean(both + FORWARD_SHARE * nets.surprise(rows), mask)

        nets, optimiser = train_once((self.nets, self.optimiser), seen, key, loss, LR)
        changed = {"nets": nets, "optimiser": optimiser, "normaliser": normaliser}
        return dataclasses.replace(self, **changed), self.nets.surprise(seen)


LAYER = bonus_layer(
    "icm", "a bonus where a model cannot yet say what actions do", 0.5, ForwardCuriosity.create
)
