"""Returns as probabilities of fixed atoms (Bellemare 2017, arXiv:1707.06887).

    z_i = v_min + i dz,   dz = (v_max - v_min) / (N - 1),   i = 0 ... N - 1
    Q   = sum_i z_i p_i
    m_i = sum_j [1 - |clip(y_j, v_min, v_max) - z_i| / dz]_0^1 p_j            (eq. 7)

m is the distribution of y_j with probabilities p_j, moved to the atoms z_i: each y_j gives its
probability to its two neighbours, the nearer one more.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float


def make_support(
    low: Float[Array, ""] | float, high: Float[Array, ""] | float, count: int
) -> Float[Array, "atom"]:
    """Return ``count`` >= 2 atoms z_i at equal distances from ``low`` to ``high``."""
    return low + (high - low) * (jnp.arange(count, dtype=jnp.float32) / float(count - 1))


def expected_value(
    logits: Float[Array, "... atom"], support: Float[Array, "atom"]
) -> Float[Array, "..."]:
    """Return Q, the mean of the distribution that ``logits`` give."""
    return jnp.dot(jax.nn.softmax(logits), support)


def project_onto_support(
    values: Float[Array, "... value"],
    probabilities: Float[Array, "... value"],
    support: Float[Array, "atom"],
) -> Float[Array, "... atom"]:
    """Return the probabilities m_i of the atoms ``support``, at equal distances, given a
    distribution over any ``values``."""
    inside = jnp.clip(values, support[0], support[-1])[..., None, :]
    atoms = support.reshape((1,) * (inside.ndim - 2) + (-1, 1))
    distance = jnp.abs(inside - atoms) / (support[1] - support[0])
    return jnp.sum(jnp.clip(1.0 - distance, 0.0, 1.0) * probabilities[..., None, :], -1)


def cross_entropy(
    probabilities: Float[Array, "... atom"], logits: Float[Array, "... atom"]
) -> Float[Array, "..."]:
    """Return -sum_i m_i log p_i in nats, for the targets m = ``probabilities``."""
    return -jnp.sum(probabilities * jax.nn.log_softmax(logits), -1)


def entropy(probabilities: Float[Array, "... atom"]) -> Float[Array, "..."]:
    """Return -sum_i m_i log m_i in nats, where 0 log 0 = 0."""
    return -jnp.sum(jax.scipy.special.xlogy(probabilities, probabilities), -1)
