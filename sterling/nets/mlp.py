"""Multi-layer perceptrons, their layers and their initialisation."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.ad_checkpoint import checkpoint_name
from jaxtyping import Array, Float, Key

# marks of values in a program, by which training/plasticity/ finds them; they compute nothing
HIDDEN, LAST_HIDDEN, CHANNELS = "hidden units", "last hidden units", "channels"
ACTIVATIONS = {
    **{"tanh": jnp.tanh, "relu": jax.nn.relu, "silu": jax.nn.silu, "elu": jax.nn.elu},
    "gelu": jax.nn.gelu,
}


class Linear(eqx.Module):
    """A linear layer on the last axis, with or without a bias."""

    weight: Float[Array, "inputs outputs"]
    bias: Float[Array, "outputs"] | None = None

    def __call__(self, x: Float[Array, "... inputs"]) -> Float[Array, "... outputs"]:
        """Return x W + b."""
        y = jnp.dot(x, self.weight)
        return y if self.bias is None else y + self.bias.reshape((1,) * (x.ndim - 1) + (-1,))


class Norm(eqx.Module):
    """Layer normalisation over the last axis, with a learned scale and shift (Ba 2016).

    Without a shift, the mean is not subtracted: RMS norm (Zhang 2019). Computed in float32.
    """

    scale: Float[Array, "n"]
    shift: Float[Array, "n"] | None = None
    epsilon: float = eqx.field(static=True, default=1e-6)  # added to the variance

    def __call__(self, x: Float[Array, "... n"]) -> Float[Array, "... n"]:
        """Normalise each row."""
        lead, wide = (1,) * (x.ndim - 1), x.astype(jnp.float32)
        if self.shift is not None:
            wide = wide - jnp.mean(wide, -1, keepdims=True)
        unit = wide * jax.lax.rsqrt(jnp.mean(jnp.square(wide), -1, keepdims=True) + self.epsilon)
        y = unit.astype(x.dtype) * self.scale.reshape(*lead, -1)
        return y if self.shift is None else y + self.shift.reshape(*lead, -1)


class MLP(eqx.Module):
    """Linear layers with activations between them; with ``activate_last`` also after the last.

    ``norms``, if any, normalise each hidden layer before its activation.
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
        *,
        layer_norm: bool = False,
        scale: float = 2**0.5,
    ) -> MLP:
        """Create orthogonal layers with gain ``scale``, the last with gain ``last_scale``. With
        ``layer_norm`` every hidden layer is normalised."""
        shapes = list(pairwise(sizes))
        scales = [scale] * (len(shapes) - 1) + [last_scale]
        raw = split_flat(jax.random.normal(key, (_total_size(shapes),)), shapes)
        made = [
            Linear(gain * orthogonal_matrix(x), jnp.zeros(x.shape[1]))
            for x, gain in zip(raw, scales, strict=True)
        ]
        return cls(tuple(made), activation, activate_last, _hidden_norms(sizes, layer_norm))

    @classmethod
    def uniform(
        cls,
        key: Key[Array, ""],
        sizes: Sequence[int],
        activation: str = "relu",
        activate_last: bool = False,
        layer_norm: bool = False,
    ) -> MLP:
        """Create layers with weights and biases from U(-1/sqrt(inputs), 1/sqrt(inputs)), as in the
        code of off-policy papers. With ``layer_norm`` every hidden layer is normalised."""
        shapes = [(size + 1, out) for size, out in pairwise(sizes)]
        unit = jax.random.uniform(key, (_total_size(shapes),), minval=-1.0, maxval=1.0)
        raw = [x * (x.shape[0] - 1) ** -0.5 for x in split_flat(unit, shapes)]
        norms = _hidden_norms(sizes, layer_norm)
        return cls(tuple(Linear(x[1:], x[0]) for x in raw), activation, activate_last, norms)

    @classmethod
    def glorot(cls, key: Key[Array, ""], sizes: Sequence[int], activation: str) -> MLP:
        """Create layers with zero biases and weights from U(-b, b), b = sqrt(6 / (inputs +
        outputs)) (Glorot 2010)."""
        shapes = list(pairwise(sizes))
        unit = jax.random.uniform(key, (_total_size(shapes),), minval=-1.0, maxval=1.0)
        made = [
            Linear(x * (6.0 / sum(x.shape)) ** 0.5, jnp.zeros(x.shape[1]))
            for x in split_flat(unit, shapes)
        ]
        return cls(tuple(made), activation)

    def __call__(self, x: Float[Array, "... inputs"]) -> Float[Array, "... outputs"]:
        """Apply all layers."""
        return self.apply(x, lambda y, index: y)

    def apply(
        self, x: Float[Array, "... inputs"], drop: Callable[[Array, int], Array]
    ) -> Float[Array, "... outputs"]:
        """Apply all layers; ``drop`` gets the outputs of each hidden linear layer, and its index,
        and returns what is normalised and activated in their place (special_layers/dropout.py)."""
        x = self.layers[-1](self.hidden(x, drop))
        return ACTIVATIONS[self.activation](x) if self.activate_last else x

    def hidden(
        self, x: Float[Array, "... inputs"], drop: Callable[[Array, int], Array] | None = None
    ) -> Float[Array, "... hidden"]:
        """Apply the hidden layers: return the inputs of the last one. ``drop`` as in ``apply``."""
        activation = ACTIVATIONS[self.activation]
        for index, layer in enumerate(self.layers[:-1]):
            x = layer(x) if drop is None else drop(layer(x), index)
            x = activation(self.norms[index](x) if self.norms else x)
            x = checkpoint_name(x, LAST_HIDDEN if index == len(self.layers) - 2 else HIDDEN)
        return x


