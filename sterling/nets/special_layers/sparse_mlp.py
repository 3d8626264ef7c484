"""Perceptrons that begin sparse, of streaming learners (Elsayed 2024, arXiv:2410.14606)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Key

from sterling import random_keys
from sterling.nets.mlp import MLP, Linear

Share = Float[Array, ""] | float

EPSILON = 1e-5  # added to the variance of a layer
SLOPE = 0.01  # of the leaky ReLU below 0
ROUNDING = 1e-4  # 0.9 of 10 inputs are 9, however 0.9 is rounded


class SparseMLP(MLP):
    """Linear layers; each hidden one is normalised over its units, without a learned scale and
    shift (Ba 2016), and activated by a leaky ReLU."""

    @classmethod
    def create(cls, key: Key[Array, ""], sizes: Sequence[int], sparsity: Share) -> SparseMLP:
        """Create a network with weights from U(-1/sqrt(inputs), 1/sqrt(inputs)), of which the share
        ``sparsity`` of each unit's inputs, rounded up, are 0, and with zero biases. Every unit
        keeps at least one input."""
        layers = []
        for index, (inputs, outputs) in enumerate(pairwise(sizes)):
            own = random_keys.fold(key, "layer", index)
            weight = sparse_weights(own, inputs, outputs, sparsity)
            layers.append(Linear(weight, jnp.zeros(outputs)))
        return cls(tuple(layers), "leaky_relu")

    def __call__(self, x: Float[Array, "... inputs"]) -> Float[Array, "... outputs"]:
        """Apply all layers."""
        for layer in self.layers[:-1]:
            x = jax.nn.leaky_relu(normalised(layer(x)), SLOPE)
        return self.layers[-1](x)


def sparse_weights(
    key: Key[Array, ""], inputs: int, outputs: int, sparsity: Share
) -> Float[Array, "inputs outputs"]:
    """Return new weights of a layer (algorithm 1 of the paper): in each column so many are not 0,
    at places of its own."""
    shape = (inputs, outputs)
    zeros = jnp.ceil(jnp.asarray(sparsity) * inputs - ROUNDING).astype(jnp.int32)
    kept = jnp.maximum(inputs - zeros, 1)
    weight = jax.random.uniform(random_keys.fold(key, "weight"), shape, minval=-1.0, maxval=1.0)
    order = jax.random.uniform(random_keys.fold(key, "place"), shape)
    highest = jnp.sort(order, 0)[kept - 1]
    return jnp.where(order <= highest[None], weight / math.sqrt(inputs), 0.0)


def normalised(x: Float[Array, "... units"]) -> Float[Array, "... units"]:
    """Return rows of zero mean and unit deviation."""
    centred = x - jnp.mean(x, -1, keepdims=True)
    return centred * jax.lax.rsqrt(jnp.mean(jnp.square(centred), -1, keepdims=True) + EPSILON)
