"""Batches of preference pairs: two texts each, of which one was chosen."""

from __future__ import annotations

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from sterling.algorithms.language import gradient_accumulation
from sterling.types import Record


class Pairs(eqx.Module):
    """A batch of :class:`~sterling.types.Comparisons` whose first axis is the pair, so that pieces
    of a batch never separate a pair. The first text of a pair is the chosen one."""

    ids: Int[Array, "pair 2 time"]
    mask: Bool[Array, "pair 2 token"]  # whether token + 1 belongs to the answer
    share: Float[Array, "pair"]  # 1 / number of valid pairs; 0 if a text of the pair is invalid

    @classmethod
    def from_batch(cls, batch: Record) -> Pairs:
        """Build pairs from rows: first the chosen texts of all pairs, then the rejected ones."""
        ids, mask = (
            _split_by_pair(gradient_accumulation.batch_tokens(batch)),
            _split_by_pair(gradient_accumulation.answer_mask(batch)),
        )
        valid = jnp.all(jnp.any(mask, -1), -1).astype(jnp.float32)
        return cls(ids, mask, valid / jnp.maximum(jnp.sum(valid), 1.0))

    def flat(self) -> tuple[Int[Array, "row time"], Bool[Array, "row token"]]:
        """Return all texts and the masks of their answers, the two of a pair next to each other."""
        return self.ids.reshape(-1, self.ids.shape[-1]), self.mask.reshape(-1, self.mask.shape[-1])

    def mismatched(self) -> Pairs:
        """Combine every prompt with the answers to the next pair's prompt, the last with the first.

        An answer must be one contiguous run of tokens. What does not fit into a row is cut off.
        """
        index = jnp.arange(self.ids.shape[-1], dtype=jnp.int32)[None, None]
        begin = jnp.argmax(self.mask, -1, keepdims=True).astype(jnp.int32) + 1
        other, start, mask = (jnp.roll(x, -1, 0) for x in (self.ids, begin, self.mask))
        length = jnp.sum(mask.astype(jnp.int32), -1, keepdims=True)
        source = jnp.clip(index - begin + start, 0, self.ids.shape[-1] - 1)
        ids = jnp.where(index < begin, self.ids, jnp.take_along_axis(other, source, -1))
        in_answer = (index >= begin) & (index < begin + length)
        valid = ((self.share > 0.0) & (jnp.roll(self.share, -1) > 0.0)).astype(jnp.float32)
        share = valid / jnp.maximum(jnp.sum(valid), 1.0)
        return Pairs(ids, in_answer[..., 1:], share)


def _split_by_pair(rows: Array) -> Array:
    """Reshape ``(2 pairs, ...)`` rows, the chosen half first, to ``(pair, 2, ...)``."""
    return jnp.swapaxes(rows.reshape(2, rows.shape[0] // 2, *rows.shape[1:]), 0, 1)
