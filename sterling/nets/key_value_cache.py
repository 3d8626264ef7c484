"""The key-value cache of a transformer, in a layout that makes decoding one token fast.

A row's token at position i lies in place i, wherever other rows are: what is computed for a row
depends on nothing but that row. Rows and key heads share one axis, so both products of attention
are plain matrix products, and tokens lie along the axis that is written to, so XLA writes in place.

A cache of more than ``BLOCK`` places is read in blocks, only as far as some row has come, with
running sums of the softmax (Milakov 2018, arXiv:1805.02867). A block that holds nothing of a row
leaves its sums as they are, bit for bit, so how far other rows have come does not show.
"""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.typing import DTypeLike
from jaxtyping import Array, Bool, Float, Int

MASKED_SCORE = -1e30  # attention score of a masked token: finite, so that gradients stay finite
BLOCK = 128  # places that are attended to at once
LayerCache = tuple[Float[Array, "pair size room"], Float[Array, "pair room size"]]
Sums = tuple[Float[Array, "..."], Float[Array, "..."], Float[Array, "..."]]


class Cache(eqx.Module):
    """Keys and values of the tokens read so far, at most ``room`` of each row.

    A pair is a row of the batch with one of its key heads.
    """

    keys: tuple[Float[Array, "pair size room"], ...]  # one for each layer
    values: tuple[Float[Array, "pair room size"], ...]
    heads: int = eqx.field(static=True)  # key heads of a row

    @classmethod
    def empty(
        cls, layers: int, batch: int, room: int, *, heads: int, size: int, dtype: DTypeLike
    ) -> Cache:
        """Create a cache without tokens, with at least ``room`` places: whole blocks, if it has
        more than one."""
        room = room if room <= BLOCK else -(-room // BLOCK) * BLOCK
        keys = jnp.zeros((batch * heads, size, room), dtype)
        values = jnp.zeros((batch * heads, room, size), dtype)
        return cls((keys,) * layers, (values,) * layers, heads)

    def with_rows(
        self, other: Cache, source: Int[Array, "count"], row: Int[Array, "count"]
    ) -> Cache:
        """Replace the rows ``row`` by the rows ``source`` of ``other``; a ``row`` past the last one
        is left out."""
        batch = self.keys[0].shape[0] // self.heads
        pair = jnp.where(row[:, None] < batch, self._pairs(row), batch * self.heads).reshape(-1)
        taken = self._pairs(source).reshape(-1)

        def put(old: Array, new: Array) -> Array:
            return old.at[pair].set(new[taken], mode="drop")

        return Cache(
            tuple(put(*each) for each in zip(self.keys, other.keys, strict=True)),
            tuple(put(*each) for each in zip(self.values, other.values, strict=True)),
            self.heads,
        )

    def _pairs(self, row: Int[Array, "count"]) -> Int[Array, "count {self.heads}"]:
        return row[:, None] * self.heads + jnp.arange(self.heads, dtype=jnp.int32)[None]


def write_tokens(
    layer: LayerCache,
    keys: Float[Array, "batch few new size"],
    values: Float[Array, "batch few new size"],
    begin: Int[Array, "batch"],
) -> LayerCache:
    """Write the keys and values of new tokens into a layer's cache, each row from its own place
    ``begin`` on; there must be room for them."""
    pairs, size, _ = layer[0].shape
    new = keys.shape[2]
    place = jnp.repeat(begin, pairs // begin.size)

    def put(old: Array, new: Array, start: Array, axis: int) -> Array:
        return jax.lax.dynamic_update_slice_in_dim(old, new, start, axis)

    flat_keys, flat_values = keys.reshape(pairs, new, size), values.reshape(pairs, new, size)
    return (
        jax.vmap(put, (0, 0, 0, None))(layer[0], jnp.swapaxes(flat_keys, 1, 2), place, 1),
        jax.vmap(put, (0, 0, 0, None))(layer[1], flat_values, place, 0),
    )


def attend_to_cache(
    queries: Float[Array, "batch head new size"],
    layer: LayerCache,
    at: Int[Array, "batch new"],
) -> Float[Array, "batch head new size"]:
    """Attend from tokens at positions ``at`` to those of the cache up to them:
    :func:`sterling.nets.attention.dense_attention.attend` in the cache's layout."""
    pairs, size, room = layer[0].shape
    flat = queries.reshape(pairs, -1, size)  # (head of this key head, new) is one axis
    if room <= BLOCK:
        _, total, output = _attend(flat, layer, _seen(at, 0, room))
    else:
        _, total, output = _attend_in_blocks(flat, layer, at)
    return (output / total.astype(output.dtype)).reshape(queries.shape)


def _attend_in_blocks(
    queries: Float[Array, "pair query size"],
    layer: LayerCache,
    at: Int[Array, "batch new"],
) -> Sums:
    def add(number: Array, sums: Sums) -> Sums:
        begin = number * BLOCK
        block = (
            jax.lax.dynamic_slice_in_dim(layer[0], begin, BLOCK, 2),
            jax.lax.dynamic_slice_in_dim(layer[1], begin, BLOCK, 1),
        )
        return _joined(sums, _attend(queries, block, _seen(at, begin, BLOCK)))

    column = (*queries.shape[:2], 1)
    nothing = (
        jnp.full(column, MASKED_SCORE),
        jnp.zeros(column),
        jnp.zeros(queries.shape, layer[1].dtype),
    )
    return jax.lax.fori_loop(0, jnp.max(at) // BLOCK + 1, add, nothing)


def _seen(
    at: Int[Array, "batch new"], begin: Int[Array, ""] | int, count: int
) -> Bool[Array, "batch new {count}"]:
    """Return which of ``count`` places from ``begin`` on tokens at these positions see."""
    return begin + jnp.arange(count, dtype=jnp.int32)[None, None] <= at[..., None]


def _attend(
    queries: Float[Array, "pair query size"],
    layer: LayerCache,
    seen: Bool[Array, "batch new room"],
) -> Sums:
    """Return the largest score of each query, the sum of its weights relative to that, and the sum
    of the values with these weights."""
    size, (batch, new, room) = queries.shape[-1], seen.shape
    scores = jnp.einsum("pqs,psr->pqr", queries, layer[0]).astype(jnp.float32) * size**-0.5
    by_head = scores.reshape(batch, -1, new, room)
    scores = jnp.where(seen[:, None], by_head, MASKED_SCORE).reshape(scores.shape)
    largest = jnp.max(scores, -1, keepdims=True)
    weights = jnp.exp(scores - largest)
    output = jnp.einsum("pqr,prs->pqs", weights.astype(layer[1].dtype), layer[1])
    return largest, jnp.sum(weights, -1, keepdims=True), output


def _joined(one: Sums, other: Sums) -> Sums:
    """Return the sums over two blocks together."""
    largest = jnp.maximum(one[0], other[0])
    first, second = jnp.exp(one[0] - largest), jnp.exp(other[0] - largest)
    kind = one[2].dtype
    return (
        largest,
        one[1] * first + other[1] * second,
        one[2] * first.astype(kind) + other[2] * second.astype(kind),
    )
