"""Convolutional encoders of images."""

from __future__ import annotations

import math

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.ad_checkpoint import checkpoint_name
from jaxtyping import Array, Float, Key, Num

from sterling import random_keys
from sterling.nets.mlp import CHANNELS, orthogonal_matrix
from sterling.problem.picture_layout import channels_first

Layers = tuple[tuple[int, int, int], ...]  # (channels, kernel, stride) per layer

NATURE_LAYERS = ((32, 8, 4), (64, 4, 2), (64, 3, 1))  # Mnih 2015
SHORTEST_NATURE_SIDE = 36  # below, the last of these layers has nothing left
GRID_LAYERS = ((16, 3, 1),)  # Young & Tian 2019 (MinAtar), for grids
DRQ_LAYERS = ((32, 3, 2), (32, 3, 1), (32, 3, 1), (32, 3, 1))  # Yarats 2021 (DrQ, DrQ-v2)
SHORTEST_DRQ_SIDE = 15


class Convolution(eqx.Module):
    """A convolution without padding on ``(..., height, width, channel)``."""

    weight: Float[Array, "kernel kernel inputs outputs"]
    bias: Float[Array, "outputs"]
    stride: int = eqx.field(static=True)

    @classmethod
    def orthogonal(
        cls, key: Key[Array, ""], inputs: int, outputs: int, kernel: int, stride: int
    ) -> Convolution:
        """Create one with orthogonal weights (gain sqrt(2)) and zero bias."""
        weight = orthogonal_matrix(jax.random.normal(key, (kernel * kernel * inputs, outputs)))
        shape = (kernel, kernel, inputs, outputs)
        return cls(2**0.5 * weight.reshape(shape), jnp.zeros(outputs), stride)

    def __call__(self, x: Float[Array, "batch height width inputs"]) -> Float[Array, "batch h w o"]:
        """Convolve, by the method that is faster on this backend."""
        convolve = convolve_by_products if jax.default_backend() == "cpu" else convolve_xla
        return convolve(x, self.weight, self.stride) + self.bias.reshape(1, 1, 1, -1)

    def same_size(self, x: Float[Array, "batch height width inputs"]) -> Array:
        """Convolve a picture padded with zeros, so that with a stride of 1 it keeps its sides."""
        kernel = self.weight.shape[0]
        edge = ((kernel - 1) // 2, kernel // 2)
        return self(jnp.pad(x, ((0, 0), edge, edge, (0, 0))))


def convolve_xla(
    x: Float[Array, "batch height width inputs"],
    weight: Float[Array, "kernel kernel inputs outputs"],
    stride: int,
) -> Float[Array, "batch h w outputs"]:
    """Convolve by XLA's own operation, which accelerators have kernels for."""
    layout = ("NHWC", "HWIO", "NHWC")
    return jax.lax.conv_general_dilated(
        x, weight, (stride, stride), "VALID", dimension_numbers=layout
    )


def convolve_by_products(
    x: Float[Array, "batch height width inputs"],
    weight: Float[Array, "kernel kernel inputs outputs"],
    stride: int,
) -> Float[Array, "batch h w outputs"]:
    """Convolve by one matrix product of patches. A kernel that is no multiple of the stride gets
    zeros, and so do pictures that are too small for it then.

    On CPUs XLA (jaxlib 0.10) computes the gradients of a convolution inside a loop without its
    fast kernels: those of the Nature torso take 6.6 s at batch 256 where these take 0.18 s. Blocks
    of ``stride x stride`` become channels first, so that a patch consists of few slices.
    """
    kernel, _, inputs, outputs = weight.shape
    across = -(-kernel // stride)
    height, width = ((side - kernel) // stride + 1 for side in x.shape[1:3])
    rows, columns = height + across - 1, width + across - 1
    short = [
        max(size * stride - side, 0)
        for size, side in zip((rows, columns), x.shape[1:3], strict=True)
    ]
    if across * stride > kernel or any(short):
        more = (0, across * stride - kernel)
        weight = jnp.pad(weight, (more, more, (0, 0), (0, 0)))
        x = jnp.pad(x, ((0, 0), (0, short[0]), (0, short[1]), (0, 0)))
    blocks = x[:, : rows * stride, : columns * stride]
    blocks = blocks.reshape(-1, rows, stride, columns, stride, inputs)
    blocks = blocks.transpose(0, 1, 3, 2, 4, 5).reshape(-1, rows, columns, stride**2 * inputs)
    corners = [(row, column) for row in range(across) for column in range(across)]
    patches = [blocks[:, i : i + height, j : j + width] for i, j in corners]
    split = weight.reshape(across, stride, across, stride, inputs, outputs)
    matrix = split.transpose(0, 2, 1, 3, 4, 5).reshape(-1, outputs)
    product = jnp.concatenate(patches, -1).reshape(-1, matrix.shape[0]) @ matrix
    return product.reshape(-1, height, width, outputs)


class Torso(eqx.Module):
    """Convolutions, each followed by ReLU; images of bytes are scaled to [0, 1], for DrQ's layers
    to [-0.5, 0.5]."""

    layers: tuple[Convolution, ...]
    channels_first: bool = eqx.field(static=True)
    is_bytes: bool = eqx.field(static=True)
    grid: tuple[int, int, int] = eqx.field(static=True)  # height, width, channels of the output
    middle: float = eqx.field(static=True, default=0.0)  # subtracted from scaled bytes

    @classmethod
    def create(
        cls,
        key: Key[Array, ""],
        shape: tuple[int, ...],
        is_bytes: bool,
        *,
        plan: Layers = (),
        first: bool | None = None,
    ) -> Torso:
        """Create a torso for images of ``shape``, channel first (EnvPool) or channel last.

        ``plan``: the layers (default: Nature's for sides of 36 and more, else one for grids).
        ``first``: whether channels come first (default: by sterling/problem/picture_layout.py).
        """
        leads = channels_first(shape) if first is None else first
        height, width, channels = (*shape[1:], shape[0]) if leads else shape
        layers = []
        plan = plan or default_plan(height, width)
        each_key = random_keys.split(key, "layer", len(plan))
        for each, (outputs, kernel, stride) in zip(each_key, plan, strict=True):
            layers.append(Convolution.orthogonal(each, channels, outputs, kernel, stride))
            height, width = ((side - kernel) // stride + 1 for side in (height, width))
            channels = outputs
        middle = 0.5 if is_bytes and plan == DRQ_LAYERS else 0.0
        return cls(tuple(layers), leads, is_bytes, (height, width, channels), middle)

    @property
    def size(self) -> int:
        """The number of output features."""
        return math.prod(self.grid)

    def __call__(self, x: Num[Array, "... a b c"]) -> Float[Array, "... features"]:
        """Return the features of images with any leading axes."""
        lead = x.shape[:-3]
        x = channels_last_floats(x, self.channels_first, self.is_bytes)
        x = x - self.middle if self.middle else x
        for layer in self.layers:
            x = checkpoint_name(jax.nn.relu(layer(x)), CHANNELS)
        return x.reshape(*lead, self.size)


def channels_last_floats(
    x: Num[Array, "... a b c"], channels_first: bool, is_bytes: bool
) -> Float[Array, "batch height width channels"]:
    """Return images with one leading axis, channels last, and bytes scaled to [0, 1]."""
    x = x.reshape(-1, *x.shape[-3:])
    x = x.astype(jnp.float32) / 255.0 if is_bytes else x.astype(jnp.float32)
    return jnp.moveaxis(x, -3, -1) if channels_first else x


def default_plan(height: int, width: int) -> Layers:
    """Return the layers for a picture of these sides if none are chosen."""
    return NATURE_LAYERS if min(height, width) >= SHORTEST_NATURE_SIDE else GRID_LAYERS
