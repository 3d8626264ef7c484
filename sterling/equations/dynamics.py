"""How well a model foretold what a step of the world did."""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp
import optax
from jaxtyping import Array, Float


class Foretold(NamedTuple):
    """What a model says of a step: N(mean, exp(log_std)^2) of n numbers, and of an end
    sigmoid(end)."""

    mean: Float[Array, "... n"]
    log_std: Float[Array, "... n"]
    end: Float[Array, "..."]  # logit


def surprise(
    foretold: Foretold, wanted: Float[Array, "... n"], discount: Float[Array, "..."]
) -> Float[Array, "..."]:
    """-log N(wanted) - log P(end or not), without the normal's constant; ``discount`` is the
    world's, 0 at an end (Chua 2018, arXiv:1805.12114, eq. 1)."""
    far = (wanted - foretold.mean) * jnp.exp(-foretold.log_std)
    missed = 0.5 * jnp.square(far) + foretold.log_std
    ended = optax.sigmoid_binary_cross_entropy(foretold.end, 1.0 - discount)
    return jnp.sum(missed, -1) + ended
