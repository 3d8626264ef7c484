"""The numbers of CMA-ES that its problem's size and population determine: weights and rates.

They are those of the tutorial (Hansen 2016, arXiv:1604.00772v1, table 1) for a full covariance
matrix, and of Ros & Hansen 2008 for a diagonal one. The number of points that count may differ from
one generation to the next, so it is an array; points beyond it have the weight 0.
"""

from __future__ import annotations

import math

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

ALPHA = 2.0  # alpha_cov


class Rates(eqx.Module):
    """Weights of the points from the best to the worst, and learning rates."""

    weights: Float[Array, "points"]  # those below 0 only unlearn directions of the covariance
    effective: Float[Array, ""]  # mu_eff: how many points the mean of the better half is worth
    c_one: Float[Array, ""]  # c_1: rate of the rank-one update
    c_mu: Float[Array, ""]  # rate of the rank-mu update
    c_path: Float[Array, ""]  # c_c: rate of the covariance's evolution path
    c_sigma: Float[Array, ""]  # rate of the step size's evolution path
    damping: Float[Array, ""]  # d_sigma: of the step size

    @property
    def parents(self) -> Float[Array, "points"]:
        """Return the weights of the points whose mean is the new mean; they add up to 1."""
        return jnp.maximum(self.weights, 0.0)


def full_rates(points: int, count: Int[Array, ""], size: int) -> Rates:
    """Return the rates of a full covariance matrix of ``size`` numbers, with ``count`` points that
    count among ``points``."""
    raw, n = _log_ranks(points, count, (_real(count) + 1.0) / 2.0), float(size)
    half = jnp.arange(points, dtype=jnp.int32) < count // 2
    effective, below = _effective(jnp.where(half, raw, 0.0)), _effective(jnp.where(half, 0.0, raw))
    c_one = ALPHA / ((n + 1.3) ** 2 + effective)
    wanted = (effective - 2.0 + 1.0 / effective) / ((n + 2.0) ** 2 + ALPHA * effective / 2.0)
    c_mu = jnp.minimum(1.0 - c_one - 1e-8, ALPHA * wanted)
    limits = (
        1.0 + c_one / c_mu,
        1.0 + 2.0 * below / (effective + 2.0),
        (1.0 - c_one - c_mu) / (n * c_mu),
    )
    least = jnp.minimum(jnp.minimum(limits[0], limits[1]), limits[2])
    good, bad = jnp.maximum(raw, 0.0), jnp.minimum(raw, 0.0)
    weights = good / good.sum() + least * bad / jnp.maximum(-bad.sum(), 1e-8)
    c_sigma = (effective + 2.0) / (n + effective + 5.0)
    c_path = (4.0 + effective / n) / (n + 4.0 + 2.0 * effective / n)
    return Rates(weights, effective, c_one, c_mu, c_path, c_sigma, _damping(effective, n, c_sigma))


def diagonal_rates(points: int, count: Int[Array, ""], size: int) -> Rates:
    """Return the rates of a diagonal covariance matrix, which learns (n + 2) / 3 times as fast and
    has no weights below 0 (sep-CMA-ES)."""
    n, raw = float(size), _log_ranks(points, count, _real(count // 2) + 1.0)
    raw = jnp.maximum(raw, 0.0)
    weights, effective = raw / raw.sum(), _effective(raw)
    c_one = ALPHA / ((n + 1.3) ** 2 + effective) + jnp.zeros(())
    rank_mu = jnp.minimum(1.0, (2.0 * effective - 1.0) / ((n + 2.0) ** 2 + effective))
    whole = 2.0 / effective / (n + math.sqrt(2.0)) ** 2 + (1.0 - 1.0 / effective) * rank_mu
    c_sigma = (effective + 2.0) / (n + effective + 3.0)
    c_path, c_mu = jnp.asarray(4.0 / (n + 4.0)), (n + 2.0) / 3.0 * whole
    return Rates(weights, effective, c_one, c_mu, c_path, c_sigma, _damping(effective, n, c_sigma))


def expected_norm(size: int) -> float:
    """Return E |N(0, I)| of so many numbers, approximately."""
    return math.sqrt(size) * (1.0 - 1.0 / (4.0 * size) + 1.0 / (21.0 * size**2))


def _log_ranks(
    points: int, count: Int[Array, ""], middle: Float[Array, ""]
) -> Float[Array, "points"]:
    """Return log(middle) - log(rank) of each point that counts, and 0 of the others."""
    rank = jnp.arange(1, points + 1, dtype=jnp.float32)
    return jnp.where(rank <= _real(count), jnp.log(middle) - jnp.log(rank), 0.0)


def _real(count: Int[Array, ""]) -> Float[Array, ""]:
    return count.astype(jnp.float32)


def _effective(weights: Float[Array, "points"]) -> Float[Array, ""]:
    """Return (sum w)^2 / sum w^2."""
    return jnp.square(weights.sum()) / jnp.maximum(jnp.square(weights).sum(), 1e-8)


def _damping(
    effective: Float[Array, ""], size: float, c_sigma: Float[Array, ""]
) -> Float[Array, ""]:
    root = jnp.sqrt(jnp.maximum(effective - 1.0, 0.0) / (size + 1.0))
    return 1.0 + 2.0 * jnp.maximum(0.0, root - 1.0) + c_sigma
