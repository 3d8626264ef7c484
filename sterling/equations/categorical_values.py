"""Returns as probabilities of fixed atoms (Bellemare 2017, arXiv:1707.06887).

    z_i = v_min + i dz,   dz = (v_max - v_min) / (N - 1),   i = 0 ... N - 1
    Q   = sum_i z_i p_i
    m_i = sum_j [1 - |clip(y_j, v_min, v_max) - z_i| / dz]_0^1 p_j            (eq. 7)

m is the distribution of y_j with probabilities p_j, moved to the atoms z_i: each y_j gives its
probability to its two neighbours, the nearer one more. Single numbers, also among atoms at other
distances, are put there by two_hot.py.
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
    place = jnp.clip(values, support[0], support[-1]) - support[0]
    place = place / (support[1] - support[0])
    return jax.lax.platform_dependent(
        place, probabilities, support, cpu=_sum_of_neighbours, default=_sum_over_pairs
    )


def _sum_over_pairs(
    place: Float[Array, "... value"],
    probabilities: Float[Array, "... value"],
    support: Float[Array, "atom"],
) -> Float[Array, "... atom"]:
    """Return m as in the equation, always added in the same order. ``place`` are the values in
    units of atoms: 0 is the first."""
    atoms = jnp.arange(len(support), dtype=place.dtype)
    atoms = atoms.reshape((1,) * (place.ndim - 1) + (-1, 1))
    share = jnp.clip(1.0 - jnp.abs(place[..., None, :] - atoms), 0.0, 1.0)
    return jnp.sum(share * probabilities[..., None, :], -1)


def _sum_of_neighbours(
    place: Float[Array, "... value"],
    probabilities: Float[Array, "... value"],
    support: Float[Array, "atom"],
) -> Float[Array, "... atom"]:
    """Return the same by giving each value's probability to its two neighbours. On CPUs this takes
    a third (small batches) to a fortieth of the time; accelerators would add in any order."""
    count = len(support)
    low = jnp.clip(jnp.floor(place), 0.0, count - 2.0)
    upper = (place - low) * probabilities
    index = low.astype(jnp.int32)

    def one_row(index: Array, lower: Array, upper: Array) -> Array:
        return jnp.zeros(count, lower.dtype).at[index].add(lower).at[index + 1].add(upper)

    rows = [x.reshape(-1, place.shape[-1]) for x in (index, probabilities - upper, upper)]
    return jax.vmap(one_row)(*rows).reshape(*place.shape[:-1], count)


def cross_entropy(
    probabilities: Float[Array, "... atom"], logits: Float[Array, "... atom"]
) -> Float[Array, "..."]:
    """Return -sum_i m_i log p_i in nats, for the targets m = ``probabilities``."""
    return -jnp.sum(probabilities * jax.nn.log_softmax(logits), -1)


def entropy(probabilities: Float[Array, "... atom"]) -> Float[Array, "..."]:
    """Return -sum_i m_i log m_i in nats, where 0 log 0 = 0."""
    return -jnp.sum(jax.scipy.special.xlogy(probabilities, probabilities), -1)
