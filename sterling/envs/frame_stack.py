"""Several observations as one, so that a policy without a memory sees what moves."""

from __future__ import annotations

import dataclasses

import equinox as eqx
import numpy as np
from gymnasium import spaces
from jaxtyping import Array, Bool, Key, PyTree

from sterling.envs.starts import Start
from sterling.envs.wrappers import Wrapper
from sterling.types import Action, AnyArray, Mistake, Obs, Step, World


class StackState(eqx.Module):
    """The inner world's state, and the frames now seen."""

    world: PyTree
    frames: AnyArray


class FrameStack(Wrapper):
    """The last ``depth`` observations, joined along their first axis, the newest last.

    An episode's first observation is repeated. For boxes: ``(1, 84, 84)`` becomes
    ``(depth, 84, 84)``, a vector of n numbers one of ``depth * n``.
    """

    def __init__(self, world: World, depth: int):
        space = world.spec.obs
        if not isinstance(space, spaces.Box) or not space.shape or world.spec.agents:
            what = "several agents" if world.spec.agents else space
            raise Mistake(f"frames of {what} cannot be stacked; stack=1, or observe a Box")
        if len(space.shape) == 3 and space.shape[2] < space.shape[0]:
            raise Mistake(
                f"pictures of shape {space.shape} have their channels last and cannot be stacked; "
                "use stack=1, or channels first"
            )
        if depth < 1 or getattr(world, "stack", 1) > 1:
            raise Mistake(
                f"a stack of {depth} frames on {getattr(world, 'stack', 1)} is not possible"
            )
        self._depth, self._each = depth, space.shape[0]
        low, high = (np.concatenate([bound] * depth) for bound in (space.low, space.high))
        stacked = spaces.Box(low, high, dtype=space.dtype.type)
        super().__init__(world, dataclasses.replace(world.spec, obs=stacked), depth)

    def reset(self, keys: Key[Array, "seed"]) -> tuple[StackState, Obs]:
        """Start every episode with its first frame repeated."""
        state, obs = self.world.reset(keys)
        frames = self._repeat(obs)
        return StackState(state, frames), frames

    def step(
        self, state: StackState, action: Action, keys: Key[Array, "seed"]
    ) -> tuple[StackState, Step]:
        """Push a frame, or begin a new stack where the inner world has reset."""
        inner, step = self.world.step(state.world, action, keys)
        pushed = self._numpy.concatenate([state.frames[:, :, self._each :], step.obs], 2)
        mask = step.mask.reshape(step.mask.shape + (1,) * (pushed.ndim - 2))
        frames = self._numpy.where(mask, pushed, self._repeat(step.obs))
        return StackState(inner, frames), dataclasses.replace(step, obs=frames)

    def assign(
        self, state: StackState, start: Start, given: Bool[Array, "seed env"], now: bool = False
    ) -> StackState:
        """Tell the inner world."""
        return StackState(super().assign(state.world, start, given, now), state.frames)

    def here(self, state: PyTree, obs: Obs) -> Start:
        """Raises Mistake: what was seen before would be lost."""
        raise Mistake("a world whose frames are stacked cannot be returned to; use stack=1")

    def _repeat(self, obs: AnyArray) -> AnyArray:
        return self._numpy.concatenate([obs] * self._depth, 2)
