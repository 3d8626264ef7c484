"""A model of how a latent changes with an action (Schwarzer 2021, arXiv:2007.05929, section 2.2).

    z'  = u(relu(W_2 relu(W_1 [z, a])))          a one-hot,   u(x) = (x - min x) / (max x - min x)

The layers are linear; between latents that are pictures they are 3 x 3 convolutions, and a fills a
plane of its own for each action.
"""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, Key

from sterling import random_keys
from sterling.nets.convolution import Convolution
from sterling.nets.mlp import MLP

KERNEL = 3  # side of the filters
SMALLEST_RANGE = 1e-5  # added to max x - min x


class LatentTransition(eqx.Module):
    """From a latent and an action to the next latent, both between 0 and 1."""

    layers: MLP | tuple[Convolution, Convolution]
    actions: int = eqx.field(static=True)
    grid: tuple[int, int, int] | None = eqx.field(static=True)  # height, width, channels

    @classmethod
    def create(
        cls, key: Key[Array, ""], size: int, actions: int, grid: tuple[int, int, int] | None
    ) -> LatentTransition:
        """Create one for latents of ``size`` numbers, which are a picture of the shape ``grid`` if
        there is one."""
        if grid is None:
            layers = MLP.uniform(key, (size + actions, size, size), "relu", True)
            return cls(layers, actions, None)
        keys = random_keys.split(key, "convolution", 2)
        inputs, outputs = (grid[2] + actions, grid[2]), grid[2]
        first, second = (
            Convolution.orthogonal(each, count, outputs, KERNEL, 1)
            for each, count in zip(keys, inputs, strict=True)
        )
        return cls((first, second), actions, grid)

    def __call__(
        self, latent: Float[Array, "batch latent"], action: Int[Array, "batch"]
    ) -> Float[Array, "batch latent"]:
        """Return z'."""
        chosen = jax.nn.one_hot(action, self.actions)
        if isinstance(self.layers, MLP):
            return unit_range(self.layers(jnp.concatenate([latent, chosen], -1)))
        assert self.grid is not None
        height, width, _ = self.grid
        planes = jnp.broadcast_to(chosen[:, None, None], (len(action), height, width, self.actions))
        x = jnp.concatenate([latent.reshape(-1, *self.grid), planes], -1)
        for layer in self.layers:
            x = jax.nn.relu(layer.same_size(x))
        return unit_range(x.reshape(latent.shape))


def unit_range(x: Float[Array, "... n"]) -> Float[Array, "... n"]:
    """Return u(x): each row moved and scaled to lie between 0 and 1 (Schrittwieser 2020, appendix
    G)."""
    low, high = x.min(-1, keepdims=True), x.max(-1, keepdims=True)
    return (x - low) / (high - low + SMALLEST_RANGE)
