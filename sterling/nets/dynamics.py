"""Networks that foretell a step of the world: the change of the observation, reward and end."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from gymnasium import spaces
from jaxtyping import Array, Float, Key

from sterling.equations.dynamics import Foretold
from sterling.nets.mlp import MLP
from sterling.types import Mistake, Record

MOST, LEAST = 0.5, -10.0  # bounds of the log variance at the start (Chua 2018, their code)


class Dynamics(eqx.Module):
    """mu, log sigma and l of one member, in units of what was seen.

    The log variance is bent to stay between two learned bounds (Chua 2018, arXiv:1805.12114,
    appendix A.1).
    """

    net: MLP
    most: Float[Array, "n"]  # bounds of the log variance
    least: Float[Array, "n"]

    @classmethod
    def create(
        cls, key: Key[Array, ""], inputs: int, hidden: Sequence[int], outputs: int
    ) -> Dynamics:
        """A fresh network from ``inputs`` numbers to ``outputs`` that are foretold."""
        net = MLP.uniform(key, (inputs, *hidden, 2 * outputs + 1), "silu")
        return cls(net, jnp.full(outputs, MOST), jnp.full(outputs, LEAST))

    def __call__(self, x: Float[Array, "row inputs"]) -> Foretold:
        """What is foretold of each row."""
        out, n = self.net(x), self.most.size
        mean, variance, end = out[..., :n], out[..., n:-1], out[..., -1]
        most, least = self.most[None], self.least[None]
        variance = most - jax.nn.softplus(most - variance)
        variance = least + jax.nn.softplus(variance - least)
        return Foretold(mean, 0.5 * variance, end)


def numbers(space: spaces.Space[Any], remedy: str) -> int:
    """How many numbers an observation has; raises :class:`Mistake`, with a ``remedy``, where it is
    no vector of floats."""
    vector = isinstance(space, spaces.Box) and np.issubdtype(space.dtype, np.floating)
    shape: Any = space.shape
    if not vector or len(shape) != 1:
        raise Mistake(f"a model is learned of vectors of numbers, not of {space}; {remedy}")
    return int(shape[0])


def outcome(batch: Record) -> Float[Array, "batch n"]:
    """What is to be foretold: the change of the observation, and the reward."""
    obs: Array = batch.obs
    next_obs: Array = batch.next_obs
    return jnp.concatenate([next_obs - obs, batch.reward[..., None]], -1)
