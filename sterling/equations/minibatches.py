"""Which rows of a rollout each update sees."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jaxtyping import Array, Int, Key


def shuffled(
    key: Key[Array, ""], rows: int, minibatch: int, epochs: int
) -> Int[Array, "updates minibatch"]:
    """Which rows each update sees: every epoch goes through all of them in an order of its own.
    Its last minibatch is filled up with -1, for no row."""
    every = jnp.broadcast_to(jnp.arange(rows, dtype=jnp.int32), (epochs, rows))
    if minibatch < rows:  # else the order cannot matter
        every = jax.lax.sort_key_val(jax.random.bits(key, (epochs, rows)), every)[1]
    if pads := -rows % minibatch:
        every = jnp.pad(every, ((0, 0), (0, pads)), constant_values=-1)
    return every.reshape(-1, minibatch)
