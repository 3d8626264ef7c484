"""The wrapper that flattens action masks to one row of all choices, the form that policies read."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import numpy as np
from gymnasium import spaces
from jaxtyping import Array, Int, Key, PyTree

from sterling.envs.episode_starts import Start
from sterling.envs.world_wrappers import Wrapper
from sterling.problem.action_choices import (
    ACTION_MASK,
    choice_sizes,
    is_joint_mask,
    mask_size,
    masked_choices,
)
from sterling.types import Action, AnyArray, Mistake, Obs, Spec, Step, World


class FlattenActionMask(Wrapper):
    """Flatten ``action_mask``; choices that are allowed only in combination become one choice.

    A mask with one row per choice is flattened to one row. A mask with one axis per choice says
    which *combinations* are allowed, which independent choices cannot express: the action becomes
    ``Discrete`` over all combinations, the last choice varying fastest. Where the sizes fit both
    readings, the mask is read as combinations. Raises ``Mistake`` for a mask that fits neither, and
    for several agents' masks of another shape than one row of choices per agent.
    """

    def __init__(self, world: World):
        space: Any = world.spec.obs
        action: Any = world.spec.action
        shape = space[ACTION_MASK].shape  # None if it has parts
        if shape is None or world.spec.agents or not masked_choices(action, shape):
            raise Mistake(describe_misfit(world.spec))
        joint = is_joint_mask(action, shape)
        self._sizes = choice_sizes(action) if joint else ()
        self._axes = len(shape)
        row = spaces.MultiBinary(math.prod(shape))
        spec = dataclasses.replace(
            world.spec,
            obs=spaces.Dict({**space.spaces, ACTION_MASK: row}),
            action=spaces.Discrete(math.prod(self._sizes)) if joint else action,
        )
        super().__init__(world, spec)
        self.joint = joint  # whether one action stands for a combination of choices

    def reset(self, keys: Key[Array, "seed"]) -> tuple[PyTree, Obs]:
        """Start every episode anew."""
        state, obs = self.world.reset(keys)
        return state, self._flatten_mask(obs)

    def step(
        self, state: PyTree, action: AnyArray, keys: Key[Array, "seed"]
    ) -> tuple[PyTree, Step]:
        """Step with the choices that each action stands for."""
        state, step = self.world.step(state, self._split_choices(action), keys)
        return state, dataclasses.replace(step, obs=self._flatten_mask(step.obs))

    def current_start(self, state: PyTree, obs: Any) -> Start:
        """Return the inner world's current start; the mask gets its original shape back."""
        space: Any = self.world.spec.obs
        mask = obs[ACTION_MASK].reshape(*obs[ACTION_MASK].shape[:2], *space[ACTION_MASK].shape)
        return super().current_start(
            state, {**obs, ACTION_MASK: mask.astype(space[ACTION_MASK].dtype)}
        )

    def to_world(self, action: Action) -> Action:
        """Convert an agent's actions to the environment's own, one number per choice."""
        return super().to_world(self._split_choices(action))

    def to_agent(self, obs: Obs) -> Obs:
        """Return the observation with its mask flattened; any leading axes."""
        return self._flatten_mask(super().to_agent(obs))

    def _flatten_mask(self, obs: Any) -> Obs:
        mask = obs[ACTION_MASK]
        lead = mask.shape[: mask.ndim - self._axes]
        return {**obs, ACTION_MASK: mask.reshape(*lead, -1).astype(np.int8)}

    def _split_choices(self, action: AnyArray) -> Int[AnyArray, "... choice"]:
        """Split the index of a combination into its choices."""
        if not self._sizes:
            return action
        parts: list[Any] = []
        for size in reversed(self._sizes):
            parts.append(action % size)
            action = action // size
        return self._np.stack(parts[::-1], -1)


def has_unsupported_mask(spec: Spec) -> bool:
    """Whether the action mask's shape is not ``(number of options,)``, for each agent if there are
    several."""
    if not (isinstance(spec.obs, spaces.Dict) and ACTION_MASK in spec.obs.spaces):
        return False
    return spec.obs[ACTION_MASK].shape != _row_shape(spec) or not mask_size(spec.action)


def _row_shape(spec: Spec) -> tuple[int, ...]:
    """Return the shape of a mask as policies read it."""
    size = mask_size(spec.action)
    return (size,) if spec.agents is None else (len(spec.agents), size // len(spec.agents))


def describe_misfit(spec: Spec) -> str:
    """Say why an observed mask does not fit the action space, and which would."""
    mask: Any = spec.obs
    shape = mask[ACTION_MASK].shape
    what = f"of shape {shape}" if shape is not None else f"in {mask[ACTION_MASK]}"
    said = f"An action_mask {what} does not fit the action space {spec.action}."
    if not mask_size(spec.action):
        return f"{said} That has no choices: leave out action_mask."
    return f"{said} Give one of shape {_row_shape(spec)}"
