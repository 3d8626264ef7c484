"""Rows of sequences: their order, and which of them belong to the episode of the first."""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool

from sterling.types import Record


def unbroken(last: Bool[Array, "... time"], mask: Bool[Array, "... time"]) -> Bool[Array, "..."]:
    """Return which rows of sequences ``(..., time)`` belong to the episode of the first one, up to
    its last row; none of a sequence whose first row is masked."""
    goes_on = jnp.cumprod((~last & mask).astype(jnp.int32), -1).astype(bool)
    before = jnp.concatenate([jnp.ones_like(goes_on[..., :1]), goes_on[..., :-1]], -1)
    return before & mask


def time_major(batch: Record) -> Record:
    """Return sequences ``(batch, time, ...)`` with time as the first axis; of the extras only
    "begins" are kept, and the past before the sequences stays as it is."""
    rows = dataclasses.replace(batch, extras={"begins": batch.extras["begins"]}, start=None)
    rows = jax.tree.map(lambda x: jnp.swapaxes(x, 0, 1), rows)
    return dataclasses.replace(rows, start=batch.start)
