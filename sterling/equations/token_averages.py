"""Reduce a loss per token to one number, by five choices of the denominator.

A loss is always sum(weights * loss), and the weights, which include the denominators, are computed
once for the whole batch. So the batch can be split into micro-batches (or over devices): the sum of
their losses has the same value and gradient.

    token         1 / (all counted tokens)                        (DAPO)
    sequence      1 / (rows * the row's counted tokens)           (GRPO)
    sum           1 / rows                                        (REINFORCE, Williams 1992)
    sum-constant  1 / (rows * length), length a constant          (Dr.GRPO)
    prompt        1 / (groups * the group's counted tokens)

``mask`` holds at tokens that have a loss. ``counted`` holds at tokens that the denominators count,
by default the same: pass the mask from before tokens were rejected (as too stale, or of a truncated
answer), so that rejecting some does not raise the weight of the rest. A row without any counted
token is padding: it does not count as a row, nor its group as a group. Where an answer has several
rows (equations/line_rows.py), ``portion`` is each row's portion of it: such rows count as one.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from sterling.lookup.name_suggestions import did_you_mean
from sterling.types import Mistake

Tokens = Float[Array, "row token"]
Mask = Bool[Array, "row token"]
AGGREGATIONS = ("token", "sequence", "sum", "sum-constant", "prompt")


def token_weights(
    mask: Mask,
    group: Int[Array, "row"],
    how: str,
    *,
    length: Float[Array, ""] | float | int | None = None,
    counted: Mask | None = None,
    portion: Float[Array, "row"] | None = None,
) -> Tokens:
    """Return each token's weight, by the module docstring; 0 outside ``mask``.

    ``group``: any integers, used only by "prompt" (in a minibatch they may be the whole batch's
    keys, larger than its number of rows). ``length``: the longest allowed answer in tokens, which
    "sum-constant" needs. ``portion``: by default every row is an answer of its own. Raises Mistake
    for a missing length, and for unknown aggregations.
    """
    counted = mask if counted is None else counted
    each = jnp.sum(counted.astype(jnp.float32), -1)
    portion = jnp.ones_like(each) if portion is None else portion
    nonempty = jnp.where(each > 0.0, portion, 0.0)
    rows = _positive(jnp.sum(nonempty))
    if how == "token":
        per_row = jnp.broadcast_to(jnp.sum(each), each.shape)
    elif how == "sequence":
        per_row = rows * each / portion
    elif how == "sum":
        per_row = jnp.broadcast_to(rows, each.shape)
    elif how == "sum-constant":
        if length is None:
            raise Mistake('Aggregation "sum-constant" needs a constant. Pass length, in tokens.')
        per_row = jnp.broadcast_to(rows * length, each.shape)
    elif how == "prompt":
        size = each.shape[0]
        _, dense = jnp.unique(group, size=size, return_inverse=True)
        tokens = jax.ops.segment_sum(each, dense, size)
        groups = jnp.sum((tokens > 0.0).astype(jnp.float32))
        per_row = groups * tokens[dense]
    else:
        near = did_you_mean(how, AGGREGATIONS, f"use one of {', '.join(AGGREGATIONS)}")
        raise Mistake(f"Unknown aggregation {how!r}{near}")
    return mask.astype(jnp.float32) / _positive(per_row)[:, None]


def _positive(x: Float[Array, "..."]) -> Float[Array, "..."]:
    """Return ``x``, with 1 in place of 0."""
    return jnp.where(x > 0.0, x, 1.0)


def weighted_sum(loss: Tokens, weight: Tokens) -> Float[Array, ""]:
    """Return sum(weight * loss); losses with weight 0 are ignored, so they may be infinite."""
    read = weight != 0.0
    return jnp.sum(jnp.where(read, loss, 0.0) * weight.astype(loss.dtype))


def aggregate(
    loss: Tokens,
    mask: Mask,
    group: Int[Array, "row"],
    how: str,
    *,
    length: Float[Array, ""] | float | int | None = None,
    counted: Mask | None = None,
) -> Float[Array, ""]:
    """Return the loss of a batch that is not split, by the weights of :func:`token_weights`."""
    return weighted_sum(loss, token_weights(mask, group, how, length=length, counted=counted))
