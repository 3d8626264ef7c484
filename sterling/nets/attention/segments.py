"""Which tokens of a row attend to which, by three numbers a token, and which blocks read which."""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Int

BLOCK = 32  # tokens of a block


class Segments(eqx.Module):
    """What each token of a row attends to: its segment up to itself, and a prefix that the segment
    shares with an earlier one. Numbers are columns of the row."""

    begin: Int[Array, "#batch time"]  # where the token's segment begins
    prefix: Int[Array, "#batch time"]  # where the shared prefix begins
    end: Int[Array, "#batch time"]  # the column after the prefix; at most ``prefix``: there is none
    valid: Bool[Array, "#batch time"] | None = None  # tokens that others attend to; None: all

    @classmethod
    def causal(cls, time: int, valid: Bool[Array, "batch time"] | None = None) -> Segments:
        """Return rows of one segment each: a token attends to all valid ones before it."""
        zeros = jnp.zeros((1, time), jnp.int32)
        return cls(zeros, zeros, zeros, valid)

    def visible(
        self, at: Int[Array, "#batch query"], keys: Segments, keys_at: Int[Array, "#batch key"]
    ) -> Bool[Array, "_ query key"]:
        """Return whether tokens in columns ``at`` attend to those of ``keys`` in ``keys_at``."""
        at, keys_at = at[..., None], keys_at[:, None]
        begin, prefix, end = self.begin[..., None], self.prefix[..., None], self.end[..., None]
        own = (keys_at >= begin) & (keys_at <= at)
        seen = own | ((keys_at >= prefix) & (keys_at < end))
        if keys.valid is None:
            return seen
        return (seen & keys.valid[:, None]) | (keys_at == at)

    def dense(self) -> Bool[Array, "#batch time time"]:
        """Return whether each token (second axis) attends to each other (third axis)."""
        at = jnp.arange(self.begin.shape[1], dtype=jnp.int32)[None]
        return self.visible(at, self, at)


class BlockReads(eqx.Module):
    """Which blocks of keys each block of queries reads: ``own`` blocks that end with itself, then
    further ones of the prefixes, from ``prefix`` on."""

    segments: Segments  # of the tokens of each block
    own: Int[Array, "block"]
    prefix: Int[Array, "block"]
    steps: Int[Array, "block"]

    @classmethod
    def from_segments(cls, segments: Segments, batch: int) -> BlockReads:
        """Find what blocks read; all rows' blocks are on one axis, and so are their numbers."""
        count = segments.begin.shape[1] // BLOCK
        blocks = jax.tree.map(
            lambda x: jnp.broadcast_to(x, (batch, x.shape[1])).reshape(-1, BLOCK), segments
        )
        number = jnp.arange(batch * count, dtype=jnp.int32)
        here, row = number % count, number - number % count
        lowest = jnp.min(blocks.begin, 1) // BLOCK
        some = blocks.prefix < blocks.end
        prefix = jnp.min(jnp.where(some, blocks.prefix // BLOCK, count), 1)
        last = jnp.max(jnp.where(some, (blocks.end - 1) // BLOCK, -1), 1)
        more = jnp.maximum(jnp.minimum(last, lowest - 1) - prefix + 1, 0)
        own = here - lowest + 1
        return cls(blocks, own, row + prefix, own + more)

    def pair(
        self, number: Int[Array, "pair"], step: Int[Array, ""], count: int
    ) -> tuple[Int[Array, "pair"], Bool[Array, "pair query key"]]:
        """Return the blocks of keys that blocks of queries read in a step, and which tokens see
        which. ``count``: blocks of a row."""
        own, steps = (x.at[number].get(mode="fill", fill_value=0) for x in (self.own, self.steps))
        read = jnp.where(step < own, number - step, self.prefix[number] + step - own)
        read = jnp.where(step < steps, read, number)
        queries, keys = (
            jax.tree.map(lambda x, which=which: x[which], self.segments) for which in (number, read)
        )
        place = jnp.arange(BLOCK, dtype=jnp.int32)[None]
        at, keys_at = (which[:, None] % count * BLOCK + place for which in (number, read))
        return read, queries.visible(at, keys, keys_at) & (step < steps)[:, None, None]

    def groups(self, size: int) -> tuple[Int[Array, "group pair"], Int[Array, "block"]]:
        """Return the blocks of queries in groups of about ``size`` that read about equally many
        blocks, and where each block is among them."""
        blocks = self.steps.size
        parts = -(-blocks // max(1, size))
        spare = -blocks % parts
        order = jnp.argsort(self.steps).astype(jnp.int32)
        place = jnp.argsort(order)
        order = jnp.concatenate([order, jnp.full(spare, blocks, jnp.int32)])
        return order.reshape(parts, -1), place

    def most(self, number: Int[Array, "pair"]) -> Int[Array, ""]:
        """Return the most blocks of keys that one of these blocks reads."""
        return jnp.max(self.steps.at[number].get(mode="fill", fill_value=0))
