"""A Gaussian belief from independent factors, such as one for each observed transition.

Equations: Rakelly 2019 (PEARL), arXiv:1903.08254, section 4.1; the divergence of its equation 1.
"""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Key


class GaussianPosterior(eqx.Module):
    """A normal distribution with independent entries."""

    mean: Float[Array, "... size"]
    variance: Float[Array, "... size"]

    @classmethod
    def prior(cls, size: int) -> GaussianPosterior:
        """Return the standard normal distribution."""
        return cls(jnp.zeros(size), jnp.ones(size))

    @classmethod
    def product(
        cls,
        mean: Float[Array, "... factor size"],
        variance: Float[Array, "... factor size"],
        mask: Bool[Array, "... factor"],
    ) -> GaussianPosterior:
        """Return the normalised product of the standard normal density and of the factors that
        ``mask`` does not leave out; without any, the standard normal distribution."""
        precision = jnp.where(mask[..., None], 1.0 / variance, 0.0)
        weighted = jnp.where(mask[..., None], mean, 0.0) * precision
        total = 1.0 + jnp.sum(precision, -2)
        return cls(jnp.sum(weighted, -2) / total, 1.0 / total)

    def sample(self, key: Key[Array, ""]) -> Float[Array, "... size"]:
        """Draw one sample, differentiable in mean and variance."""
        noise = jax.random.normal(key, self.mean.shape)
        return self.mean + jnp.sqrt(self.variance) * noise

    def divergence(self) -> Float[Array, "..."]:
        """Return the Kullback-Leibler divergence from the standard normal distribution, in nats,
        summed over the entries."""
        each = self.variance + jnp.square(self.mean) - 1.0 - jnp.log(self.variance)
        return 0.5 * jnp.sum(each, -1)
