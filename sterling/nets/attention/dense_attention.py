"""Attention with all scores in memory at once: for short sequences."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from sterling.nets.key_value_cache import MASKED_SCORE


def attend(
    queries: Float[Array, "batch head time size"],
    keys: Float[Array, "batch key_heads room size"],
    values: Float[Array, "batch key_heads room size"],
    allowed: Bool[Array, "#batch time room"],
) -> Float[Array, "batch head time size"]:
    """Return softmax(q k / sqrt(size)) v over the allowed keys (Vaswani 2017, eq. 1), in float32.

    With fewer key heads than query heads, each serves several consecutive ones (Ainslie 2023).
    """
    batch, key_heads, _, size = keys.shape
    shape = queries.shape
    queries = queries.reshape(batch, key_heads, -1, size)  # (head in a group, time) is one axis
    scores = jnp.einsum("bkqs,bkrs->bkqr", queries, keys).astype(jnp.float32) * size**-0.5
    grouped = scores.reshape(batch, key_heads, -1, *allowed.shape[1:])
    grouped = jnp.where(allowed[:, None, None], grouped, MASKED_SCORE)
    largest = jax.lax.stop_gradient(jnp.max(grouped, -1, keepdims=True))
    weights = jnp.exp(grouped - largest).reshape(scores.shape)
    output = jnp.einsum("bkqr,bkrs->bkqs", weights.astype(values.dtype), values)
    share = (1.0 / jnp.sum(weights, -1, keepdims=True)).astype(output.dtype)
    return (output * share).reshape(shape)
