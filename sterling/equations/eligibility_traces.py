"""Eligibility traces, and the gradient step along them that does not overshoot."""

from __future__ import annotations

from typing import Any, TypeVar

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

T = TypeVar("T")
Number = Float[Array, ""] | float


def accumulate(trace: T, slope: T, decay: Number) -> T:
    """Return the trace z <- decay z + slope (Sutton & Barto 2018, eq. 12.5); ``decay`` is gamma
    lambda, and both are trees of parameters."""
    return jax.tree.map(lambda z, g: decay * z + g, trace, slope)


def scaled(trace: T, share: Number) -> T:
    """Return the trace times ``share``: 0 cuts it, where an episode ends."""
    return jax.tree.map(lambda z: share * z, trace)


def absolute_sum(trace: Any) -> Float[Array, ""]:
    """Return the sum of the absolute values of all numbers of a tree (its l1 norm)."""
    return sum((jnp.abs(leaf).sum() for leaf in jax.tree.leaves(trace)), jnp.zeros(()))


def bounded_step_size(trace: Any, error: Number, lr: Number, kappa: Number) -> Float[Array, ""]:
    """Return the step size of overshooting-bounded gradient descent, ObGD (Elsayed 2024,
    arXiv:2410.14606, algorithm 3).

        M      = alpha kappa max(|delta|, 1) |z|_1
        alpha' = min(alpha / M, alpha)

    ``lr`` is alpha and ``error`` the TD error delta. With kappa > 1 a step that would change the
    error's sign, if the prediction were linear, is made smaller.
    """
    bound = lr * kappa * jnp.maximum(jnp.abs(error), 1.0) * absolute_sum(trace)
    return lr / jnp.maximum(bound, 1.0)


def ascend_along_trace(
    params: T, trace: Any, error: Number, lr: Number, kappa: Number
) -> tuple[T, Float[Array, ""]]:
    """Return the parameters after w <- w + alpha' delta z, and alpha' of
    :func:`bounded_step_size`."""
    size = bounded_step_size(trace, error, lr, kappa)
    return jax.tree.map(lambda w, z: w + size * error * z, params, trace), size
