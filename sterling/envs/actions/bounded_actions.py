"""Bounds of actions: agents act in [-1, 1], also where a box has open sides that the user ends."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
from gymnasium import spaces
from jaxtyping import Array, Key, PyTree

from sterling.envs.actions.action_bounds import (
    MAX_ACTION_RANGE,
    bounded_space,
    has_open_side,
    is_bounded,
)
from sterling.envs.hosted.shared_memory import space_leaves
from sterling.envs.world_wrappers import Wrapper
from sterling.types import Action, AnyArray, Mistake, Step, World


class RescaleAction(Wrapper):
    """Actions in [-1, 1] for a bounded box: clipped, scaled to its bounds, and rounded if it holds
    integers."""

    def __init__(self, world: World):
        space: Any = world.spec.action
        if not is_bounded(space):
            raise Mistake(f"Only a bounded Box can be rescaled, not {space}.")
        low, high = space.low.astype(np.float32), space.high.astype(np.float32)
        self._middle, self._half = (low + high) / 2.0, (high - low) / 2.0
        self._whole = space.dtype.kind in "iu"
        unit = spaces.Box(-1.0, 1.0, space.shape, np.float32)
        super().__init__(world, dataclasses.replace(world.spec, action=unit))

    def step(
        self, state: PyTree, action: AnyArray, keys: Key[Array, "seed"]
    ) -> tuple[PyTree, Step]:
        """Step with the rescaled action."""
        return self.world.step(state, self._rescale(action), keys)

    def to_world(self, action: Action) -> Action:
        """Convert actions, with any leading axes, to the environment's own units."""
        return super().to_world(self._rescale(action))

    def _rescale(self, action: AnyArray) -> AnyArray:
        xp: Any = np if isinstance(action, np.ndarray) else self._np  # NumPy is quicker to call
        unit = xp.clip(action, -1.0, 1.0).astype(np.float32)
        lead = (1,) * (unit.ndim - self._half.ndim)
        middle, half = (x.reshape(lead + x.shape) for x in (self._middle, self._half))
        made = middle + unit * half
        return xp.rint(made) if self._whole else made  # floats, so that NaN stays NaN


class BoundedActions(Wrapper):
    """Boxes of actions whose open sides end: see ``actions/action_bounds.bounded_space``."""

    def __init__(self, world: World, bound: Any):
        number = isinstance(bound, (int, float)) and not isinstance(bound, bool)
        if not number or not 0.0 < bound <= MAX_ACTION_RANGE / 4:
            most = MAX_ACTION_RANGE / 4
            raise Mistake(f"action_bound must be above 0 and at most {most:,.0f}, not {bound!r}.")
        if not any(has_open_side(leaf) for _, leaf in space_leaves(world.spec.action)):
            raise Mistake(
                f"action_bound has no effect: {world.spec.action} has no open side. Leave it out."
            )
        closed = bounded_space(world.spec.action, float(bound))
        super().__init__(world, dataclasses.replace(world.spec, action=closed))
