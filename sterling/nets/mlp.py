"""Multi-layer perceptrons as trees of arrays."""

from __future__ import annotations

from collections.abc import Sequence

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Key

ACTIVATIONS = {"tanh": jnp.tanh, "relu": jax.nn.relu, "silu": jax.nn.silu, "elu": jax.nn.elu}


class Linear(eqx.Module):
    """An affine map on the last axis."""

    weight: Float[Array, "inputs outputs"]
    bias: Float[Array, "outputs"]

    @classmethod
    def orthogonal(cls, key: Key[Array, ""], inputs: int, outputs: int, scale: float) -> Linear:
        """Orthogonal weights, zero bias: the on-policy custom (Engstrom 2020, table 1)."""
        weight = jax.nn.initializers.orthogonal(scale)(key, (inputs, outputs), jnp.float32)
        return cls(weight, jnp.zeros(outputs, jnp.float32))

    @classmethod
    def uniform(cls, key: Key[Array, ""], inputs: int, outputs: int) -> Linear:
        """U(-1/sqrt(inputs), 1/sqrt(inputs)) for both: what the off-policy papers' code used."""
        bound = inputs**-0.5
        keys = jax.random.split(key)
        weight = jax.random.uniform(keys[0], (inputs, outputs), minval=-bound, maxval=bound)
        return cls(weight, jax.random.uniform(keys[1], (outputs,), minval=-bound, maxval=bound))

    def __call__(self, x: Float[Array, "... inputs"]) -> Float[Array, "... outputs"]:
        return jnp.dot(x, self.weight) + self.bias.reshape((1,) * (x.ndim - 1) + (-1,))


class MLP(eqx.Module):
    """Linear layers with an activation between them (and after the last, with ``activate_last``)."""

    layers: tuple[Linear, ...]
    activation: str = eqx.field(static=True)
    activate_last: bool = eqx.field(static=True, default=False)

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
        pairs = list(zip(sizes[:-1], sizes[1:], strict=True))
        scales = [2**0.5] * (len(pairs) - 1) + [last_scale]
        keys = jax.random.split(key, len(pairs))
        made = [
            Linear.orthogonal(k, *pair, scale)
            for k, pair, scale in zip(keys, pairs, scales, strict=True)
        ]
        return cls(tuple(made), activation, activate_last)

    @classmethod
    def uniform(
        cls,
        key: Key[Array, ""],
        sizes: Sequence[int],
        activation: str = "relu",
        activate_last: bool = False,
    ) -> MLP:
        """Layers with fan-in uniform weights and biases."""
        pairs = list(zip(sizes[:-1], sizes[1:], strict=True))
        keys = jax.random.split(key, len(pairs))
        made = [Linear.uniform(k, *pair) for k, pair in zip(keys, pairs, strict=True)]
        return cls(tuple(made), activation, activate_last)

    def __call__(self, x: Float[Array, "... inputs"]) -> Float[Array, "... outputs"]:
        activation = ACTIVATIONS[self.activation]
        for layer in self.layers[:-1]:
            x = activation(layer(x))
        x = self.layers[-1](x)
        return activation(x) if self.activate_last else x
