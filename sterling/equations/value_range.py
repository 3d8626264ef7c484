"""The range of values, by which a policy's objective is divided (Hafner 2023, DreamerV3,
arXiv:2301.04104, eq. 6 and 7; Hansen 2024, TD-MPC2, arXiv:2310.16828).

    S <- S + rate (Per(x, 95) - Per(x, 5) - S),   scale = max(1, S)

Small values are not enlarged, which would enlarge their noise; few outliers change nothing.
"""

from __future__ import annotations

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float


class Range(eqx.Module):
    """A running average S of the distance from the 5th to the 95th percentile; it begins at 0."""

    width: Float[Array, ""]

    @classmethod
    def create(cls) -> Range:
        """Create the range of no values."""
        return cls(jnp.zeros(()))

    def update(
        self, x: Float[Array, "..."], mask: Bool[Array, "..."], rate: Float[Array, ""] | float
    ) -> Range:
        """Move the average by ``rate`` towards the range of values whose ``mask`` holds; if it
        holds nowhere, nothing changes. Percentiles between two values are interpolated."""
        values = jnp.where(mask, x, jnp.nan)
        low, high = jnp.nanquantile(values, jnp.asarray([0.05, 0.95]))
        return Range(
            jnp.where(mask.any(), self.width + rate * (high - low - self.width), self.width)
        )

    def scale(self) -> Float[Array, ""]:
        """Return max(1, S), by which values are divided."""
        return jnp.maximum(1.0, self.width)
