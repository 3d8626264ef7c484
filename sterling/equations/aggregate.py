"""From a loss per token to one number, with its denominator stated.

A loss is always sum(weights * loss), and the weights, denominators included, are made once for the
whole batch. So any split into micro-batches (or over devices) whose losses are summed has the very
same loss and gradient:

    token         1 / (all counted tokens)                        (DAPO)
    sequence      1 / (rows * the row's counted tokens)           (GRPO)
    sum           1 / rows                                        (REINFORCE, Williams 1992)
    sum-constant  1 / (rows * length), length a constant          (Dr.GRPO)
    prompt        1 / (groups * the group's counted tokens)

``mask`` holds where a loss is taken. ``counted`` holds what the denominators count, by default the
same: pass the mask from before tokens were rejected (as too stale, or of a truncated answer), so
that rejecting some does not raise the step of the rest. A row without any counted token is padding:
it is no row, its group no group.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from sterling.naming import hint
from sterling.types import Mistake

Tokens = Float[Array, "row token"]
Mask = Bool[Array, "row token"]
WAYS = ("token", "sequence", "sum", "sum-constant", "prompt")


def weights(
    mask: Mask,
    group: Int[Array, "row"],
    how: str,
    *,
    length: Float[Array, ""] | float | int | None = None,
    counted: Mask | None = None,
) -> Tokens:
    """What each token counts, by the module docstring; 0 outside of ``mask``.

    ``group``: any integers, read by "prompt" alone (a minibatch's keys may be those of the whole
    batch, which run on to more than its own rows). ``length``: tokens of the longest answer
    allowed, which "sum-constant" needs. Raises Mistake where it lacks it, and for ways that are not
    in ``WAYS``.
    """
    counted = mask if counted is None else counted
    each = jnp.sum(counted.astype(jnp.float32), -1)
    there = (each > 0.0).astype(jnp.float32)
    rows = jnp.maximum(jnp.sum(there), 1.0)
    if how == "token":
        per_row = jnp.broadcast_to(jnp.sum(each), each.shape)
    elif how == "sequence":
        per_row = rows * each
    elif how == "sum":
        per_row = jnp.broadcast_to(rows, each.shape)
    elif how == "sum-constant":
        if length is None:
            raise Mistake('"sum-constant" divides by a constant; give it the longest length')
        per_row = jnp.broadcast_to(rows * length, each.shape)
    elif how == "prompt":
        size = each.shape[0]
        _, dense = jnp.unique(group, size=size, return_inverse=True)
        tokens = jax.ops.segment_sum(each, dense, size)
        groups = jnp.sum((tokens > 0.0).astype(jnp.float32))
        per_row = groups * tokens[dense]
    else:
        said = hint(how, WAYS, f"use one of {', '.join(WAYS)}")
        raise Mistake(f"unknown aggregation {how!r}{said}")
    return mask.astype(jnp.float32) / jnp.maximum(per_row, 1.0)[:, None]


def weighted_sum(loss: Tokens, weight: Tokens) -> Float[Array, ""]:
    """sum(weight * loss); what has no weight is not read (it may be infinite)."""
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
    """The loss of a batch that is not split: the weighted sum by :func:`weights`."""
    return weighted_sum(loss, weights(mask, group, how, length=length, counted=counted))
