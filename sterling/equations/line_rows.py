"""Several rows of a batch that are one line: what one seat heard and said in a scene, with a row
for each of its contexts.

The rows of a line are neighbours; ``rows_before`` (row) says how many rows of its line come before
each. Whatever averages over answers counts lines, not rows: a line of ten contexts is one answer.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

Rows = Int[Array, "row"]


def first_rows(rows_before: Rows) -> Rows:
    """Return for each row the index of its line's first row."""
    return jnp.arange(rows_before.shape[0], dtype=rows_before.dtype) - rows_before


def is_last(rows_before: Rows) -> Bool[Array, "row"]:
    """Return whether each row is its line's last one."""
    return (jnp.roll(rows_before, -1) == 0).at[-1].set(True)


def line_sum(x: Float[Array, "row ..."], rows_before: Rows) -> Float[Array, "row ..."]:
    """Return for each row the sum of ``x`` over the rows of its line."""
    first = first_rows(rows_before)
    return jax.ops.segment_sum(x, first, x.shape[0])[first]


def line_min(x: Float[Array, "row"], rows_before: Rows) -> Float[Array, "row"]:
    """Return for each row the least ``x`` among the rows of its line."""
    first = first_rows(rows_before)
    return jax.ops.segment_min(x, first, x.shape[0])[first]


def row_shares(rows_before: Rows) -> Float[Array, "row"]:
    """Return each row's share of its line: 1 / the number of the line's rows."""
    return 1.0 / line_sum(jnp.ones(rows_before.shape[0], jnp.float32), rows_before)
