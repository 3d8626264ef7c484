"""Convolutional torsos for pictures."""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Key, Num

from sterling import keys
from sterling.nets.mlp import orthogonal

# (channels, kernel, stride) per layer
NATURE = ((32, 8, 4), (64, 4, 2), (64, 3, 1))  # Mnih 2015, for pictures of 36 x 36 and more
SMALL = ((16, 3, 1),)  # Young & Tian 2019 (MinAtar), for grids


class Convolution(eqx.Module):
    """A convolution without padding on ``(..., height, width, channel)``."""

    weight: Float[Array, "kernel kernel inputs outputs"]
    bias: Float[Array, "outputs"]
    stride: int = eqx.field(static=True)

    @classmethod
    def orthogonal(
        cls, key: Key[Array, ""], inputs: int, outputs: int, kernel: int, stride: int
    ) -> Convolution:
        """Orthogonal weights with gain sqrt(2), zero bias."""
        weight = orthogonal(jax.random.normal(key, (kernel * kernel * inputs, outputs)))
        shape = (kernel, kernel, inputs, outputs)
        return cls(2**0.5 * weight.reshape(shape), jnp.zeros(outputs), stride)

    def __call__(self, x: Float[Array, "batch height width inputs"]) -> Float[Array, "batch h w o"]:
        """Convolve."""
        convolve = by_products if jax.default_backend() == "cpu" else built_in
        return convolve(x, self.weight, self.stride) + self.bias.reshape(1, 1, 1, -1)


def built_in(
    x: Float[Array, "batch height width inputs"],
    weight: Float[Array, "kernel kernel inputs outputs"],
    stride: int,
) -> Float[Array, "batch h w outputs"]:
    """XLA's convolution, which accelerators have kernels for."""
    layout = ("NHWC", "HWIO", "NHWC")
    return jax.lax.conv_general_dilated(
        x, weight, (stride, stride), "VALID", dimension_numbers=layout
    )


def by_products(
    x: Float[Array, "batch height width inputs"],
    weight: Float[Array, "kernel kernel inputs outputs"],
    stride: int,
) -> Float[Array, "batch h w outputs"]:
    """The same as one matrix product of patches, for kernels that are whole strides wide.

    On CPUs XLA (jaxlib 0.10) computes the gradients of a convolution inside a loop without its
    fast kernels: those of the Nature torso take 6.6 s at batch 256 where these take 0.18 s. Blocks
    of ``stride x stride`` become channels first, so that a patch is few slices.
    """
    kernel, _, inputs, outputs = weight.shape
    across = kernel // stride
    height, width = ((side - kernel) // stride + 1 for side in x.shape[1:3])
    rows, columns = height + across - 1, width + across - 1
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
    """Convolutions with ReLU between; pictures of bytes are scaled to [0, 1]."""

    layers: tuple[Convolution, ...]
    channels_first: bool = eqx.field(static=True)
    is_bytes: bool = eqx.field(static=True)
    size: int = eqx.field(static=True)  # features that come out

    @classmethod
    def create(cls, key: Key[Array, ""], shape: tuple[int, ...], is_bytes: bool) -> Torso:
        """A torso for pictures of ``shape``, either channel first (EnvPool) or channel last.

        Where two neighbouring axes are equal they are the picture's sides and the third axis is its
        channels: (8, 8, 20) has 20. Otherwise the channels are first where the first axis is
        shorter than the last: (3, 210, 160) and (210, 160, 3) have 3, and so (5, 4, 26) is read as
        5 channels of 4 x 26. What is meant otherwise should be laid out otherwise.
        """
        channels_first = _channels_first(shape)
        height, width, channels = (*shape[1:], shape[0]) if channels_first else shape
        layers = []
        plan = NATURE if min(height, width) >= 36 else SMALL
        each_key = keys.deal(key, "layer", len(plan))
        for each, (outputs, kernel, stride) in zip(each_key, plan, strict=True):
            layers.append(Convolution.orthogonal(each, channels, outputs, kernel, stride))
            height, width = ((side - kernel) // stride + 1 for side in (height, width))
            channels = outputs
        return cls(tuple(layers), channels_first, is_bytes, height * width * channels)

    def __call__(self, x: Num[Array, "... a b c"]) -> Float[Array, "... features"]:
        """The features of pictures with any leading axes."""
        lead = x.shape[:-3]
        x = x.reshape(-1, *x.shape[-3:])
        x = x.astype(jnp.float32) / 255.0 if self.is_bytes else x.astype(jnp.float32)
        x = jnp.moveaxis(x, -3, -1) if self.channels_first else x
        for layer in self.layers:
            x = jax.nn.relu(layer(x))
        return x.reshape(*lead, self.size)


def _channels_first(shape: tuple[int, ...]) -> bool:
    """Whether a picture's first axis is its channels: the rule of :meth:`Torso.create`."""
    first, middle, last = shape
    if (first == middle) != (middle == last):
        return middle == last
    return first < last
