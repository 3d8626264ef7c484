"""A learned model's prediction of a step, and its error."""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp
import optax
from jaxtyping import Array, Float


class StepPrediction(NamedTuple):
    """A model's prediction of a step: n numbers from N(mean, exp(log_std)^2), and a termination
    with probability sigmoid(end)."""

    mean: Float[Array, "... n"]
    log_std: Float[Array, "... n"]
    end: Float[Array, "..."]  # logit


def prediction_nll(
    foretold: StepPrediction, wanted: Float[Array, "... n"], discount: Float[Array, "..."]
) -> Float[Array, "..."]:
    """Return the negative log-likelihood -log N(wanted) - log P(terminated or not), without the
    normal's constant. ``discount`` is the environment's, 0 at a termination (Chua 2018,
    arXiv:1805.12114, eq. 1)."""
    error = (wanted - foretold.mean) * jnp.exp(-foretold.log_std)
    nll = 0.5 * jnp.square(error) + foretold.log_std
    end_nll = optax.sigmoid_binary_cross_entropy(foretold.end, 1.0 - discount)
    return jnp.sum(nll, -1) + end_nll
