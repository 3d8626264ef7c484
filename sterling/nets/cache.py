"""What a transformer remembers of the tokens it has read, laid out for reading one more.

Rows and key heads are one axis, and keys lie beside one another along the axis that is written to:
both products of attention are then plain matrix products, and XLA writes new tokens in place. With
the axes apart it copies every layer's memory four times for each token.
"""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.typing import DTypeLike
from jaxtyping import Array, Bool, Float, Int

NEVER = -1e30  # the score of what may not be looked at: finite, so that gradients stay finite
NOWHERE = -1  # the position of a place in a cache that holds no token
Layer = tuple[Float[Array, "pair size room"], Float[Array, "pair room size"]]


class Cache(eqx.Module):
    """What earlier tokens left behind for later ones, of ``room`` tokens at most.

    A pair is a row of the batch and one of its key heads.
    """

    keys: tuple[Float[Array, "pair size room"], ...]  # one for each layer
    values: tuple[Float[Array, "pair room size"], ...]
    position: Int[Array, "batch room"]  # of the token in each place, or NOWHERE

    @classmethod
    def empty(
        cls, layers: int, batch: int, room: int, *, heads: int, size: int, dtype: DTypeLike
    ) -> Cache:
        """Nothing read yet."""
        keys = jnp.zeros((batch * heads, size, room), dtype)
        values = jnp.zeros((batch * heads, room, size), dtype)
        position = jnp.full((batch, room), NOWHERE, jnp.int32)
        return cls((keys,) * layers, (values,) * layers, position)

    def larger(self, room: int) -> Cache:
        """The same with ``room`` for more tokens after those it has."""
        more = room - self.position.shape[1]

        def grown(x: Array, axis: int, blank: int = 0) -> Array:
            around = [(0, more if i == axis else 0) for i in range(x.ndim)]
            return jnp.pad(x, around, constant_values=blank)

        return Cache(
            tuple(grown(x, 2) for x in self.keys),
            tuple(grown(x, 1) for x in self.values),
            grown(self.position, 1, NOWHERE),
        )

    def with_rows(
        self, fresh: Cache, row: Int[Array, "count"], place: Int[Array, ""] | int
    ) -> Cache:
        """This ring with other rows in place of some: their tokens end just before ``place``.

        ``fresh`` holds ``(count, new)`` tokens; a row that is no row of this cache is left out.
        """
        batch, room = self.position.shape
        behind = place - fresh.position.shape[1]
        heads = self.keys[0].shape[0] // batch
        pair = (row[:, None] * heads + jnp.arange(heads, dtype=jnp.int32)[None]).reshape(-1)
        turned = fresh.larger(room)

        def put(old: Array, new: Array, index: Array, axis: int) -> Array:
            return old.at[index].set(jnp.roll(new, behind, axis), mode="drop")

        return Cache(
            tuple(put(*each, pair, 2) for each in zip(self.keys, turned.keys, strict=True)),
            tuple(put(*each, pair, 1) for each in zip(self.values, turned.values, strict=True)),
            put(self.position, turned.position, row, 1),
        )


def remembered(
    layer: Layer,
    keys: Float[Array, "batch few new size"],
    values: Float[Array, "batch few new size"],
    place: Int[Array, ""] | int,
) -> Layer:
    """A layer's memory with new tokens in it, from ``place`` on."""
    pairs, size, _ = layer[0].shape
    new = jnp.swapaxes(keys.reshape(pairs, -1, size), 1, 2)
    return (
        jax.lax.dynamic_update_slice(layer[0], new, (0, 0, place)),
        jax.lax.dynamic_update_slice(layer[1], values.reshape(pairs, -1, size), (0, place, 0)),
    )


def recall(
    queries: Float[Array, "batch head new size"],
    layer: Layer,
    allowed: Bool[Array, "batch new room"],
) -> Float[Array, "batch head new size"]:
    """Attention to a layer's memory: :func:`sterling.nets.transformer.attend` in its layout."""
    keys, values = layer
    pairs, size, room = keys.shape
    asked = queries.reshape(pairs, -1, size)  # (head of this key head, new) is one axis
    scores = jnp.einsum("pqs,psr->pqr", asked, keys).astype(jnp.float32) * size**-0.5
    by_head = scores.reshape(*queries.shape[:3], room)
    by_head = jnp.where(allowed[:, None], by_head, NEVER)
    weights = jnp.exp(by_head - jnp.max(by_head, -1, keepdims=True)).reshape(scores.shape)
    found = jnp.einsum("pqr,prs->pqs", weights.astype(values.dtype), values)
    found = found / jnp.sum(weights, -1, keepdims=True).astype(found.dtype)
    return found.reshape(queries.shape)
