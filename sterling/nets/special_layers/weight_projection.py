"""Weights on the unit sphere: after an update each unit's weights are divided by their length."""

from __future__ import annotations

from typing import Any, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from sterling.nets.mlp import Linear

T = TypeVar("T")
SHORTEST = 1e-8  # length by which what is shorter is divided, so that 0 stays 0


def to_unit_length(x: Float[Array, "..."], axis: int = -1) -> Float[Array, "..."]:
    """Return x / max(|x|, 1e-8), the lengths along ``axis``; the gradient at 0 is finite."""
    squares = jnp.sum(jnp.square(x), axis, keepdims=True)
    return x * jax.lax.rsqrt(jnp.maximum(squares, SHORTEST**2))


def with_unit_weights(nets: T) -> T:
    """Return networks whose linear layers have weights of length 1 into every output unit (Lee
    2025, arXiv:2502.15280, section 4); biases, scales and all other leaves stay as they are.

    ``nets``: any tree with :class:`Linear` layers, such as the networks of an actor or of a whole
    ensemble of critics. Call it on what an optimiser's step returns.
    """

    def one(layer: Any) -> Any:
        if not isinstance(layer, Linear):
            return layer
        return eqx.tree_at(lambda each: each.weight, layer, to_unit_length(layer.weight, -2))

    return jax.tree.map(one, nets, is_leaf=lambda each: isinstance(each, Linear))
