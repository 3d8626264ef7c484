"""Mixtures of Gaussians with diagonal covariances, fitted by expectation-maximisation (Dempster
1977). No LAPACK, which may wait for ever in a program of several seeds."""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, Key

from sterling import random_keys

LEAST_VARIANCE = 1e-4  # of data within about [-1, 1]: a component of equal rows stays finite


class Mixture(eqx.Module):
    """Components with their weights, which sum to 1; those of weight 0 are unused."""

    weights: Float[Array, "component"]
    means: Float[Array, "component n"]
    variances: Float[Array, "component n"]

    def log_densities(self, x: Float[Array, "row n"]) -> Float[Array, "row component"]:
        """Return log(weight * density) of every row under every component."""
        square = jnp.square(x[:, None] - self.means[None]) / self.variances[None]
        each = -0.5 * (square + jnp.log(2.0 * jnp.pi * self.variances)[None])
        return jnp.log(self.weights)[None] + jnp.sum(each, -1)


def fit_mixture(
    x: Float[Array, "row n"],
    mask: Bool[Array, "row"],
    key: Key[Array, ""],
    used: Bool[Array, "component"],
    rounds: int = 20,
) -> tuple[Mixture, Float[Array, ""]]:
    """Fit the ``used`` components to the rows where ``mask`` holds, beginning with means at random
    ones of them; return the mixture and Akaike's criterion (1974), the lower the better."""
    counts = mask.astype(x.dtype)
    chance = counts / jnp.maximum(counts.sum(), 1.0)
    places = jax.random.choice(key, len(x), used.shape, p=chance)
    spread = jnp.sum(chance[:, None] * jnp.square(x - (chance @ x)[None]), 0) + LEAST_VARIANCE
    weights = used.astype(x.dtype)
    begun = Mixture(
        weights / weights.sum(), x[places], jnp.broadcast_to(spread, (used.size, x.shape[1]))
    )

    def improve(mixture: Mixture, _: None) -> tuple[Mixture, None]:
        share = jax.nn.softmax(mixture.log_densities(x), -1) * counts[:, None]
        total = jnp.maximum(share.sum(0), 1e-6)
        means = share.T @ x / total[:, None]
        away = jnp.square(x[:, None] - means[None])
        variances = jnp.einsum("rc,rcn->cn", share, away) / total[:, None] + LEAST_VARIANCE
        shares = jnp.where(used, total, 0.0)
        return Mixture(shares / shares.sum(), means, variances), None

    mixture, _ = jax.lax.scan(improve, begun, None, rounds)
    likelihood = jnp.sum(counts * jax.nn.logsumexp(mixture.log_densities(x), axis=-1))
    numbers = weights.sum() * (2 * x.shape[1] + 1) - 1.0
    return mixture, 2.0 * numbers - 2.0 * likelihood


def best_mixture(
    x: Float[Array, "row n"], mask: Bool[Array, "row"], key: Key[Array, ""], least: int, most: int
) -> Mixture:
    """Return the mixture of ``least`` to ``most`` components that Akaike's criterion prefers."""
    sizes = jnp.arange(least, most + 1, dtype=jnp.int32)
    keys = random_keys.split(key, "mixture", len(sizes))

    def fit(key: Key[Array, ""], size: Int[Array, ""]) -> tuple[Mixture, Float[Array, ""]]:
        return fit_mixture(x, mask, key, jnp.arange(most, dtype=jnp.int32) < size)

    fitted, criteria = jax.vmap(fit)(keys, sizes)
    return jax.tree.map(lambda leaf: leaf[jnp.argmin(criteria)], fitted)
