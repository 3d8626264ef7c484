"""Division of a rollout's rows into minibatches."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jaxtyping import Array, Int, Key

from sterling.system.mistake import Mistake


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


def check_minibatch(minibatch: int, rows: int) -> None:
    """Raise Mistake unless a minibatch fits into a rollout of ``rows`` rows."""
    if not 0 < minibatch <= rows:
        wrong = f"minibatch={minibatch} does not fit into a rollout of {rows} rows"
        raise Mistake(f"{wrong} (envs x length). Set minibatch between 1 and {rows}.")
