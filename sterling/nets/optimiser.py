"""Gradient steps: Adam from optax, with what every algorithm does around it."""

from __future__ import annotations

from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, PyTree

T = TypeVar("T")


def adam(eps: float = 1e-8) -> optax.GradientTransformation:
    """Adam's direction (Kingma 2015); the caller multiplies by its step size.

    optax raises a float to an integer power, which strict promotion refuses; it is allowed here.
    """
    inner = optax.scale_by_adam(eps=eps)

    def update(grads: Any, state: Any, params: Any = None) -> Any:
        with jax.numpy_dtype_promotion("standard"):
            return inner.update(grads, state, params)

    return optax.GradientTransformation(inner.init, update)


def clipped(grads: T, max_norm: Float[Array, ""] | float) -> tuple[T, Float[Array, ""]]:
    """Gradients scaled down to a global norm of at most ``max_norm``, and the norm they had."""
    norm = optax.global_norm(grads)
    scale = jnp.minimum(1.0, max_norm / (norm + 1e-6))
    return jax.tree.map(lambda g: g * scale, grads), norm


def descend(params: T, direction: PyTree, rate: Float[Array, ""] | float) -> T:
    """params - rate * direction."""
    return jax.tree.map(lambda p, d: p - rate * d, params, direction)
