"""Random network distillation (Burda 2019, arXiv:1810.12894): what a network cannot predict is new.

    b(s')  = | f_hat(s') - f(s') |^2          f random and fixed, f_hat learns to predict it

Observations are normalised by running statistics and clipped to 5 deviations (section 2.4).

Deviations from the paper: one value function learns the sum of both rewards (the paper has a second
head, with its own discount and without episodes' ends); small networks; bytes of pictures are
divided by 255 and not normalised.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import equinox as eqx
import jax
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
from sterling.nets.mlp import MLP
from sterling.nets.obs_encoder import Encoder
from sterling.nets.running_statistics import ObsNormaliser
from sterling.types import Obs, Record, Spec

WIDTH = 128  # units per hidden layer, and features to predict
CLIP = 5.0  # deviations
LR = 1e-4


class FeatureNetwork(eqx.Module):
    """A network from observations to features."""

    torso: Encoder
    net: MLP

    @classmethod
    def create(cls, key: Key[Array, ""], spec: Spec, hidden: int) -> FeatureNetwork:
        """Create a network with ``hidden`` hidden layers."""
        torso = Encoder.create(random_keys.fold(key, "torso"), spec.obs)
        sizes = (torso.size, *(WIDTH,) * hidden, WIDTH)
        return cls(torso, MLP.orthogonal(random_keys.fold(key, "net"), sizes, "relu"))

    def __call__(self, obs: Obs) -> Float[Array, "... features"]:
        """Return the features of observations with any leading axes."""
        return self.net(self.torso(obs))


class RandomNetwork(eqx.Module):
    """The bonus of random network distillation, of one seed."""

    target: FeatureNetwork  # never learns
    predictor: FeatureNetwork
    optimiser: optax.OptState
    normaliser: ObsNormaliser

    @classmethod
    def create(cls, key: Key[Array, ""], spec: Spec) -> RandomNetwork:
        """Create the bonus of one seed; the predictor has a hidden layer more than its target."""
        target, predictor = (
            FeatureNetwork.create(random_keys.fold(key, name), spec, hidden)
            for name, hidden in (("target", 1), ("predictor", 2))
        )
        normaliser = ObsNormaliser.create(spec.obs, clip=CLIP)
        return cls(target, predictor, start_optimiser(predictor), normaliser)

    def explore(
        self, rows: Record, key: Key[Array, ""]
    ) -> tuple[RandomNetwork, Float[Array, "row"]]:
        """Give each row its prediction error, then learn to predict."""
        normaliser = self.normaliser.update(rows.next_obs, rows.mask)
        seen = dataclasses.replace(rows, next_obs=normaliser(rows.next_obs))
        error = prediction_error(self.predictor, self.target, seen.next_obs)

        def loss(predictor: FeatureNetwork, rows: Record, mask: Any) -> Float[Array, ""]:
            return masked_mean(prediction_error(predictor, self.target, rows.next_obs), mask)

        predictor, optimiser = train_once((self.predictor, self.optimiser), seen, key, loss, LR)
        return RandomNetwork(self.target, predictor, optimiser, normaliser), error


def prediction_error(
    predictor: FeatureNetwork, target: FeatureNetwork, obs: Obs
) -> Float[Array, "..."]:
    """Return b of the module docstring, divided by the number of features."""
    return squared_distance(predictor(obs), jax.lax.stop_gradient(target(obs)))


LAYER = bonus_layer(
    "rnd", "a bonus where a network cannot yet predict a random one", 0.5, RandomNetwork.create
)
