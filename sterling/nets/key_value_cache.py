"""The key-value cache of a transformer, in a layout that makes decoding one token fast.

Rows and key heads share one axis, and tokens lie along the axis that is written to. Both products
of attention are then plain matrix products, and XLA writes new tokens in place. With separate axes
it copies every layer's cache four times per token.
"""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.typing import DTypeLike
from jaxtyping import Array, Bool, Float, Int

MASKED_SCORE = -1e30  # attention score of a masked token: finite, so that gradients stay finite
EMPTY_POSITION = -1  # position of a cache slot that holds no token
LayerCache = tuple[Float[Array, "pair size room"], Float[Array, "pair room size"]]


class Cache(eqx.Module):
    """Keys, values and positions of the tokens read so far, at most ``room`` of them.

    A pair is a row of the batch with one of its key heads.
    """

    keys: tuple[Float[Array, "pair size room"], ...]  # one for each layer
    values: tuple[Float[Array, "pair room size"], ...]
    position: Int[Array, "batch room"]  # of the token in each slot, or NOWHERE

    @classmethod
    def empty(
        cls, layers: int, batch: int, room: int, *, heads: int, size: int, dtype: DTypeLike
    ) -> Cache:
        """Create a cache without tokens."""
        keys = jnp.zeros((batch * heads, size, room), dtype)
        values = jnp.zeros((batch * heads, room, size), dtype)
        position = jnp.full((batch, room), EMPTY_POSITION, jnp.int32)
        return cls((keys,) * layers, (values,) * layers, position)

    def enlarge(self, room: int) -> Cache:
        """Return the same cache with capacity ``room``; the new slots come last and are empty."""
        more = room - self.position.shape[1]

        def grown(x: Array, axis: int, blank: int = 0) -> Array:
            around = [(0, more if i == axis else 0) for i in range(x.ndim)]
            return jnp.pad(x, around, constant_values=blank)

        return Cache(
            tuple(grown(x, 2) for x in self.keys),
            tuple(grown(x, 1) for x in self.values),
            grown(self.position, 1, EMPTY_POSITION),
        )

    def with_rows(
        self, fresh: Cache, row: Int[Array, "count"], place: Int[Array, ""] | int
    ) -> Cache:
        """Replace some rows of this ring by those of ``fresh``, whose tokens end before ``place``.

        ``fresh`` holds ``(count, new)`` tokens. Indices in ``row`` beyond the batch are dropped.
        """
        batch, room = self.position.shape
        shift = place - fresh.position.shape[1]
        heads = self.keys[0].shape[0] // batch
        pair = (row[:, None] * heads + jnp.arange(heads, dtype=jnp.int32)[None]).reshape(-1)
        aligned = fresh.enlarge(room)

        def put(old: Array, new: Array, index: Array, axis: int) -> Array:
            return old.at[index].set(jnp.roll(new, shift, axis), mode="drop")

        return Cache(
            tuple(put(*each, pair, 2) for each in zip(self.keys, aligned.keys, strict=True)),
            tuple(put(*each, pair, 1) for each in zip(self.values, aligned.values, strict=True)),
            put(self.position, aligned.position, row, 1),
        )


def write_tokens(
    layer: LayerCache,
    keys: Float[Array, "batch few new size"],
    values: Float[Array, "batch few new size"],
    place: Int[Array, ""] | int,
) -> LayerCache:
    """Write the keys and values of new tokens into a layer's cache, from slot ``place`` on."""
    pairs, size, _ = layer[0].shape
    new = jnp.swapaxes(keys.reshape(pairs, -1, size), 1, 2)
    return (
        jax.lax.dynamic_update_slice(layer[0], new, (0, 0, place)),
        jax.lax.dynamic_update_slice(layer[1], values.reshape(pairs, -1, size), (0, place, 0)),
    )


def attend_to_cache(
    queries: Float[Array, "batch head new size"],
    layer: LayerCache,
    allowed: Bool[Array, "batch new room"],
) -> Float[Array, "batch head new size"]:
    """Attend to a layer's cache: :func:`sterling.nets.transformer.attend` in the cache's layout."""
    keys, values = layer
    pairs, size, room = keys.shape
    flat_queries = queries.reshape(pairs, -1, size)  # (head of this key head, new) is one axis
    scores = jnp.einsum("pqs,psr->pqr", flat_queries, keys).astype(jnp.float32) * size**-0.5
    by_head = scores.reshape(*queries.shape[:3], room)
    by_head = jnp.where(allowed[:, None], by_head, MASKED_SCORE)
    weights = jnp.exp(by_head - jnp.max(by_head, -1, keepdims=True)).reshape(scores.shape)
    output = jnp.einsum("pqr,prs->pqs", weights.astype(values.dtype), values)
    output = output / jnp.sum(weights, -1, keepdims=True).astype(output.dtype)
    return output.reshape(queries.shape)
