"""Multi-layer perceptrons as trees of arrays."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Key

ACTIVATIONS = {
    **{"tanh": jnp.tanh, "relu": jax.nn.relu, "silu": jax.nn.silu, "elu": jax.nn.elu},
    "gelu": jax.nn.gelu,
}


class Linear(eqx.Module):
    """An affine map on the last axis, or without a bias a linear one."""

    weight: Float[Array, "inputs outputs"]
    bias: Float[Array, "outputs"] | None = None

    def __call__(self, x: Float[Array, "... inputs"]) -> Float[Array, "... outputs"]:
        """x W + b."""
        y = jnp.dot(x, self.weight)
        return y if self.bias is None else y + self.bias.reshape((1,) * (x.ndim - 1) + (-1,))


class Norm(eqx.Module):
    """Zero mean and unit deviation over the last axis, then a learned scale and shift (Ba 2016).

    Without a shift no mean is taken off either: RMS norm (Zhang 2019). Computed in float32.
    """

    scale: Float[Array, "n"]
    shift: Float[Array, "n"] | None = None
    epsilon: float = eqx.field(static=True, default=1e-6)  # added to the variance

    def __call__(self, x: Float[Array, "... n"]) -> Float[Array, "... n"]:
        """Normalise each row by itself."""
        lead, wide = (1,) * (x.ndim - 1), x.astype(jnp.float32)
        if self.shift is not None:
            wide = wide - jnp.mean(wide, -1, keepdims=True)
        unit = wide * jax.lax.rsqrt(jnp.mean(jnp.square(wide), -1, keepdims=True) + self.epsilon)
        y = unit.astype(x.dtype) * self.scale.reshape(*lead, -1)
        return y if self.shift is None else y + self.shift.reshape(*lead, -1)


class MLP(eqx.Module):
    """Linear layers with an activation between, and with ``activate_last`` after the last too.

    ``norms``, where there are any, normalise what goes into the activations between.
    """

    layers: tuple[Linear, ...]
    activation: str = eqx.field(static=True)
    activate_last: bool = eqx.field(static=True, default=False)
    norms: tuple[Norm, ...] = ()

    @classmethod
    def orthogonal(
        cls,
        key: Key[Array, ""],
        sizes: Sequence[int],
        activation: str = "tanh",
        last_scale: float = 1.0,
        activate_last: bool = False,
    ) -> MLP:
        """Orthogonal layers with gain sqrt(2), the last with ``last_scale``."""
        shapes = list(pairwise(sizes))
        scales = [2**0.5] * (len(shapes) - 1) + [last_scale]
        raw = pieces(jax.random.normal(key, (_total(shapes),)), shapes)
        made = [
            Linear(scale * orthogonal(x), jnp.zeros(x.shape[1]))
            for x, scale in zip(raw, scales, strict=True)
        ]
        return cls(tuple(made), activation, activate_last)

    @classmethod
    def uniform(
        cls,
        key: Key[Array, ""],
        sizes: Sequence[int],
        activation: str = "relu",
        activate_last: bool = False,
        layer_norm: bool = False,
    ) -> MLP:
        """Weights and biases from U(-1/sqrt(inputs), 1/sqrt(inputs)), as the off-policy papers'
        code has it; with ``layer_norm`` every hidden layer is normalised."""
        shapes = [(size + 1, out) for size, out in pairwise(sizes)]
        unit = jax.random.uniform(key, (_total(shapes),), minval=-1.0, maxval=1.0)
        raw = [x * (x.shape[0] - 1) ** -0.5 for x in pieces(unit, shapes)]
        normed = sizes[1:-1] if layer_norm else ()
        norms = tuple(Norm(jnp.ones(size), jnp.zeros(size)) for size in normed)
        return cls(tuple(Linear(x[1:], x[0]) for x in raw), activation, activate_last, norms)

    @classmethod
    def glorot(cls, key: Key[Array, ""], sizes: Sequence[int], activation: str) -> MLP:
        """Biases 0, weights from U(-b, b) with b = sqrt(6 / (inputs + outputs)) (Glorot 2010)."""
        shapes = list(pairwise(sizes))
        unit = jax.random.uniform(key, (_total(shapes),), minval=-1.0, maxval=1.0)
        made = [
            Linear(x * (6.0 / sum(x.shape)) ** 0.5, jnp.zeros(x.shape[1]))
            for x in pieces(unit, shapes)
        ]
        return cls(tuple(made), activation)

    def __call__(self, x: Float[Array, "... inputs"]) -> Float[Array, "... outputs"]:
        """Through all layers."""
        activation = ACTIVATIONS[self.activation]
        for index, layer in enumerate(self.layers[:-1]):
            x = layer(x)
            x = activation(self.norms[index](x) if self.norms else x)
        x = self.layers[-1](x)
        return activation(x) if self.activate_last else x


def pieces(
    flat: Float[Array, "total"], shapes: Sequence[tuple[int, ...]]
) -> list[Float[Array, "..."]]:
    """One vector cut into arrays: a single draw of random numbers is quicker to compile."""
    ends = [_total(shapes[: i + 1]) for i in range(len(shapes) - 1)]
    return [x.reshape(s) for x, s in zip(jnp.split(flat, ends), shapes, strict=True)]


def orthogonal(normal: Float[Array, "rows columns"]) -> Float[Array, "rows columns"]:
    """The orthogonal matrix nearest in spirit to Gaussian noise (Saxe 2014): Q of its QR, with
    signs that make it uniformly distributed."""
    rows, columns = normal.shape
    q, r = _qr(normal if rows >= columns else normal.T)
    q = q * jnp.where(jnp.diagonal(r) < 0.0, -1.0, 1.0)[None]
    return q if rows >= columns else q.T


@jax.custom_batching.sequential_vmap
def _qr(matrix: Float[Array, "rows columns"]) -> tuple[Any, Any]:
    """Q and R, of one matrix after another under ``vmap``.

    jaxlib 0.10 divides a batch of them among the very threads that run the program's operations and
    waits for them there: as many batches at once as there are cores never end.
    """
    q, r = jnp.linalg.qr(matrix)
    return q, r


def _total(shapes: Sequence[tuple[int, ...]]) -> int:
    return sum(math.prod(shape) for shape in shapes)
