"""Residual feed-forward networks: SimBa's (Lee 2025, arXiv:2410.09754, section 4) and BRO's (Nauman
2024, arXiv:2405.16158, section 3)."""

from __future__ import annotations

import math
from collections.abc import Sequence

import jax
import jax.numpy as jnp
from jax.ad_checkpoint import checkpoint_name
from jaxtyping import Array, Float, Key

from sterling import random_keys
from sterling.nets.mlp import ACTIVATIONS, HIDDEN, MLP, Linear, Norm, orthogonal_matrix

EXPANSION = 4  # hidden units of a block, for each unit outside it


class ResidualMLP(MLP):
    """x_0 = linear(x); x_{k+1} = x_k + linear(activation(linear(norm(x_k)))), with four times as
    many units inside; linear(norm(x_K)).

    Without training each block changes little, and a linear path leads from the inputs to the
    outputs. ``layers`` are the first, two of each block, the last; ``norms`` are the blocks', the
    last.
    """

    @classmethod
    def create(
        cls, key: Key[Array, ""], sizes: tuple[int, int, int], blocks: int, activation: str = "relu"
    ) -> ResidualMLP:
        """Create a network of ``sizes`` inputs, units and outputs. Blocks begin with normal weights
        of variance 2 / inputs (He 2015), first and last layer orthogonal; biases are 0."""
        inputs, width, outputs = sizes
        inside = [(width, EXPANSION * width), (EXPANSION * width, width)] * blocks
        shapes = [(inputs, width), *inside, (width, outputs)]
        layers = []
        for index, shape in enumerate(shapes):
            weight = jax.random.normal(random_keys.fold(key, "layer", index), shape)
            is_inside = 0 < index < len(shapes) - 1
            weight = weight * math.sqrt(2.0 / shape[0]) if is_inside else orthogonal_matrix(weight)
            layers.append(Linear(weight, jnp.zeros(shape[1])))
        norms = tuple(Norm(jnp.ones(width), jnp.zeros(width)) for _ in range(blocks + 1))
        return cls(tuple(layers), activation, norms=norms)

    def __call__(self, x: Float[Array, "... inputs"]) -> Float[Array, "... outputs"]:
        """Apply all layers."""
        activation, (first, *inside, last) = ACTIVATIONS[self.activation], self.layers
        x = first(x)
        for norm, up, down in zip(self.norms, inside[::2], inside[1::2], strict=False):
            x = x + down(checkpoint_name(activation(up(norm(x))), HIDDEN))
        return last(self.norms[-1](x))


class BroNet(MLP):
    """x_0 = activation(f(x)); x_{k+1} = x_k + f(activation(f(x_k))); linear(x_K), with f(x) =
    norm(linear(x)), each of its own.

    A norm behind each linear layer but the last bounds what a block adds. ``layers`` are the first,
    two of each block, the last; ``norms`` are of all but the last.
    """

    @classmethod
    def create(
        cls,
        key: Key[Array, ""],
        sizes: tuple[int, int],
        heads: Sequence[tuple[int, float]],
        blocks: int,
        activation: str = "relu",
        *,
        bias: bool = True,
    ) -> BroNet:
        """Create a network of ``sizes`` inputs and units. Layers begin orthogonal with gain sqrt(2)
        and biases of 0. The last is made of ``heads``, each so many outputs with a gain, and has a
        bias if ``bias``."""
        inputs, width = sizes

        def weight(index: int, rows: int, columns: int, gain: float) -> Array:
            normal = jax.random.normal(random_keys.fold(key, "layer", index), (rows, columns))
            return gain * orthogonal_matrix(normal)

        lines = [inputs, *(width,) * (2 * blocks)]
        weights = [weight(index, rows, width, math.sqrt(2.0)) for index, rows in enumerate(lines)]
        last = [
            weight(len(lines) + place, width, outputs, gain)
            for place, (outputs, gain) in enumerate(heads)
        ]
        ends = jnp.zeros(sum(outputs for outputs, _ in heads)) if bias else None
        layers = [Linear(each, jnp.zeros(width)) for each in weights]
        norms = tuple(Norm(jnp.ones(width), jnp.zeros(width)) for _ in lines)
        return cls((*layers, Linear(jnp.concatenate(last, -1), ends)), activation, norms=norms)

    def __call__(self, x: Float[Array, "... inputs"]) -> Float[Array, "... outputs"]:
        """Apply all layers."""
        activation = ACTIVATIONS[self.activation]
        first, *inside = (
            lambda x, layer=layer, norm=norm: norm(layer(x))
            for layer, norm in zip(self.layers, self.norms, strict=False)
        )
        x = activation(first(x))
        for up, down in zip(inside[::2], inside[1::2], strict=True):
            x = x + down(checkpoint_name(activation(up(x)), HIDDEN))
        return self.layers[-1](x)