class PartialMLP(MLP):
    """An MLP for which some of its input features are always 0."""

    reads: tuple[bool, ...] = eqx.field(static=True, default=())  # which features it reads

    def hidden(
        self, x: Float[Array, "... features"], drop: Callable[[Array, int], Array] | None = None
    ) -> Float[Array, "... hidden"]:
        """Apply the hidden layers to the features that the network reads."""
        reads = np.asarray(self.reads).reshape((1,) * (x.ndim - 1) + (-1,))
        return super().hidden(jnp.where(reads, x, jnp.zeros_like(x)), drop)


def hidden_sizes(width: int | tuple[int, ...], depth: int) -> tuple[int, ...]:
    """Return the units of each hidden layer: ``depth`` layers of ``width`` units, or the sizes
    that ``width`` lists, whatever ``depth`` is."""
    return width if isinstance(width, tuple) else (width,) * depth


def _hidden_norms(sizes: Sequence[int], layer_norm: bool) -> tuple[Norm, ...]:
    """Return a new layer normalisation for each hidden layer, or none."""
    normed = sizes[1:-1] if layer_norm else ()
    return tuple(Norm(jnp.ones(size), jnp.zeros(size)) for size in normed)


def split_flat(
    flat: Float[Array, "total"], shapes: Sequence[tuple[int, ...]]
) -> list[Float[Array, "..."]]:
    """Split one vector into arrays. (One large random draw compiles faster than many.)"""
    ends = [_total_size(shapes[: i + 1]) for i in range(len(shapes) - 1)]
    return [x.reshape(s) for x, s in zip(jnp.split(flat, ends), shapes, strict=True)]


def orthogonal_matrix(normal: Float[Array, "rows columns"]) -> Float[Array, "rows columns"]:
    """Return a uniformly distributed orthogonal matrix, given Gaussian noise (Saxe 2014): the Q of
    its QR decomposition, with the signs of R's diagonal."""
    rows, columns = normal.shape
    q, r = _qr(normal if rows >= columns else normal.T)
    q = q * jnp.where(jnp.diagonal(r) < 0.0, -1.0, 1.0)[None]
    return q if rows >= columns else q.T


@jax.custom_batching.sequential_vmap
def _qr(matrix: Float[Array, "rows columns"]) -> tuple[Any, Any]:
    """Return Q and R; under ``vmap`` the matrices are decomposed one after another.

    jaxlib 0.10 splits a batch of them among the same threads that run the program's operations, and
    waits for them there: as many concurrent batches as there are cores deadlock.
    """
    q, r = jnp.linalg.qr(matrix)
    return q, r


def _total_size(shapes: Sequence[tuple[int, ...]]) -> int:
    return sum(math.prod(shape) for shape in shapes)
