"""Feed-forward networks on the unit sphere: SimBa v2's (Lee 2025, arXiv:2502.15280, section 4)."""

from __future__ import annotations

import math

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.ad_checkpoint import checkpoint_name
from jaxtyping import Array, Float, Key

from sterling import random_keys
from sterling.nets.mlp import ACTIVATIONS, HIDDEN, MLP, Linear, orthogonal_matrix
from sterling.nets.special_layers.residual_mlp import EXPANSION
from sterling.nets.special_layers.weight_projection import to_unit_length, with_unit_weights

SHIFT = 3.0  # constant entry that inputs get, so that their length is not lost on the sphere
LEAST = 1e-8  # is added to hidden units, so that they are never all 0


class Scaler(eqx.Module):
    """A learned factor for each unit. It begins at ``gain`` times its parameter, and the smaller
    the parameter begins, the faster Adam, whose steps have a fixed length, changes the factor."""

    scale: Float[Array, "n"]
    gain: float = eqx.field(static=True)

    @classmethod
    def create(cls, size: int, begin: float, parameter: float) -> Scaler:
        """Create factors that begin at ``begin``, their parameters at ``parameter``."""
        return cls(jnp.full(size, parameter, jnp.float32), begin / parameter)

    def __call__(self, x: Float[Array, "... n"]) -> Float[Array, "... n"]:
        """Return the factors times x."""
        return x * (self.gain * self.scale).reshape((1,) * (x.ndim - 1) + (-1,))


class HypersphericalMLP(MLP):
    """Every feature vector has length 1: L(x) = x / |x|, and s are learned factors (Scaler).

        x_0     = L(s W L([x, 3]))
        x_{k+1} = L(x_k + s' (L(W_2 (relu(s W_1 x_k) + 1e-8)) - x_k)),     four times as wide inside
        outputs = W_2 s W_1 x_K + b,                                     of each head, side by side

    Weights W into a unit have length 1 at the beginning; ``with_unit_weights`` keeps them there
    (weight_projection.py). ``layers`` are the first, two of each block, two of each head;
    ``scalers`` the first, two of each block (inside, s'), one of each head.
    """

    scalers: tuple[Scaler, ...] = ()
    blocks: int = eqx.field(static=True, default=0)

    @classmethod
    def create(
        cls,
        key: Key[Array, ""],
        sizes: tuple[int, int, int],
        blocks: int,
        activation: str = "relu",
        heads: int = 1,
    ) -> HypersphericalMLP:
        """Create a network of ``sizes`` inputs, units and outputs; ``heads`` share the outputs
        equally. Weights begin orthogonal, then of length 1; the factors s at sqrt(2 / units), those
        of heads at 1, s' at 1 / (blocks + 1); biases at 0."""
        inputs, width, outputs = sizes
        wide = EXPANSION * width
        inside, ends = [(width, wide), (wide, width)], [(width, width), (width, outputs // heads)]
        shapes = [(inputs + 1, width), *inside * blocks, *ends * heads]
        layers = []
        for index, shape in enumerate(shapes):
            weight = jax.random.normal(random_keys.fold(key, "layer", index), shape)
            last = index > 2 * blocks and (index - 2 * blocks) % 2 == 0
            bias = jnp.zeros(shape[1]) if last else None
            layers.append(Linear(orthogonal_matrix(weight), bias))
        first, hidden = math.sqrt(2.0 / width), math.sqrt(2.0 / wide)
        lerp = Scaler.create(width, 1.0 / (blocks + 1), 1.0 / math.sqrt(width))
        scalers = [
            Scaler.create(width, first, first),
            *[Scaler.create(wide, hidden, hidden), lerp] * blocks,
            *[Scaler.create(width, 1.0, 1.0)] * heads,
        ]
        made = with_unit_weights(tuple(layers))
        return cls(made, activation, scalers=tuple(scalers), blocks=blocks)

    def __call__(self, x: Float[Array, "... inputs"]) -> Float[Array, "... outputs"]:
        """Apply all layers."""
        x = self.features(x)
        layers, scalers = self.layers[1 + 2 * self.blocks :], self.scalers[1 + 2 * self.blocks :]
        heads = zip(layers[::2], scalers, layers[1::2], strict=True)
        return jnp.concatenate([last(scale(first(x))) for first, scale, last in heads], -1)

    def features(self, x: Float[Array, "... inputs"]) -> Float[Array, "... units"]:
        """Return x_K, the inputs of the heads, of length 1."""
        activation, end = ACTIVATIONS[self.activation], 1 + 2 * self.blocks
        shift = jnp.full_like(x[..., :1], SHIFT)
        x = to_unit_length(jnp.concatenate([x, shift], -1))
        x = to_unit_length(self.scalers[0](self.layers[0](x)))
        layers, scalers = self.layers[1:end], self.scalers[1:end]
        blocks = zip(layers[::2], layers[1::2], scalers[::2], scalers[1::2], strict=True)
        for up, down, scale, step in blocks:
            inside = checkpoint_name(activation(scale(up(x))), HIDDEN)
            aim = to_unit_length(down(inside + LEAST))
            x = to_unit_length(x + step(aim - x))
        return x
