"""Pairs of texts of which one was preferred, as learners read them."""

from __future__ import annotations

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from sterling.algorithms.language import teaching
from sterling.types import Record


class Pairs(eqx.Module):
    """A batch of :class:`~sterling.types.Comparisons` with the pair's number as its first axis, so
    that no piece of a batch parts a pair. Of two texts the first is the better one."""

    ids: Int[Array, "pair 2 time"]
    mask: Bool[Array, "pair 2 token"]  # is token + 1 the answer's?
    share: Float[Array, "pair"]  # 1 / number of pairs that count; 0: one of its texts does not

    @classmethod
    def of(cls, batch: Record) -> Pairs:
        """From rows: the better halves of all pairs, then the others."""
        ids, mask = _by_pair(teaching.tokens(batch)), _by_pair(teaching.said(batch))
        there = jnp.all(jnp.any(mask, -1), -1).astype(jnp.float32)
        return cls(ids, mask, there / jnp.maximum(jnp.sum(there), 1.0))

    def flat(self) -> tuple[Int[Array, "row time"], Bool[Array, "row token"]]:
        """All texts and where their answers are, the two of a pair beside each other."""
        return self.ids.reshape(-1, self.ids.shape[-1]), self.mask.reshape(-1, self.mask.shape[-1])

    def mismatched(self) -> Pairs:
        """Every prompt with the answers to the next pair's prompt, the last with the first's.

        An answer is read as one stretch of tokens. What does not fit into a row is cut off.
        """
        at = jnp.arange(self.ids.shape[-1], dtype=jnp.int32)[None, None]
        begin = jnp.argmax(self.mask, -1, keepdims=True).astype(jnp.int32) + 1
        other, start, mask = (jnp.roll(x, -1, 0) for x in (self.ids, begin, self.mask))
        length = jnp.sum(mask.astype(jnp.int32), -1, keepdims=True)
        moved = jnp.clip(at - begin + start, 0, self.ids.shape[-1] - 1)
        ids = jnp.where(at < begin, self.ids, jnp.take_along_axis(other, moved, -1))
        here = (at >= begin) & (at < begin + length)
        there = ((self.share > 0.0) & (jnp.roll(self.share, -1) > 0.0)).astype(jnp.float32)
        share = there / jnp.maximum(jnp.sum(there), 1.0)
        return Pairs(ids, here[..., 1:], share)


def _by_pair(rows: Array) -> Array:
    return jnp.swapaxes(rows.reshape(2, rows.shape[0] // 2, *rows.shape[1:]), 0, 1)
