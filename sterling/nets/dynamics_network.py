"""Networks that predict an environment's step: the change of observation, reward, termination."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from gymnasium import spaces
from jaxtyping import Array, Float, Key

from sterling.equations.model_error import StepPrediction
from sterling.nets.mlp import MLP
from sterling.types import Mistake, Record

INITIAL_MAX_LOG_VARIANCE, INITIAL_MIN_LOG_VARIANCE = (
    0.5,
    -10.0,
)  # initial bounds of the log variance (the code of Chua 2018)


class Dynamics(eqx.Module):
    """The network of one ensemble member: mean, log deviation and termination logit of a step.

    Inputs and outputs are normalised by the caller. The log variance is kept softly between two
    learned bounds (Chua 2018, arXiv:1805.12114, appendix A.1).
    """

    net: MLP
    most: Float[Array, "n"]  # bounds of the log variance
    least: Float[Array, "n"]

    @classmethod
    def create(
        cls, key: Key[Array, ""], inputs: int, hidden: Sequence[int], outputs: int
    ) -> Dynamics:
        """Create a network from ``inputs`` numbers to ``outputs`` predicted numbers."""
        net = MLP.uniform(key, (inputs, *hidden, 2 * outputs + 1), "silu")
        return cls(
            net,
            jnp.full(outputs, INITIAL_MAX_LOG_VARIANCE),
            jnp.full(outputs, INITIAL_MIN_LOG_VARIANCE),
        )

    def __call__(self, x: Float[Array, "row inputs"]) -> StepPrediction:
        """Predict each row's step."""
        out, n = self.net(x), self.most.size
        mean, variance, end = out[..., :n], out[..., n:-1], out[..., -1]
        most, least = self.most[None], self.least[None]
        variance = most - jax.nn.softplus(most - variance)
        variance = least + jax.nn.softplus(variance - least)
        return StepPrediction(mean, 0.5 * variance, end)


def observation_size(space: spaces.Space[Any], remedy: str) -> int:
    """Return the length of observation vectors. Raises :class:`Mistake`, which ends with
    ``remedy``, if observations are not vectors of floats."""
    vector = isinstance(space, spaces.Box) and np.issubdtype(space.dtype, np.floating)
    shape: Any = space.shape
    if not vector or len(shape) != 1:
        raise Mistake(f"models need observations that are vectors of floats, not {space}. {remedy}")
    return int(shape[0])


def prediction_target(batch: Record) -> Float[Array, "batch n"]:
    """Return what the model learns to predict: the change of the observation, and the reward."""
    obs: Array = batch.obs
    next_obs: Array = batch.next_obs
    return jnp.concatenate([next_obs - obs, batch.reward[..., None]], -1)
