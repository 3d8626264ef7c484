"""Advantages of whole answers, by a key that says which answers belong together.

``group`` holds any integers from 0 to rows - 1, in any order; groups may differ in size. ``valid``
says which rows could be scored: the others get advantage 0 and enter no mean and no deviation
(their reward may be anything, NaN as well). With n valid rows of rewards r in the group of row i,

    baseline   none            b_i = 0
               mean            b_i = sum_j r_j / n
               leave-one-out   b_i = sum_{j != i} r_j / (n - 1)       (Kool 2019; RLOO)
    scale      none            A_i = r_i - b_i
               group           A_i = (r_i - b_i) / (std of the group's rewards + eps)
               batch           A_i = (r_i - b_i) / (std of all rewards + eps)
               whiten          A_i = (a_i - mean a) / (std a + eps) of all a_i = r_i - b_i

with unbiased deviations. Two rules hold for all of them: a group of one has advantage 0 unless the
baseline is none, and a deviation of exactly 0 divides by 1, not by eps. A group whose rewards are
all equal gets exactly 0 from "mean" and "leave-one-out", not a rounding error over eps.

What the names in papers stand for (baseline / scale):

    REINFORCE            none / none            Williams 1992
    RLOO                 leave-one-out / none   arXiv:2402.14740
    GRPO, DAPO, GSPO     mean / group           arXiv:2402.03300, 2503.14476, 2507.18071
    CISPO                mean / group           arXiv:2506.13585
    Dr.GRPO              mean / none            arXiv:2503.20783
    LitePPO              mean / batch           arXiv:2508.08221
    REINFORCE++          none / none, then `whiten` over the tokens' returns   arXiv:2501.03262
    REINFORCE++-baseline mean / none, then `whiten` over tokens                arXiv:2501.03262

The two last weigh a row by its tokens when they take mean and deviation; scale="whiten" does the
same once per row.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from sterling.naming import hint
from sterling.types import Mistake

Row = Float[Array, "row"]
BASELINES = ("none", "mean", "leave-one-out")
SCALES = ("none", "group", "batch", "whiten")


def advantages(
    reward: Row,
    group: Int[Array, "row"],
    valid: Bool[Array, "row"],
    baseline: str,
    scale: str,
    *,
    eps: Float[Array, ""] | float = 1e-4,
) -> Row:
    """A of the module docstring, a constant: 0 where not ``valid``.

    ``eps`` is added to the deviation (TRL's 1e-4; it has no part where ``scale`` is "none").
    Raises Mistake for kinds that are not in ``BASELINES`` and ``SCALES``.
    """
    reward = jax.lax.stop_gradient(jnp.where(valid, reward, 0.0))
    centred = jnp.where(valid, reward - baseline_of(reward, group, valid, baseline), 0.0)
    return scaled(centred, reward, group, valid, scale, eps=eps)


def baseline_of(reward: Row, group: Int[Array, "row"], valid: Bool[Array, "row"], kind: str) -> Row:
    """b of the module docstring; the row's own reward for "leave-one-out" in a group of one; 0
    where not ``valid``."""
    reward = jnp.where(valid, reward, 0.0)
    if kind == "none":
        return jnp.zeros_like(reward)
    low, above, count = _above_lowest(reward, group, valid)
    if kind == "mean":
        found = low + _sum_in(above, group) / jnp.maximum(count, 1.0)
    elif kind == "leave-one-out":
        others = low + (_sum_in(above, group) - above) / jnp.maximum(count - 1.0, 1.0)
        found = jnp.where(count > 1.0, others, reward)
    else:
        said = hint(kind, BASELINES, f"use one of {', '.join(BASELINES)}")
        raise Mistake(f"unknown baseline {kind!r}{said}")
    return jnp.where(valid, found, 0.0)


def scaled(
    centred: Row,
    reward: Row,
    group: Int[Array, "row"],
    valid: Bool[Array, "row"],
    kind: str,
    *,
    eps: Float[Array, ""] | float = 1e-4,
) -> Row:
    """``centred`` rewards over a deviation; see the module docstring."""
    if kind == "none":
        return centred
    if kind == "whiten":
        return whiten(centred, valid, eps)
    if kind not in SCALES:
        said = hint(kind, SCALES, f"use one of {', '.join(SCALES)}")
        raise Mistake(f"unknown scale {kind!r}{said}")
    key = group if kind == "group" else jnp.zeros_like(group)
    away = jnp.where(valid, reward - baseline_of(reward, key, valid, "mean"), 0.0)
    count = _sum_in(valid.astype(reward.dtype), key)
    deviation = jnp.sqrt(_sum_in(jnp.square(away), key) / jnp.maximum(count - 1.0, 1.0))
    return centred / jnp.where(deviation > 0.0, deviation + eps, 1.0)


def whiten(
    x: Float[Array, "..."], mask: Bool[Array, "..."], eps: Float[Array, ""] | float = 1e-8
) -> Float[Array, "..."]:
    """(x - mean) / (std + eps) over the masked entries, unbiased; 0 outside and where all are
    equal. Of token returns: REINFORCE++ (Hu 2025, arXiv:2501.03262)."""
    weight = mask.astype(x.dtype)
    count = jnp.sum(weight)
    above = jnp.where(mask, x - jnp.min(jnp.where(mask, x, jnp.inf)), 0.0)
    away = jnp.where(mask, above - jnp.sum(above) / jnp.maximum(count, 1.0), 0.0)
    deviation = jnp.sqrt(jnp.sum(jnp.square(away)) / jnp.maximum(count - 1.0, 1.0))
    return away / jnp.where(deviation > 0.0, deviation + eps, 1.0)


def overlong_penalty(length: Int[Array, "row"], max_length: int, buffer: int) -> Row:
    """What a long answer loses (DAPO; Yu 2025, arXiv:2503.14476, eq. 13): add it to its reward.

    0 up to ``max_length`` - ``buffer`` tokens, then falling along a line to -1 at ``max_length``
    and beyond. All in tokens. Raises Mistake unless 0 < ``buffer`` <= ``max_length``.
    """
    if not 0 < buffer <= max_length:
        said = f"the buffer of {buffer} tokens must be in 1..{max_length}, the longest answer"
        raise Mistake(f"{said}; lower it, or leave out the penalty")
    over = (length - (max_length - buffer)).astype(jnp.float32) / buffer
    return -jnp.clip(over, 0.0, 1.0)


def _sum_in(x: Row, group: Int[Array, "row"]) -> Row:
    """Of every row: the sum over its group."""
    return jax.ops.segment_sum(x, group, x.shape[0])[group]


def _above_lowest(
    reward: Row, group: Int[Array, "row"], valid: Bool[Array, "row"]
) -> tuple[Row, Row, Row]:
    """The group's least reward, each reward above it, and the group's valid rows.

    Means are taken of what is above the least, so that equal rewards have exactly their own mean.
    """
    least = jax.ops.segment_min(jnp.where(valid, reward, jnp.inf), group, reward.shape[0])[group]
    least = jnp.where(valid, least, 0.0)
    above = jnp.where(valid, reward - least, 0.0)
    return least, above, _sum_in(valid.astype(reward.dtype), group)
