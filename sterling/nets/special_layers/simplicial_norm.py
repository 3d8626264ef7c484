"""Simplicial normalisation (SimNorm): latents as groups of probabilities, so that they stay bounded
(Lavoie 2023, arXiv:2204.00616; Hansen 2024, TD-MPC2, arXiv:2310.16828)."""

from __future__ import annotations

import jax
from jaxtyping import Array, Float

GROUP = 8  # numbers of a group, as in TD-MPC2


def simplices(x: Float[Array, "... n"]) -> Float[Array, "... n"]:
    """Return ``x`` as groups of 8 numbers above 0 with the sum 1, by softmax; n is a multiple of
    8."""
    return jax.nn.softmax(x.reshape(*x.shape[:-1], -1, GROUP)).reshape(x.shape)
