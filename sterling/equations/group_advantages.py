"""Advantages of whole answers, relative to the other answers of their group.

``group`` holds each row's group, an integer from 0 to rows - 1; groups may differ in size. Rows
where ``valid`` is False could not be scored: they get advantage 0 and enter no mean and no
deviation (their reward may be anything, even NaN). With n valid rows of rewards r in row i's group,

    baseline   none            b_i = 0
               mean            b_i = sum_j r_j / n
               leave-one-out   b_i = sum_{j != i} r_j / (n - 1)       (Kool 2019; RLOO)
    scale      none            A_i = r_i - b_i
               group           A_i = (r_i - b_i) / (std of the group's rewards + eps)
               batch           A_i = (r_i - b_i) / (std of all rewards + eps)
               whiten          A_i = (a_i - mean a) / (std a + eps) of all a_i = r_i - b_i

with unbiased deviations. Two rules hold for all of them: a group of one has advantage 0 unless the
baseline is none; and if a deviation is exactly 0, the divisor is 1, not eps. A group whose rewards
are all equal gets exactly 0 from "mean" and "leave-one-out", not a rounding error divided by eps.

The baselines and scales of published algorithms (baseline / scale):

    REINFORCE            none / none            Williams 1992
    RLOO                 leave-one-out / none   arXiv:2402.14740
    GRPO, DAPO, GSPO     mean / group           arXiv:2402.03300, 2503.14476, 2507.18071
    CISPO                mean / group           arXiv:2506.13585
    Dr.GRPO              mean / none            arXiv:2503.20783
    LitePPO              mean / batch           arXiv:2508.08221
    REINFORCE++          none / none, then `whiten` over the tokens' returns   arXiv:2501.03262
    REINFORCE++-baseline mean / none, then `whiten` over tokens                arXiv:2501.03262

In the last two, a row counts as often as it has tokens for mean and deviation; with scale="whiten"
each row counts once.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from sterling.lookup.name_suggestions import did_you_mean
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
    """Return A of the module docstring, without gradient; 0 where not ``valid``.

    ``eps`` is added to the deviation (1e-4 as in TRL; unused if ``scale`` is "none"). Raises
    Mistake for baselines and scales that are not in ``BASELINES`` and ``SCALES``.
    """
    reward = jax.lax.stop_gradient(jnp.where(valid, reward, 0.0))
    centred = jnp.where(valid, reward - group_baseline(reward, group, valid, baseline), 0.0)
    return scale_advantages(centred, reward, group, valid, scale, eps=eps)


def group_baseline(
    reward: Row, group: Int[Array, "row"], valid: Bool[Array, "row"], kind: str
) -> Row:
    """Return b of the module docstring; 0 where not ``valid``. In a group of one "leave-one-out"
    is the row's own reward."""
    reward = jnp.where(valid, reward, 0.0)
    if kind == "none":
        return jnp.zeros_like(reward)
    low, above, count = _above_group_minimum(reward, group, valid)
    if kind == "mean":
        baseline = low + _group_sum(above, group) / jnp.maximum(count, 1.0)
    elif kind == "leave-one-out":
        others = low + (_group_sum(above, group) - above) / jnp.maximum(count - 1.0, 1.0)
        baseline = jnp.where(count > 1.0, others, reward)
    else:
        near = did_you_mean(kind, BASELINES, f"use one of {', '.join(BASELINES)}")
        raise Mistake(f"Unknown baseline {kind!r}{near}")
    return jnp.where(valid, baseline, 0.0)


def scale_advantages(
    centred: Row,
    reward: Row,
    group: Int[Array, "row"],
    valid: Bool[Array, "row"],
    kind: str,
    *,
    eps: Float[Array, ""] | float = 1e-4,
) -> Row:
    """Divide ``centred`` rewards by a deviation, as the module docstring says for ``kind``."""
    if kind == "none":
        return centred
    if kind == "whiten":
        return whiten(centred, valid, eps)
    if kind not in SCALES:
        near = did_you_mean(kind, SCALES, f"use one of {', '.join(SCALES)}")
        raise Mistake(f"Unknown scale {kind!r}{near}")
    key = group if kind == "group" else jnp.zeros_like(group)
    difference = jnp.where(valid, reward - group_baseline(reward, key, valid, "mean"), 0.0)
    count = _group_sum(valid.astype(reward.dtype), key)
    deviation = jnp.sqrt(_group_sum(jnp.square(difference), key) / jnp.maximum(count - 1.0, 1.0))
    return centred / jnp.where(deviation > 0.0, deviation + eps, 1.0)


def whiten(
    x: Float[Array, "..."], mask: Bool[Array, "..."], eps: Float[Array, ""] | float = 1e-8
) -> Float[Array, "..."]:
    """Return (x - mean) / (std + eps) over the masked entries (unbiased std); 0 outside the mask
    and if all entries are equal. On token returns: REINFORCE++ (Hu 2025, arXiv:2501.03262)."""
    weight = mask.astype(x.dtype)
    count = jnp.sum(weight)
    above = jnp.where(mask, x - jnp.min(jnp.where(mask, x, jnp.inf)), 0.0)
    difference = jnp.where(mask, above - jnp.sum(above) / jnp.maximum(count, 1.0), 0.0)
    deviation = jnp.sqrt(jnp.sum(jnp.square(difference)) / jnp.maximum(count - 1.0, 1.0))
    return difference / jnp.where(deviation > 0.0, deviation + eps, 1.0)


def overlong_penalty(length: Int[Array, "row"], max_length: int, buffer: int) -> Row:
    """Return the penalty of long answers (DAPO; Yu 2025, arXiv:2503.14476, eq. 13), to be added to
    their rewards: 0 up to ``max_length`` - ``buffer`` tokens, then falling linearly to -1 at
    ``max_length``.

    Lengths are in tokens. Raises Mistake unless 0 < ``buffer`` <= ``max_length``.
    """
    if not 0 < buffer <= max_length:
        wrong = f"The overlong buffer must be in 1..{max_length} (the longest answer), not {buffer}"
        raise Mistake(f"{wrong}. Lower it, or leave out the penalty.")
    over = (length - (max_length - buffer)).astype(jnp.float32) / buffer
    return -jnp.clip(over, 0.0, 1.0)


def _group_sum(x: Row, group: Int[Array, "row"]) -> Row:
    """Return for every row the sum of ``x`` over its group."""
    return jax.ops.segment_sum(x, group, x.shape[0])[group]


def _above_group_minimum(
    reward: Row, group: Int[Array, "row"], valid: Bool[Array, "row"]
) -> tuple[Row, Row, Row]:
    """Return the group's minimum reward, each reward minus it, and the number of valid rows.

    Means are computed of the differences, so that equal rewards have exactly their own mean.
    """
    minimum = jax.ops.segment_min(jnp.where(valid, reward, jnp.inf), group, reward.shape[0])[group]
    minimum = jnp.where(valid, minimum, 0.0)
    above = jnp.where(valid, reward - minimum, 0.0)
    return minimum, above, _group_sum(valid.astype(reward.dtype), group)
