"""Check the action masks of a log: choices without an option, and actions that they forbid."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool

from sterling.data import space_json
from sterling.data.dataset import Dataset
from sterling.data.episode_columns import Block
from sterling.data.quality.block_checks import first_bad_steps
from sterling.data.quality.dataset_findings import DROP_STEPS, Finding
from sterling.problem.action_choices import (
    choice_sizes,
    describe_empty_choice,
    is_joint_mask,
    masked_choices,
    without_option,
)

MASK_COLUMN = "obs/action_mask"


class MaskFaults(NamedTuple):
    """What is wrong with the masks under which a block's actions were taken."""

    sizes: tuple[int, ...]  # the numbers of options of the choices
    empty: Bool[np.ndarray, "row choice"]  # the choices without an option
    forbidden: Bool[np.ndarray, "row"]  # the actions that their own masks forbid


def find_mask_faults(dataset: Dataset, block: Block, before: int) -> Iterator[Finding]:
    """Find masks that leave a choice without an option where an action was taken, and actions that
    their own masks forbid."""
    faults = mask_faults(dataset, block)
    if faults is None:
        return
    for episode, step, count in first_bad_steps(block, "action", np.asarray(faults.empty.any(1))):
        choice = int(np.argmax(faults.empty[block.begins[episode] + step]))
        said = describe_empty_choice(choice, faults.sizes)
        message = f"{said} ({count} of its masks); there all options count as allowed"
        yield Finding("warning", "mask", message, before + episode, step)
    for episode, step, count in first_bad_steps(block, "action", faults.forbidden):
        message = f"its own action mask forbids the action ({count} of its actions)"
        yield Finding("error", "mask", message, before + episode, step, DROP_STEPS)


def mask_faults(dataset: Dataset, block: Block) -> MaskFaults | None:
    """Return the faults of a block's masks; None if it has none, or they do not fit the actions."""
    mask, space = block.arrays.get(MASK_COLUMN), dataset.action_space
    chosen = _chosen_options(dataset, block)
    sizes = () if mask is None else masked_choices(space, mask.shape[1:])
    if mask is None or not sizes or chosen.shape[1] != len(choice_sizes(space)):
        return None
    final = np.cumsum(block.lengths + 1) - 1  # after these observations nobody acts
    allowed = np.delete(mask.reshape(len(mask), -1), final, 0).astype(bool)
    sides = choice_sizes(space)
    inside = (chosen >= 0) & (chosen < sides)  # other actions lie outside their space
    chosen = np.where(inside, chosen, 0)
    if is_joint_mask(space, mask.shape[1:]):
        chosen = np.ravel_multi_index(tuple(chosen.T), sides)[:, None]
        inside = np.asarray(inside.all(1, keepdims=True))
    empty = without_option(allowed, sizes)
    entries = np.cumsum((0, *sizes[:-1])) + chosen
    taken = np.take_along_axis(allowed, entries, 1)
    return MaskFaults(sizes, empty, np.asarray((inside & ~empty & ~taken).any(1)))


def _chosen_options(dataset: Dataset, block: Block) -> np.ndarray:
    """Return the option of every choice, counted from 0, ``(row, choice)``."""
    parts = [
        (block.arrays[name] - getattr(part, "start", 0)).reshape(block.rows, -1).astype(np.int64)
        for name, part in space_json.column_spaces("action", dataset.action_space).items()
        if choice_sizes(part) and block.arrays[name].dtype.kind in "iub"
    ]
    return np.concatenate([np.zeros((block.rows, 0), np.int64), *parts], 1)
