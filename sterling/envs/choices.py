"""Masks of allowed actions in the one form that policies read: a row of all choices."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import numpy as np
from gymnasium import spaces
from jaxtyping import Array, Int, Key, PyTree

from sterling.envs.board import MASK, choices, is_joint
from sterling.envs.starts import Start
from sterling.envs.wrappers import Wrapper
from sterling.types import Action, AnyArray, Mistake, Obs, Spec, Step, World


class MaskedChoices(Wrapper):
    """Flattens ``action_mask``; choices that are only allowed together become one choice.

    A mask of one row per choice is laid out as one row. One of an axis per choice (which of the
    shapes, turned how, in which column) says which *combinations* are allowed, which independent
    choices could not keep to: the action becomes ``Discrete`` over all combinations, the last
    choice running fastest. Where the sizes would allow both readings, combinations are meant.
    Raises ``Mistake`` for a mask that fits neither.
    """

    def __init__(self, world: World):
        space: Any = world.spec.obs
        action: Any = world.spec.action
        mask = space[MASK]
        joint = is_joint(action, mask.shape)
        self._sizes = tuple(int(n) for n in action.nvec) if joint else ()
        self._axes = len(mask.shape)
        if not joint and math.prod(mask.shape) != choices(action):
            raise Mistake(
                f"an action_mask of shape {mask.shape} does not fit actions of {action}: "
                f"give one of shape ({choices(action)},)"
            )
        row = spaces.MultiBinary(math.prod(mask.shape))
        spec = dataclasses.replace(
            world.spec,
            obs=spaces.Dict({**space.spaces, MASK: row}),
            action=spaces.Discrete(math.prod(self._sizes)) if joint else action,
        )
        super().__init__(world, spec)
        self.joint = joint  # one action stands for several choices

    def reset(self, keys: Key[Array, "seed"]) -> tuple[PyTree, Obs]:
        """Start every episode anew."""
        state, obs = self.world.reset(keys)
        return state, self._flat(obs)

    def step(
        self, state: PyTree, action: AnyArray, keys: Key[Array, "seed"]
    ) -> tuple[PyTree, Step]:
        """Step with the choices that the action stands for."""
        state, step = self.world.step(state, self._apart(action), keys)
        return state, dataclasses.replace(step, obs=self._flat(step.obs))

    def here(self, state: PyTree, obs: Any) -> Start:
        """Where the inner world is, which shows the mask in its own shape."""
        space: Any = self.world.spec.obs
        mask = obs[MASK].reshape(*obs[MASK].shape[:2], *space[MASK].shape)
        return super().here(state, {**obs, MASK: mask.astype(space[MASK].dtype)})

    def to_world(self, action: Action) -> Action:
        """The choices one by one."""
        return super().to_world(self._apart(action))

    def to_agent(self, obs: Obs) -> Obs:
        """With the mask in one row; leading axes are free."""
        return self._flat(super().to_agent(obs))

    def _flat(self, obs: Any) -> Obs:
        mask = obs[MASK]
        lead = mask.shape[: mask.ndim - self._axes]
        return {**obs, MASK: mask.reshape(*lead, -1).astype(np.int8)}

    def _apart(self, action: AnyArray) -> Int[AnyArray, "... choice"]:
        """A combination's number as its choices."""
        if not self._sizes:
            return action
        parts: list[Any] = []
        for size in reversed(self._sizes):
            parts.append(action % size)
            action = action // size
        return self._numpy.stack(parts[::-1], -1)


def is_unlike_a_row(spec: Spec) -> bool:
    """Whether a world has a mask in another form than a row of all choices."""
    if not (isinstance(spec.obs, spaces.Dict) and MASK in spec.obs.spaces) or spec.agents:
        return False  # of several agents each has a row
    return spec.obs[MASK].shape != (choices(spec.action),)
