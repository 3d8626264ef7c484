"""Rows of a sequence: which of them belong to the episode of the first."""

from __future__ import annotations

import jax.numpy as jnp
from jaxtyping import Array, Bool


def unbroken(last: Bool[Array, "... time"], mask: Bool[Array, "... time"]) -> Bool[Array, "..."]:
    """Return which rows of sequences ``(..., time)`` belong to the episode of the first one, up to
    its last row; none of a sequence whose first row is masked."""
    goes_on = jnp.cumprod((~last & mask).astype(jnp.int32), -1).astype(bool)
    before = jnp.concatenate([jnp.ones_like(goes_on[..., :1]), goes_on[..., :-1]], -1)
    return before & mask
