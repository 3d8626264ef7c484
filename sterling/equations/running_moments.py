"""Running moments of arrays: the mean and the variance of all rows so far."""

from __future__ import annotations

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

EPSILON = 1e-8  # added to variances
SMALLEST = float(np.finfo(np.float32).tiny)


class Moments(eqx.Module):
    """Running mean and variance of one array, merged batch by batch (Chan 1979).

    The mean is kept as ``mean + remainder``, where ``mean`` is its nearest float32: numbers far
    from 0 (positions in metres, times, prices) need more digits of their mean than float32 has.
    Rows are subtracted from the mean so far, or from the first row, before anything is summed.
    """

    mean: Float[Array, "..."]
    variance: Float[Array, "..."]
    count: Float[Array, ""]
    remainder: Float[Array, "..."]

    def __init__(
        self,
        mean: Float[Array, "..."],
        variance: Float[Array, "..."],
        count: Float[Array, ""],
        remainder: Float[Array, "..."] | None = None,
    ):
        self.mean, self.variance, self.count = mean, variance, count
        self.remainder = jnp.zeros_like(mean) if remainder is None else remainder

    @classmethod
    def create(cls, shape: tuple[int, ...]) -> Moments:
        """Create moments of no rows, with mean 0 and variance 1."""
        return cls(jnp.zeros(shape), jnp.ones(shape), jnp.zeros(()))

    @classmethod
    def known(cls, mean: np.ndarray, variance: np.ndarray) -> Moments:
        """Create the moments of a dataset, whose mean may be in float64. They count as one row."""
        nearest = np.asarray(mean, np.float32)
        kept = (nearest, variance, np.float32(1.0), mean - nearest)
        return cls(*(jnp.asarray(x, jnp.float32) for x in kept))

    @property
    def deviation(self) -> Float[Array, "..."]:
        """The standard deviation to divide by: 1 where all rows so far were equal."""
        return jnp.where(self.variance > 0.0, jnp.sqrt(self.variance + EPSILON), 1.0)

    def update(self, batch: Float[Array, "..."], mask: Bool[Array, "..."]) -> Moments:
        """Merge a batch whose leading axes are those of ``mask``; rows where it is False are
        ignored."""
        shape = self.mean.shape
        rows, valid = batch.reshape(-1, *shape), mask.reshape(-1)
        origin = self._origin(rows, valid)
        wide = valid.reshape((-1,) + (1,) * len(shape))
        offsets = jnp.where(wide, rows - origin[None], 0.0)
        count = valid.astype(jnp.float32).sum()
        divisor = jnp.maximum(count, 1.0)  # if no row counts, the sums are 0
        mean = offsets.sum(0) / divisor
        variance = jnp.where(wide, jnp.square(offsets - mean[None]), 0.0).sum(0) / divisor
        return self._joined(origin, mean, variance, count)

    def with_episodes(
        self,
        counts: Float[Array, "env"],
        means: Float[Array, "env ..."],
        remainders: Float[Array, "env ..."],
        squares: Float[Array, "env ..."],
    ) -> Moments:
        """Merge the rows of episodes: how many each has, their mean as ``mean`` and ``remainder``,
        and the sum of their squared deviations from it. Episodes of no rows are ignored."""
        valid, count = counts > 0.0, counts.sum()
        origin = self._origin(means, valid)
        wide = (counts / jnp.maximum(count, 1.0)).reshape(-1, *(1,) * self.mean.ndim)
        offsets = jnp.where(wide > 0.0, means - origin[None] + remainders, 0.0)
        mean = (wide * offsets).sum(0)
        within = jnp.where(wide > 0.0, squares, 0.0).sum(0) / jnp.maximum(count, 1.0)
        between = (wide * jnp.square(offsets - mean[None])).sum(0)
        return self._joined(origin, mean, within + between, count)

    def _origin(self, rows: Float[Array, "row ..."], valid: Bool[Array, "row"]) -> Array:
        """Return what is subtracted from rows: the mean, or before any row the first valid one."""
        is_first = (self.count == 0.0) & jnp.any(valid)
        return jnp.where(is_first, rows[jnp.argmax(valid)], self.mean)

    def _joined(self, origin: Array, mean: Array, variance: Array, count: Array) -> Moments:
        """Merge ``count`` rows of this ``variance``, whose mean is ``origin + mean``."""
        total = self.count + count
        share = count / jnp.maximum(total, SMALLEST)  # 1 for the first rows
        delta = mean - self.remainder
        merged = (1.0 - share) * self.variance + share * variance
        merged = merged + share * (1.0 - share) * jnp.square(delta)
        moved, remainder = rounded_sum(origin, self.remainder + share * delta)
        return Moments(moved, merged, total, remainder)

    def normalise(self, x: Float[Array, "..."]) -> Float[Array, "..."]:
        """Return numbers less their mean, in deviations."""
        lead = (1,) * (x.ndim - self.mean.ndim)
        mean, remainder, deviation = (
            each.reshape(lead + each.shape) for each in (self.mean, self.remainder, self.deviation)
        )
        rate = 1.0 / deviation
        # not x - mean - remainder: compilers may add two constants, which rounds the second off
        return (x - mean) * rate - remainder * rate


def rounded_sum(large: Array, small: Array) -> tuple[Array, Array]:
    """Return the float32 nearest to ``large + small``, and what is rounded off (Knuth 1969)."""
    total = large + small
    added = total - large
    return total, (large - (total - added)) + (small - added)
