"""Which rows of a store are of the same task, and draws of such rows."""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Int, Key, Shaped, UInt32

NO_ROW = -1  # number of a row that is none, which is masked


class TaskIndex(eqx.Module):
    """The rows of one store in the order of their tasks. Tasks are equal if their numbers are."""

    task: UInt32[Array, "row"]  # its bits; of rows that are no experience the largest number
    valid: Bool[Array, "row"]
    order: Int[Array, "row"]  # rows sorted by task; those that are no experience come last

    @classmethod
    def create(cls, task: Shaped[Array, "row"], valid: Bool[Array, "row"]) -> TaskIndex:
        """Sort rows by their tasks, one number each; ``valid`` says which are experience."""
        if task.dtype.itemsize != 4:
            task = task.astype(jnp.int32)
        task = jnp.where(task == 0, jnp.zeros_like(task), task)  # -0.0 is 0.0
        bits = jax.lax.bitcast_convert_type(task, jnp.uint32)
        bits = jnp.where(valid, bits, jnp.uint32(2**32 - 1))
        return cls(bits, valid, jnp.lexsort((~valid, bits)).astype(jnp.int32))

    def draw(
        self, row: Int[Array, "*draws"], rows: int, key: Key[Array, ""]
    ) -> Int[Array, "*draws rows"]:
        """Return ``rows`` rows of each row's task, drawn uniformly with replacement; ``NO_ROW``
        beside a row that is no experience."""
        ordered, safe = self.task[self.order], jnp.maximum(row, 0)
        known = jnp.sum(self.valid, dtype=jnp.int32)
        own = self.task[safe]
        first = jnp.searchsorted(ordered, own, side="left").astype(jnp.int32)
        after = jnp.searchsorted(ordered, own, side="right").astype(jnp.int32)
        count = jnp.maximum(jnp.minimum(after, known) - first, 1)[..., None]
        chosen = jax.random.randint(key, (*row.shape, rows), 0, count, jnp.int32)
        found = self.order[first[..., None] + chosen]
        return jnp.where((self.valid[safe] & (row >= 0))[..., None], found, NO_ROW)
