"""Division of a rollout's rows into minibatches."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jaxtyping import Array, Int, Key


def minibatch_indices(
    key: Key[Array, ""], rows: int, minibatch: int, epochs: int
) -> Int[Array, "updates minibatch"]:
    """Return the row indices of each update: every epoch visits all rows in a new random order.
    An epoch's last minibatch is padded with -1."""
    every = jnp.broadcast_to(jnp.arange(rows, dtype=jnp.int32), (epochs, rows))
    if minibatch < rows:  # else the order cannot matter
        every = jax.lax.sort_key_val(jax.random.bits(key, (epochs, rows)), every)[1]
    if pads := -rows % minibatch:
        every = jnp.pad(every, ((0, 0), (0, pads)), constant_values=-1)
    return every.reshape(-1, minibatch)
