"""Batch renormalisation (Ioffe 2017, arXiv:1702.03275), and perceptrons with it.

    training     x^ = (x - mean_B) / std_B r + d,    r = clip(std_B / std, 1/3, 3),
                                                     d = clip((mean_B - mean) / std, -5, 5)
    otherwise    x^ = (x - mean) / std
    output       y  = scale x^ + shift

mean_B and std_B are the batch's, mean and std running averages; r and d are constants to the
gradient. Without the clips training computes what is computed otherwise. In the first ``warmup``
batches r = 1 and d = 0, which is batch normalisation (Ioffe 2015).

The paper averages std_B and widens the bounds slowly. As in the code of CrossQ, variances are
averaged here, std^2 = variance + 1e-3, and the bounds are final when the warm-up ends.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, Key

from sterling.nets.mlp import ACTIVATIONS, MLP

T = TypeVar("T")
MOST_RATIO, MOST_SHIFT, EPSILON = 3.0, 5.0, 1e-3  # bounds of r and d; added to variances


class BatchStatistics(eqx.Module):
    """Running averages of a batch's mean and variance, one number for each unit."""

    mean: Float[Array, "n"]
    variance: Float[Array, "n"]

    @classmethod
    def create(cls, size: int) -> BatchStatistics:
        """Create statistics with mean 0 and variance 1."""
        return cls(jnp.zeros(size), jnp.ones(size))

    @classmethod
    def of_batch(cls, x: Float[Array, "row n"], mask: Bool[Array, "row"]) -> BatchStatistics:
        """Return mean and variance of the rows where ``mask`` is True."""
        weight = mask.astype(jnp.float32)[:, None]
        count = jnp.maximum(weight.sum(), 1.0)
        mean = (x * weight).sum(0) / count
        return cls(mean, (jnp.square(x - mean[None]) * weight).sum(0) / count)

    @property
    def std(self) -> Float[Array, "n"]:
        """The standard deviation, a little above 0."""
        return jnp.sqrt(self.variance + EPSILON)


class BatchRenorm(eqx.Module):
    """The learned scale and shift of one layer."""

    scale: Float[Array, "n"]
    shift: Float[Array, "n"]

    @classmethod
    def create(cls, size: int) -> BatchRenorm:
        """Create a layer that changes nothing but the units of its inputs."""
        return cls(jnp.ones(size), jnp.zeros(size))

    def __call__(self, x: Float[Array, "... n"], by: BatchStatistics) -> Float[Array, "... n"]:
        """Normalise by the running averages."""
        lead = (1,) * (x.ndim - 1)
        mean, rate = by.mean.reshape(*lead, -1), (self.scale / by.std).reshape(*lead, -1)
        return (x - mean) * rate + self.shift.reshape(*lead, -1)

    def train(
        self,
        x: Float[Array, "row n"],
        mask: Bool[Array, "row"],
        running: BatchStatistics,
        warm: Bool[Array, ""],
    ) -> tuple[Float[Array, "row n"], BatchStatistics]:
        """Normalise by the batch, corrected by r and d where ``warm`` is True; return also the
        batch's statistics. Rows where ``mask`` is False do not count."""
        batch = BatchStatistics.of_batch(x, mask)
        ratio = jnp.clip(batch.std / running.std, 1.0 / MOST_RATIO, MOST_RATIO)
        shift = jnp.clip((batch.mean - running.mean) / running.std, -MOST_SHIFT, MOST_SHIFT)
        ratio = jax.lax.stop_gradient(jnp.where(warm, ratio, jnp.ones_like(ratio)))
        shift = jax.lax.stop_gradient(jnp.where(warm, shift, jnp.zeros_like(shift)))
        unit = (x - batch.mean[None]) / batch.std[None] * ratio[None] + shift[None]
        return unit * self.scale[None] + self.shift[None], batch


class Running(eqx.Module):
    """What a network with batch renormalisation carries beside its parameters."""

    layers: tuple[BatchStatistics, ...]  # of each normalisation
    batches: Int[Array, ""]  # that were counted in

    @classmethod
    def create(cls, sizes: Sequence[int] = ()) -> Running:
        """Create statistics of layers of these ``sizes`` that have seen nothing."""
        return cls(tuple(BatchStatistics.create(size) for size in sizes), jnp.zeros((), jnp.int32))

    def updated(
        self, seen: tuple[BatchStatistics, ...], momentum: Float[Array, ""] | float
    ) -> Running:
        """Return the averages after a batch, which keep the share ``momentum`` of themselves."""
        seen = jax.lax.stop_gradient(seen)
        moved = jax.tree.map(lambda r, b: momentum * r + (1.0 - momentum) * b, self.layers, seen)
        return Running(moved, self.batches + 1)


class RenormalisedMLP(MLP):
    """Linear layers with activations between them. The inputs are normalised, and what each
    activation returns (Bhatt 2024)."""

    renorms: tuple[BatchRenorm, ...] = ()
    running: Running = eqx.field(default_factory=Running.create)

    @classmethod
    def create(
        cls, key: Key[Array, ""], sizes: Sequence[int], activation: str = "relu"
    ) -> RenormalisedMLP:
        """Create layers as :meth:`MLP.uniform` does, with normalisations that have seen nothing."""
        layers = MLP.uniform(key, sizes, activation).layers
        renorms = tuple(BatchRenorm.create(size) for size in sizes[:-1])
        return cls(layers, activation, renorms=renorms, running=Running.create(sizes[:-1]))

    def __call__(self, x: Float[Array, "... inputs"]) -> Float[Array, "... outputs"]:
        """Apply all layers, normalised by the running averages."""
        for index, norm in enumerate(self.renorms):
            x = self._layer(norm(x, self.running.layers[index]), index)
        return x

    def _layer(self, x: Float[Array, "... units"], index: int) -> Float[Array, "... units_above"]:
        x = self.layers[index](x)
        return ACTIVATIONS[self.activation](x) if index < len(self.layers) - 1 else x

    def train(
        self,
        x: Float[Array, "row inputs"],
        mask: Bool[Array, "row"],
        warmup: int,
        momentum: Float[Array, ""] | float,
    ) -> tuple[Float[Array, "row outputs"], Running]:
        """Apply all layers, normalised by the batch's rows where ``mask`` is True; return also the
        running averages after this batch."""
        seen: list[BatchStatistics] = []
        warm = self.running.batches >= warmup
        for index, norm in enumerate(self.renorms):
            x, batch = norm.train(x, mask, self.running.layers[index], warm)
            seen.append(batch)
            x = self._layer(x, index)
        return x, self.running.updated(tuple(seen), momentum)


def split_running(tree: T) -> tuple[T, T]:
    """Return a tree's parameters, and its :class:`Running` nodes, each with None in the other's
    places. ``eqx.combine`` puts them together again."""

    def is_running(node: Any) -> bool:
        return isinstance(node, Running)

    learned = jax.tree.map(lambda node: not is_running(node), tree, is_leaf=is_running)
    parameters, running = eqx.partition(tree, learned)
    return parameters, running
