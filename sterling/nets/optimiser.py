"""Gradient steps: Adam from optax, with what every algorithm does around it."""

from __future__ import annotations

from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import optax
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Float, Int, PyTree

T = TypeVar("T")


def adam(
    eps: float = 1e-8, max_norm: Float[Array, ""] | float | None = None
) -> optax.GradientTransformation:
    """Adam's direction (Kingma 2015); the caller multiplies by its step size.

    Gradients are first scaled down to a global norm of at most ``max_norm``. The moments are one
    flat vector: a handful of operations instead of a handful per layer, which for small networks
    halves the time of an update and of its compilation.
    """
    inner = optax.scale_by_adam(eps=eps)

    def init(params: Any) -> Any:
        return inner.init(ravel_pytree(params)[0])

    def update(grads: Any, state: Any, params: Any = None) -> Any:
        flat, unravel = ravel_pytree(grads)
        if max_norm is not None:
            flat = flat * jnp.minimum(1.0, max_norm / (jnp.linalg.norm(flat) + 1e-6))
        with jax.numpy_dtype_promotion("standard"):  # optax: a float to an integer power
            direction, state = inner.update(flat, state)
        return unravel(direction), state

    return optax.GradientTransformation(init, update)


def global_norm(grads: PyTree) -> Float[Array, ""]:
    """The norm of all gradients as one vector."""
    return jnp.linalg.norm(ravel_pytree(grads)[0])


def risen(lr: Float[Array, ""] | float, updates: Int[Array, ""], rise: int) -> Float[Array, ""]:
    """The step size after ``updates``: it rises along a line over the first ``rise`` of them."""
    return lr * jnp.minimum((updates + 1).astype(jnp.float32) / max(rise, 1), 1.0)


def descend(params: T, direction: PyTree, rate: Float[Array, ""] | float) -> T:
    """params - rate * direction."""
    return jax.tree.map(lambda p, d: p - rate * d, params, direction)
