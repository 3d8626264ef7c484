"""Which rows of a store are of the same task, and draws of such rows."""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Int, Key, Shaped, UInt32

NO_ROW = -1  # number of a row that is none, which is masked


class TaskIndex(eqx.Module):
    """The rows of one store in the order of their tasks. Tasks are equal if their numbers are."""

    ordered: UInt32[Array, "row"]  # bits of the tasks; those of no experience come last
    order: Int[Array, "row"]  # the rows that these are of
    known: Int[Array, ""]  # how many are experience

    @classmethod
    def create(cls, task: Shaped[Array, "row"], valid: Bool[Array, "row"]) -> TaskIndex:
        """Sort rows by their tasks, one number each; ``valid`` says which are experience."""
        bits = jnp.where(valid, task_bits(task), jnp.uint32(2**32 - 1))
        order = jnp.lexsort((~valid, bits)).astype(jnp.int32)
        return cls(bits[order], order, jnp.sum(valid, dtype=jnp.int32))

    def draw(
        self, task: UInt32[Array, "*draws"], rows: int, key: Key[Array, ""]
    ) -> Int[Array, "*draws rows"]:
        """Return ``rows`` rows of each task, whose bits are given, drawn uniformly with
        replacement; ``NO_ROW`` of tasks without any."""
        first = jnp.searchsorted(self.ordered, task, side="left").astype(jnp.int32)
        after = jnp.searchsorted(self.ordered, task, side="right").astype(jnp.int32)
        count = (jnp.minimum(after, self.known) - first)[..., None]
        most = jnp.maximum(count, 1)
        chosen = jax.random.randint(key, (*task.shape, rows), 0, most, jnp.int32)
        return jnp.where(count > 0, self.order[first[..., None] + chosen], NO_ROW)


def task_bits(task: Shaped[Array, "*rows"]) -> UInt32[Array, "*rows"]:
    """Return 32 bits for each number, which are equal if the numbers are."""
    if task.dtype.itemsize != 4:
        task = task.astype(jnp.int32)
    task = jnp.where(task == 0, jnp.zeros_like(task), task)  # -0.0 is 0.0
    return jax.lax.bitcast_convert_type(task, jnp.uint32)
