"""A wrapper that stacks the last observations, so that a policy without memory sees motion."""

from __future__ import annotations

import dataclasses

import equinox as eqx
import numpy as np
from gymnasium import spaces
from jaxtyping import Array, Bool, Key, PyTree

from sterling.envs.episode_starts import Start
from sterling.envs.world_wrappers import Wrapper
from sterling.problem.picture_layout import picture_layout
from sterling.types import Action, AnyArray, Mistake, Obs, Step, World


class StackState(eqx.Module):
    """The inner world's state, and the stacked frames."""

    world: PyTree
    frames: AnyArray


class FrameStack(Wrapper):
    """Observe the last ``depth`` observations, joined along their first axis, the newest last.

    An episode begins with its first observation repeated. Only for boxes: ``(1, 84, 84)`` becomes
    ``(depth, 84, 84)``, and a vector of n numbers becomes one of ``depth * n``. Pictures whose
    first axis is a side get a new first axis: ``(84, 84)`` becomes ``(depth, 84, 84)``, and
    ``(84, 84, 3)`` becomes ``(depth, 84, 84, 3)``.
    """

    def __init__(self, world: World, depth: int):
        space = world.spec.obs
        if not isinstance(space, spaces.Box) or not space.shape or world.spec.agents:
            what = "several agents" if world.spec.agents else space
            raise Mistake(
                f"Observations of {what} cannot be stacked. Use stack=1, or observe a Box."
            )
        if depth < 1 or getattr(world, "stack", 1) > 1:
            raise Mistake(
                f"Cannot stack {depth} frames of a world that stacks {getattr(world, 'stack', 1)}. "
                "Stack a world without stacked frames, at least 1 deep."
            )
        layout = picture_layout(space)
        self._adds_axis = layout is not None and layout.order.startswith("h")
        self._depth, self._each = depth, 1 if self._adds_axis else space.shape[0]
        join = np.stack if self._adds_axis else np.concatenate
        low, high = (join([bound] * depth) for bound in (space.low, space.high))
        stacked = spaces.Box(low, high, dtype=space.dtype.type)
        super().__init__(world, dataclasses.replace(world.spec, obs=stacked), depth)

    def reset(self, keys: Key[Array, "seed"]) -> tuple[StackState, Obs]:
        """Start every episode with its first observation repeated."""
        state, obs = self.world.reset(keys)
        frames = self._repeat(obs)
        return StackState(state, frames), frames

    def step(
        self, state: StackState, action: Action, keys: Key[Array, "seed"]
    ) -> tuple[StackState, Step]:
        """Append the newest frame, or begin a new stack where the inner world has reset."""
        inner, step = self.world.step(state.world, action, keys)
        newest = step.obs[:, :, None] if self._adds_axis else step.obs
        pushed = self._np.concatenate([state.frames[:, :, self._each :], newest], 2)
        mask = step.mask.reshape(step.mask.shape + (1,) * (pushed.ndim - 2))
        frames = self._np.where(mask, pushed, self._repeat(step.obs))
        return StackState(inner, frames), dataclasses.replace(step, obs=frames)

    def assign_start(
        self, state: StackState, start: Start, given: Bool[Array, "seed env"], now: bool = False
    ) -> StackState:
        """Tell the inner world where episodes begin."""
        return StackState(super().assign_start(state.world, start, given, now), state.frames)

    def current_start(self, state: PyTree, obs: Obs) -> Start:
        """Raise Mistake: the earlier frames of the stack would be lost."""
        raise Mistake("A world with stacked frames cannot return to an earlier state. Use stack=1.")

    def _repeat(self, obs: AnyArray) -> AnyArray:
        join = self._np.stack if self._adds_axis else self._np.concatenate
        return join([obs] * self._depth, 2)
