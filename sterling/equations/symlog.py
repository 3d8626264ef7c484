"""The symmetric logarithm, which compresses numbers of any size and sign (Hafner 2023, DreamerV3,
arXiv:2301.04104, eq. 9).

    symlog(x) = sign(x) log(|x| + 1),   symexp(x) = sign(x) (exp(|x|) - 1)
"""

from __future__ import annotations

import jax.numpy as jnp
from jaxtyping import Array, Float


def symlog(x: Float[Array, "..."]) -> Float[Array, "..."]:
    """Return sign(x) log(|x| + 1): about x near 0, the logarithm far from it."""
    return jnp.sign(x) * jnp.log1p(jnp.abs(x))


def symexp(x: Float[Array, "..."]) -> Float[Array, "..."]:
    """Return sign(x) (exp(|x|) - 1), the inverse of :func:`symlog`."""
    return jnp.sign(x) * jnp.expm1(jnp.abs(x))


SYMLOG = (symlog, symexp)  # as the squash of two_hot.Bins
