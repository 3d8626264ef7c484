"""The order in which texts are learned from: all of them once before any comes again.

Every pass has an order of its own, a permutation that is computed row by row: a Feistel network
over the smallest 2^2h numbers that hold all rows, applied again to what it takes beyond them
(Black and Rogaway 2002, "Ciphers with arbitrary finite domains", cycle walking). So a pass over any
number of rows needs no memory and no sorting, and can be compiled; finite sets of
questions, which the host goes through, are in ``language/question_order.py``.
"""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Int, Key, UInt32

from sterling.random_keys import fold, murmur_finaliser, split
from sterling.types import Feed

ROUNDS = 6  # of the network; 4 already look random


class EpochOrder(eqx.Module):
    """How far each seed is, and the key of its orders."""

    key: Key[Array, "seed"]
    drawn: Int[Array, "seed"]  # rows so far

    @classmethod
    def create(cls, seeds: int) -> EpochOrder:
        """Return the order of seeds that have drawn nothing yet."""
        return cls(split(jax.random.key(0), "order", seeds), jnp.zeros(seeds, jnp.int32))

    def begun(self, keys: Key[Array, "seed"]) -> EpochOrder:
        """Take each seed's own key, at its first draw."""
        return EpochOrder(jnp.where(self.drawn == 0, keys, self.key), self.drawn)

    def after(self, feed: Feed) -> EpochOrder:
        """Return the order after one iteration's rows of a feed."""
        return EpochOrder(self.key, self.drawn + feed.updates * feed.batch)

    def choose(self, count: int, updates: int, batch: int) -> Int[Array, "seed update batch"]:
        """Return the indices, below ``count``, of the next rows."""
        ahead = jnp.arange(updates * batch, dtype=jnp.int32)

        def of_seed(key: Key[Array, ""], drawn: Int[Array, ""]) -> Int[Array, "update batch"]:
            at = drawn + ahead
            each = jax.vmap(lambda at: shuffled_place(key, at // count, at % count, count))
            return each(at).reshape(updates, batch)

        chosen: Int[Array, "seed update batch"] = jax.vmap(of_seed)(self.key, self.drawn)
        return chosen


def in_iteration(
    order: EpochOrder | None, keys: Key[Array, "seed"], feed: Feed
) -> tuple[EpochOrder, EpochOrder | None]:
    """Return the order in which an iteration draws a feed's rows, and the one after it. Without an
    order every iteration begins a pass."""
    now = (order or EpochOrder.create(keys.size)).begun(keys)
    return now, None if order is None else now.after(feed)


def shuffled_place(
    key: Key[Array, ""], epoch: Int[Array, ""], place: Int[Array, ""], count: int
) -> Int[Array, ""]:
    """Return the place below ``count`` that a random permutation of the key and epoch gives a
    place."""
    half = max(1, -(-(count - 1).bit_length() // 2))  # bits
    mask = jnp.uint32((1 << half) - 1)
    round_keys = jax.random.bits(fold(key, "pass", epoch), (ROUNDS,), jnp.uint32)

    def permute(number: UInt32[Array, ""]) -> UInt32[Array, ""]:
        left, right = number >> half, number & mask
        for each in range(ROUNDS):
            left, right = right, left ^ (murmur_finaliser(right ^ round_keys[each]) & mask)
        return (left << half) | right

    first = permute(place.astype(jnp.uint32))
    found = jax.lax.while_loop(lambda number: number >= count, permute, first)
    return found.astype(jnp.int32)
