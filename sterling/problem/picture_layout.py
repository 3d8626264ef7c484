"""The rule that decides which observations are pictures, and what their axes mean.

A ``Box`` is a picture if it has

* three axes: two sides and the channels, first or last. Only the axis of channels may be shorter
  than 3. Floats with a side shorter than 8 are a matrix instead, unless they are bounded to 0..1
  or 0..255.
* two axes: a grey picture, if its numbers are bytes (uint8, or bounded to 0..255) and no side is
  shorter than 8.
* four axes: a stack of at most 16 pictures, the stack first, if its numbers are bytes or bounded
  to 0..1 and the other three axes are a picture. The stack axis is merged into the channels.

Everything else is a vector. If two neighbouring axes are equal, they are the sides and the third
axis holds the channels: (8, 8, 20) has 20. Otherwise channels come first if the first axis is
shorter than the last: (3, 210, 160) and (210, 160, 3) have 3, and (5, 4, 26) is read as 5 channels
of 4 x 26. Transpose observations for which this guess is wrong.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from gymnasium import spaces

SHORTEST_SIDE = 3  # of a picture
SHORTEST_CLEAR_SIDE = 8  # from which floats without the bounds of pixels are a picture
LONGEST_STACK = 16  # pictures


class PictureLayout(NamedTuple):
    """The sides and channels of a picture, and the order of its axes: a letter each, ``s`` for the
    stack, ``h``, ``w`` and ``c``."""

    height: int
    width: int
    channels: int
    order: str

    @property
    def sides_text(self) -> str:
        """Return height, width and channels as text, "84x84x4"."""
        return f"{self.height}x{self.width}x{self.channels}"


def picture_layout(space: spaces.Space[Any], *, by_shape: bool = False) -> PictureLayout | None:
    """Return the layout of a picture; None if ``space`` is not one. ``by_shape``: whatever its
    numbers are, for users who say that it is one."""
    if not isinstance(space, spaces.Box) or not 2 <= len(space.shape) <= 4:
        return None
    shape = tuple(int(side) for side in space.shape)
    if len(shape) == 2:
        fits = min(shape) >= (SHORTEST_SIDE if by_shape else SHORTEST_CLEAR_SIDE)
        return PictureLayout(*shape, 1, "hw") if fits and (by_shape or _is_bytes(space)) else None
    if len(shape) == 4 and (
        shape[0] > LONGEST_STACK or not (by_shape or _is_bytes(space) or _is_within(space, 1.0))
    ):
        return None
    layout = _three_axes(shape[-3:])
    if layout is None or (len(shape) == 3 and not by_shape and _is_matrix(space, layout)):
        return None
    if len(shape) == 3:
        return layout
    return layout._replace(channels=shape[0] * layout.channels, order=f"s{layout.order}")


def all_leaf_spaces(space: spaces.Space[Any]) -> list[spaces.Space[Any]]:
    """Return all leaves of a space, in the order of ``jax.tree.leaves``."""
    if isinstance(space, spaces.Dict):
        return [leaf for name in sorted(space) for leaf in all_leaf_spaces(space[name])]
    if isinstance(space, spaces.Tuple):
        return [leaf for part in space for leaf in all_leaf_spaces(part)]
    return [space]


def channels_first(shape: tuple[int, ...]) -> bool:
    """Whether the first of three axes holds the channels, by the rule above."""
    first, middle, last = shape
    if (first == middle) != (middle == last):
        return middle == last
    return first < last


def _three_axes(shape: tuple[int, ...]) -> PictureLayout | None:
    if not min(shape) > 0 or max(min(shape[1:]), min(shape[:2])) < SHORTEST_SIDE:
        return None
    first, middle, last = shape
    if channels_first(shape):
        return PictureLayout(middle, last, first, "chw")
    return PictureLayout(first, middle, last, "hwc")


def _is_matrix(space: spaces.Box, layout: PictureLayout) -> bool:
    """Whether three axes of floats are a small matrix without the bounds of pixels."""
    small = min(layout.height, layout.width) < SHORTEST_CLEAR_SIDE
    floats = np.issubdtype(space.dtype, np.floating)
    return bool(small and floats and not _is_within(space, 1.0) and not _is_within(space, 255.0))


def _is_bytes(space: spaces.Box) -> bool:
    return space.dtype == np.uint8 or _is_within(space, 255.0)


def _is_within(space: spaces.Box, high: float) -> bool:
    """Whether the bounds are 0 and ``high``."""
    return bool(np.all(space.low == 0.0) and np.all(space.high == high))
