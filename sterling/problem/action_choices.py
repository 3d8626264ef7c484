"""The discrete choices of an action space, and the forms of masks that say what each may choose.

A mask has one entry per option of every choice, all in one row, in the order of the space's leaves
(``jax.tree.leaves``); numbers of a Box have none. Or it has one axis per choice, and says which
*combinations* are allowed. Workers import this file, so it imports nothing slow.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from gymnasium import spaces

from sterling.problem.hybrid_action import HybridAction
from sterling.problem.picture_layout import all_leaf_spaces

ACTION_MASK = "action_mask"  # entry of a dict observation: which actions are allowed


def choice_sizes(space: Any) -> tuple[int, ...]:
    """Return the number of options of every choice of an action space; () for a Box."""
    if isinstance(space, spaces.Discrete):
        return (int(space.n),)
    if isinstance(space, spaces.MultiDiscrete):
        return tuple(int(n) for n in space.nvec.ravel())
    if isinstance(space, spaces.MultiBinary):
        return (2,) * math.prod(space.shape)
    if isinstance(space, (spaces.Dict, spaces.Tuple)):
        return tuple(size for leaf in all_leaf_spaces(space) for size in choice_sizes(leaf))
    return space.choices if isinstance(space, HybridAction) else ()


def mask_size(space: Any) -> int:
    """Return the number of entries of an action mask: the options of all choices together."""
    return sum(choice_sizes(space))


def is_joint_mask(space: Any, shape: tuple[int, ...]) -> bool:
    """Whether a mask of this shape has one axis per choice, so that it allows combinations of
    choices. Never for a Discrete or MultiBinary, nor beside numbers of a Box."""
    if len(shape) < 2 or isinstance(space, (spaces.Discrete, spaces.MultiBinary)):
        return False
    has_numbers = any(isinstance(leaf, spaces.Box) for leaf in all_leaf_spaces(space))
    return not has_numbers and choice_sizes(space) == shape


def is_row_mask(space: Any, shape: tuple[int, ...]) -> bool:
    """Whether a mask of this shape has one entry per option: in one row, or of several choices
    among equally many options one row each; of a single choice in any shape."""
    sizes = choice_sizes(space)
    if not sizes or math.prod(shape) != sum(sizes):
        return False
    axes = [length for length in shape if length != 1]
    return len(sizes) == 1 or len(axes) < 2 or set(sizes) == {axes[-1]}


def masked_choices(space: Any, shape: tuple[int, ...]) -> tuple[int, ...]:
    """Return the sizes of the choices that a mask of this shape is about: a mask of combinations
    is about one choice; () if the mask does not fit the action space."""
    if is_joint_mask(space, shape):
        return (math.prod(shape),)
    return choice_sizes(space) if is_row_mask(space, shape) else ()


def without_option(mask: Any, sizes: tuple[int, ...]) -> np.ndarray:
    """Return ``(..., choice)``: whether a mask ``(..., options)`` leaves a choice no option."""
    starts = np.cumsum((0, *sizes[:-1]))
    return ~np.logical_or.reduceat(np.asarray(mask, bool), starts, -1)


def describe_empty_choice(choice: int, sizes: tuple[int, ...]) -> str:
    """Say what a mask does that leaves the choice with this index without an option."""
    if len(sizes) == 1:
        return "the action mask allows no action"
    return f"the action mask leaves choice {choice + 1} of {len(sizes)} without an option"
