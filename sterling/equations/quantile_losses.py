"""Losses of critics that predict quantiles of the return (Dabney 2018, arXiv:1710.10044).

tau_m = (2 m - 1) / (2 M),  m = 1 ... M        the middles of M equal shares (lemma 2)
rho_tau(u) = |tau - 1[u < 0]| huber(u),    u = target - quantile     (eqs. 9 and 10)
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from sterling.equations.value_losses import huber


def quantile_middles(count: int) -> Float[Array, "quantile"]:
    """Return the shares tau_m that ``count`` quantiles stand for."""
    return (jnp.arange(count, dtype=jnp.float32) + 0.5) / float(count)


def quantile_huber(
    quantiles: Float[Array, "... quantile"],
    targets: Float[Array, "... target"],
    shares: Float[Array, "... quantile"],
    threshold: Float[Array, ""] | float = 1.0,
) -> Float[Array, "..."]:
    """Return the mean of rho_tau over all pairs of a quantile and a target, per row.

    ``shares`` are the tau of the quantiles; ``threshold`` is kappa, the error beyond which the
    loss is linear. Targets are constants. (Dabney 2018 sums over the quantiles; the mean differs by
    the factor ``1 / quantile``, which Adam does not see.)
    """
    error = jax.lax.stop_gradient(targets)[..., None, :] - quantiles[..., :, None]
    below = jax.lax.stop_gradient((error < 0.0).astype(error.dtype))
    weight = jnp.abs(shares[..., :, None] - below)
    return jnp.mean(weight * huber(error, threshold), (-2, -1))
