"""Disagreement (Pathak 2019, arXiv:1906.04161): new is what several models predict differently.

    b(s, a) = mean over features of Var_k[ f_k(phi(s), a) ]         (eq. 1)
    L       = sum_k | f_k(phi(s), a) - phi(s') |^2

phi is random and fixed (section 4.1.1 has it so), so noise that no model can predict does not
attract forever: all models learn its mean. Each model sees its own random half of the rows.
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
from sterling.nets.ensemble import Ensemble
from sterling.nets.mlp import MLP
from sterling.nets.running_statistics import ObsNormaliser
from sterling.types import Record, Spec

MODELS = 5
LR = 1e-3


class ModelDisagreement(eqx.Module):
    """The bonus of disagreement, of one seed."""

    features: FeatureNetwork  # never learns
    models: MLP  # leaves (model, ...)
    optimiser: optax.OptState
    normaliser: ObsNormaliser
    actions: Actions = eqx.field(static=True)

    @classmethod
    def create(cls, key: Key[Array, ""], spec: Spec) -> ModelDisagreement:
        """Create the bonus of one seed."""
        actions = Actions.from_space(spec.action)
        features = FeatureNetwork.create(random_keys.fold(key, "features"), spec, 1)
        sizes = (WIDTH + actions.outputs, WIDTH, WIDTH)
        make = jax.vmap(lambda key: MLP.uniform(key, sizes))
        models = make(random_keys.split(key, "model", MODELS))
        normaliser = ObsNormaliser.create(spec.obs, clip=CLIP)
        return cls(features, models, start_optimiser(models), normaliser, actions)

    def explore(
        self, rows: Record, key: Key[Array, ""]
    ) -> tuple[ModelDisagreement, Float[Array, "row"]]:
        """Give each row the models' variance, then teach every model half of the rows."""
        normaliser = self.normaliser.update(rows.obs, rows.mask)
        seen = normaliser.batch(rows)
        halves = jax.random.bernoulli(random_keys.fold(key, "half"), 0.5, (len(rows.mask), MODELS))
        seen = dataclasses.replace(seen, extras={"half": halves})

        def loss(models: MLP, rows: Record, mask: Any) -> Float[Array, ""]:
            after = self.features(rows.next_obs)
            error = squared_distance(self._predict(models, rows), after[None])
            taken = rows.extras["half"].T & mask[None]
            return jnp.sum(jax.vmap(masked_mean)(error, taken))

        variance = jnp.mean(jnp.var(self._predict(self.models, seen), 0), -1)
        models, optimiser = train_once((self.models, self.optimiser), seen, key, loss, LR)
        changed = {"models": models, "optimiser": optimiser, "normaliser": normaliser}
        return dataclasses.replace(self, **changed), variance

    def _predict(self, models: MLP, rows: Record) -> Float[Array, "model row features"]:
        x = jnp.concatenate([self.features(rows.obs), self.actions.encode(rows.action)], -1)
        return Ensemble(models)(x)


LAYER = bonus_layer(
    "disagreement",
    "a bonus where several models of the environment predict different things",
    0.5,
    ModelDisagreement.create,
)
