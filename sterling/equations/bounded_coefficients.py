"""Positive coefficients that are learned within bounds (Nauman 2024, arXiv:2405.16158, code).

    coefficient = exp(LOW + (HIGH - LOW) (1 + tanh raw) / 2)

It cannot leave (e^LOW, e^HIGH), however long a gradient pushes it one way, and turns back soon.
"""

from __future__ import annotations

import jax.numpy as jnp
from jaxtyping import Array, Float

LOW, HIGH = -10.0, 7.5  # bounds of the logarithm
EDGE = 1e-3  # share of their distance that initial values keep from them


def coefficient(raw: Float[Array, "..."]) -> Float[Array, "..."]:
    """Return the coefficient of a ``raw`` number, which may be any."""
    return jnp.exp(LOW + (HIGH - LOW) * 0.5 * (1.0 + jnp.tanh(raw)))


def raw_coefficient(value: Float[Array, "..."] | float) -> Float[Array, "..."]:
    """Return the raw number of a coefficient, which is clipped to the bounds."""
    share = (jnp.log(jnp.asarray(value, jnp.float32)) - LOW) / (HIGH - LOW)
    return jnp.arctanh(2.0 * jnp.clip(share, EDGE, 1.0 - EDGE) - 1.0)
