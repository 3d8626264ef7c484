"""The residual convolutional encoder of IMPALA (Espeholt 2018, arXiv:1802.01561, figure 3)."""

from __future__ import annotations

import math

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Key, Num

from sterling import random_keys
from sterling.nets.convolution import Convolution, channels_last_floats

IMPALA_CHANNELS = (16, 32, 32)  # of the blocks; each halves the sides
KERNEL, POOL = 3, 3  # sides of the filters, and of the windows of max-pooling


class ResidualUnit(eqx.Module):
    """x + conv(relu(conv(relu(x))))."""

    first: Convolution
    second: Convolution

    def __call__(
        self, x: Float[Array, "batch height width c"]
    ) -> Float[Array, "batch height width c"]:
        """Return the sum."""
        inner = self.first.same_size(jax.nn.relu(x))
        return x + self.second.same_size(jax.nn.relu(inner))


class ResidualBlock(eqx.Module):
    """A convolution, max-pooling that halves the sides, and two residual units."""

    convolution: Convolution
    units: tuple[ResidualUnit, ResidualUnit]

    @classmethod
    def create(cls, key: Key[Array, ""], inputs: int, outputs: int) -> ResidualBlock:
        """Create a block from ``inputs`` to ``outputs`` channels."""
        keys = random_keys.split(key, "convolution", 5)
        sizes = (inputs, outputs, outputs, outputs, outputs)
        layers = [
            Convolution.orthogonal(each, size, outputs, KERNEL, 1)
            for each, size in zip(keys, sizes, strict=True)
        ]
        return cls(layers[0], (ResidualUnit(*layers[1:3]), ResidualUnit(*layers[3:])))

    def __call__(self, x: Float[Array, "batch height width c"]) -> Float[Array, "batch h w o"]:
        """Return the block's output."""
        x = max_pool(self.convolution.same_size(x))
        for unit in self.units:
            x = unit(x)
        return x


class ResidualTorso(eqx.Module):
    """Three residual blocks and a last ReLU; images of bytes are scaled to [0, 1]."""

    blocks: tuple[ResidualBlock, ...]
    channels_first: bool = eqx.field(static=True)
    is_bytes: bool = eqx.field(static=True)
    grid: tuple[int, int, int] = eqx.field(static=True)  # height, width, channels of the output

    @classmethod
    def create(
        cls,
        key: Key[Array, ""],
        shape: tuple[int, ...],
        is_bytes: bool,
        *,
        first: bool,
        widen: int = 1,
    ) -> ResidualTorso:
        """Create a torso for images of ``shape``, with ``widen`` times IMPALA's channels;
        ``first``: whether channels come first."""
        height, width, channels = (*shape[1:], shape[0]) if first else shape
        blocks = []
        keys = random_keys.split(key, "block", len(IMPALA_CHANNELS))
        for each, count in zip(keys, IMPALA_CHANNELS, strict=True):
            outputs = widen * count
            blocks.append(ResidualBlock.create(each, channels, outputs))
            height, width, channels = -(-height // 2), -(-width // 2), outputs
        return cls(tuple(blocks), first, is_bytes, (height, width, channels))

    @property
    def size(self) -> int:
        """The number of output features."""
        return math.prod(self.grid)

    def __call__(self, x: Num[Array, "... a b c"]) -> Float[Array, "... features"]:
        """Return the features of images with any leading axes."""
        lead = x.shape[:-3]
        x = channels_last_floats(x, self.channels_first, self.is_bytes)
        for block in self.blocks:
            x = block(x)
        return jax.nn.relu(x).reshape(*lead, self.size)


def max_pool(x: Float[Array, "batch height width c"]) -> Float[Array, "batch h w c"]:
    """Return the maxima of 3 x 3 windows, two apart, padded to ceil(side / 2) as TensorFlow's SAME.

    The maximum of nine strided slices: on CPUs the gradient of XLA's window reduction is slow.
    """
    height, width = (-(-side // 2) for side in x.shape[1:3])
    edges = (2 * height + 1 - x.shape[1], 2 * width + 1 - x.shape[2])
    pads = [(0, 0), *((edge // 2, edge - edge // 2) for edge in edges), (0, 0)]
    padded = jnp.pad(x, pads, constant_values=-jnp.inf)
    corners = [(row, column) for row in range(POOL) for column in range(POOL)]
    slices = [
        padded[:, row : row + 2 * height - 1 : 2, column : column + 2 * width - 1 : 2]
        for row, column in corners
    ]
    pooled = slices[0]
    for each in slices[1:]:
        pooled = jnp.maximum(pooled, each)
    return pooled
