"""The encoder of padded sequences: masked self-attention, then a mean and a maximum over items."""

from __future__ import annotations

import math

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, Key

from sterling import random_keys
from sterling.nets.mlp import Linear

WIDTH = 64  # features of an item
HEADS = 4
MASKED = -1e9  # finite, so that a sequence without items gives no NaN


class SequenceAttention(eqx.Module):
    """One block of self-attention (Vaswani 2017, equation 1) over the items of a sequence, with
    sinusoidal positions (section 3.5), pooled by mean and maximum.

    Padding is masked everywhere, so more padding changes nothing. The features of a sequence
    without items are zeros.
    """

    layers: dict[str, Linear]
    size: int = eqx.field(static=True, default=2 * WIDTH)

    @classmethod
    def create(cls, key: Key[Array, ""], inputs: int) -> SequenceAttention:
        """Create the block for items of ``inputs`` numbers."""
        widths = {
            **{"embed": (inputs, WIDTH), "query": (WIDTH, WIDTH), "key": (WIDTH, WIDTH)},
            **{"value": (WIDTH, WIDTH), "merge": (WIDTH, WIDTH), "last": (WIDTH, WIDTH)},
        }
        return cls(create_layers(key, widths))

    def __call__(
        self, items: Float[Array, "... items inputs"], count: Int[Array, "..."]
    ) -> Float[Array, "... features"]:
        """Return the features of sequences of which the first ``count`` items are real."""
        lead, most = items.shape[:-2], items.shape[-2]
        x = items.reshape(-1, most, items.shape[-1])
        real = jnp.arange(most)[None, :] < count.reshape(-1)[:, None]
        x = jnp.where(real[..., None], x, 0.0)
        x = self.layers["embed"](x) + jnp.asarray(_positions(most))[None]
        x = x + self._attend(x, real)
        x = jax.nn.relu(self.layers["last"](x))
        return pool_real_items(x, real).reshape(*lead, self.size)

    def _attend(
        self, x: Float[Array, "rows items width"], real: Array
    ) -> Float[Array, "rows items width"]:
        def heads(name: str) -> Array:
            return self.layers[name](x).reshape(*x.shape[:2], HEADS, WIDTH // HEADS)

        scores = jnp.einsum("bqhd,bkhd->bhqk", heads("query"), heads("key"))
        scores = scores / math.sqrt(WIDTH // HEADS)
        weights = jax.nn.softmax(jnp.where(real[:, None, None, :], scores, MASKED), -1)
        mixed = jnp.einsum("bhqk,bkhd->bqhd", weights, heads("value"))
        return self.layers["merge"](mixed.reshape(x.shape))


def create_layers(key: Key[Array, ""], widths: dict[str, tuple[int, int]]) -> dict[str, Linear]:
    """Create linear layers of ``(inputs, outputs)`` with normal weights of variance 1 / inputs."""
    layers = {}
    for name, (before, after) in widths.items():
        weight = jax.random.normal(random_keys.fold(key, name), (before, after), jnp.float32)
        zeros = jnp.zeros(after, jnp.float32)
        layers[name] = Linear(weight / math.sqrt(max(before, 1)), zeros)
    return layers


def pool_real_items(
    x: Float[Array, "rows items width"], real: Bool[Array, "rows items"]
) -> Float[Array, "rows features"]:
    """Return mean and maximum over the real items, side by side; zeros if there is none. No entry
    of ``x`` may be below 0, so that 0 takes the place of padding."""
    x = jnp.where(real[..., None], x, 0.0)
    mean = x.sum(1) / jnp.maximum(real.sum(1, keepdims=True), 1).astype(jnp.float32)
    return jnp.concatenate([mean, x.max(1)], -1)


def _positions(most: int) -> Float[np.ndarray, "items width"]:
    rates = np.exp(-math.log(10_000.0) * np.arange(WIDTH // 2) / (WIDTH // 2))
    angles = np.arange(most)[:, None] * rates[None, :]
    return np.concatenate([np.sin(angles), np.cos(angles)], -1).astype(np.float32)
