"""Parts of a step within a trust region (Schulman 2015): conjugate gradient and line search."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float


def conjugate_gradient(
    product: Callable[[Array], Array],
    target: Float[Array, "number"],
    steps: int,
    tolerance: float = 1e-10,
) -> Float[Array, "number"]:
    """Return x with A x ~ ``target``, for a positive definite matrix A (Hestenes & Stiefel 1952).

    ``product`` returns A x of an x. The search begins at 0 and stops after ``steps``, or as soon as
    the squared length of ``target`` - A x is at most ``tolerance``.
    """

    def going(carry: Any) -> Bool[Array, ""]:
        step, _, _, _, square = carry
        return (step < steps) & (square > tolerance)

    def improve(carry: Any) -> Any:
        step, solution, residual, direction, square = carry
        turned = product(direction)
        rate = square / (direction @ turned)
        solution, residual = solution + rate * direction, residual - rate * turned
        smaller = residual @ residual
        return step + 1, solution, residual, residual + smaller / square * direction, smaller

    start = (jnp.asarray(0), jnp.zeros_like(target), target, target, target @ target)
    return jax.lax.while_loop(going, improve, start)[1]


def backtracking(
    accepts: Callable[[Array], Array], shrink: Float[Array, ""] | float, tries: int
) -> Float[Array, ""]:
    """Return the first of 1, ``shrink``, ``shrink``^2, ... that ``accepts`` is true of, and 0 if it
    is false of the first ``tries`` of them."""

    def going(carry: Any) -> Bool[Array, ""]:
        tried, _, found = carry
        return (tried < tries) & ~found

    def attempt(carry: Any) -> Any:
        tried, share, _ = carry
        found = accepts(share)
        return tried + 1, jnp.where(found, share, share * shrink), found

    start = (jnp.asarray(0), jnp.asarray(1.0), jnp.asarray(False))
    _, share, found = jax.lax.while_loop(going, attempt, start)
    return jnp.where(found, share, 0.0)
