"""The wrapper that turns nested actions, and choices in several axes, into one row for policies."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import numpy as np
from gymnasium import spaces
from jaxtyping import Key, PyTree

from sterling.envs.actions.action_bounds import is_bounded
from sterling.envs.hosted.shared_memory import arrange_leaves, space_leaves
from sterling.envs.world_wrappers import Wrapper
from sterling.problem.action_choices import choice_sizes
from sterling.problem.hybrid_action import HybridAction
from sterling.types import Action, AnyArray, Mistake, Step, World

CHOICES = (spaces.Discrete, spaces.MultiDiscrete, spaces.MultiBinary)


class FlatActions(Wrapper):
    """Act in one row where the environment takes a Dict, a Tuple or choices in several axes.

    Leaves are taken in the order of ``space_leaves``. Only choices become one ``MultiDiscrete``
    (a binary value is a choice of two), only boxes one ``Box``, both a :class:`HybridAction` with
    the choices first. Numbers of bounded boxes are rescaled from [-1, 1], as outside of a Dict.
    Raises ``Mistake`` for leaves of other kinds.
    """

    def __init__(self, world: World):
        leaves = space_leaves(world.spec.action)
        self._parts = [_Part(path, leaf) for path, leaf in leaves]
        choices = [size for part in self._parts for size in part.choices]
        boxes = [part for part in self._parts if part.is_box]
        low, high = (
            np.concatenate([np.zeros(0, np.float32), *(getattr(part, end) for part in boxes)])
            for end in ("low", "high")
        )
        if not boxes:
            space: Any = spaces.MultiDiscrete(choices)
        elif not choices:
            space = spaces.Box(low, high, dtype=np.float32)
        else:
            space = HybridAction(tuple(choices), low, high)
        self._first_number = len(choices)
        super().__init__(world, dataclasses.replace(world.spec, action=space))

    def step(self, state: PyTree, action: AnyArray, keys: Key[Any, "seed"]) -> tuple[PyTree, Step]:
        """Step with the nested action."""
        return self.world.step(state, self._nested(action), keys)

    def to_world(self, action: Action) -> Action:
        """Convert actions, with any leading axes, to the environment's own."""
        return super().to_world(self._nested(action))

    def _nested(self, action: AnyArray) -> Action:
        """Return the leaves of rows of actions, in the structure of the environment's space."""
        choice, number, made = 0, self._first_number, []
        for part in self._parts:
            start = number if part.is_box else choice
            made.append(part.leaf(action[..., start : start + part.size], self._np))
            choice, number = (
                (choice, start + part.size) if part.is_box else (start + part.size, number)
            )
        return arrange_leaves(self.world.spec.action, iter(made))


class _Part:
    """One leaf of an action space: where its numbers come from a row, and their form."""

    def __init__(self, path: tuple[Any, ...], space: Any):
        supported = isinstance(space, (*CHOICES, spaces.Box))
        if not supported:
            where = "".join(f"[{key!r}]" for key in path)
            raise Mistake(
                f"the action{where} is a {type(space).__name__}, which no policy supports. "
                "Use Discrete, MultiDiscrete, MultiBinary or Box."
            )
        self.is_box, self.choices = isinstance(space, spaces.Box), choice_sizes(space)
        self._shape = tuple(space.shape or ())
        self.size = math.prod(self._shape)
        self.low, self.high = np.full(self.size, -np.inf, "f4"), np.full(self.size, np.inf, "f4")
        self._scaled = self.is_box and is_bounded(space)
        if self._scaled:
            low, high = (np.ravel(end).astype(np.float32) for end in (space.low, space.high))
            self._middle, self._half = (low + high) / 2.0, (high - low) / 2.0
            self.low, self.high = -np.ones(self.size, "f4"), np.ones(self.size, "f4")
        elif self.is_box:
            self.low, self.high = (np.ravel(end).astype("f4") for end in (space.low, space.high))

    def leaf(self, row: AnyArray, xp: Any) -> AnyArray:
        """Return the leaf that a row's numbers stand for; any leading axes."""
        if not self.is_box:
            row = row.astype(np.int32)
        elif self._scaled:
            lead = (1,) * (row.ndim - 1)
            middle, half = (x.reshape(*lead, -1) for x in (self._middle, self._half))
            row = middle + xp.clip(row, -1.0, 1.0).astype(np.float32) * half
        return row.reshape(*row.shape[:-1], *self._shape)


def needs_flat_actions(space: Any) -> bool:
    """Whether policies need a world's actions as one row."""
    several = isinstance(space, (spaces.MultiDiscrete, spaces.MultiBinary)) and len(space.shape) > 1
    return several or isinstance(space, (spaces.Dict, spaces.Tuple))
