"""Action masks as environments give them: by a method, in ``info``, or in the observation.

Workers import this file, so it imports nothing slow.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from gymnasium import spaces

from sterling.envs.hosted.shared_memory import (
    OBSERVATION,
    ContractViolation,
    EnvDescription,
    arrange_leaves,
    space_leaves,
)
from sterling.problem.action_choices import (
    ACTION_MASK,
    choice_sizes,
    describe_empty_choice,
    is_joint_mask,
    mask_size,
    masked_choices,
    without_option,
)
from sterling.problem.agent_axis import ALIVE

# sources of masks as a user writes them
SOURCE_NAMES = {"method": "action_masks()", "info": f'info["{ACTION_MASK}"]'}


def find_mask_source(env: Any, info: dict[str, Any]) -> str:
    """Return where the environment's masks come from: "method", "info" or "" for no mask. Raises
    :class:`ContractViolation` if there is nothing to choose."""
    source = "method" if env.has_wrapper_attr("action_masks") else "info" * (ACTION_MASK in info)
    if source and not mask_size(env.action_space):
        raise ContractViolation(
            f"{SOURCE_NAMES[source]} gives a mask, but its actions are {env.action_space}, without "
            "a choice that a mask could forbid. Leave out the mask"
        )
    return source


def read_mask(kind: str, action: spaces.Space[Any], env: Any, info: dict[str, Any]) -> np.ndarray:
    """Return the environment's current mask, as one row or one axis per choice.

    Raises :class:`ContractViolation` if the mask does not fit ``action``.
    """
    if kind == "info" and ACTION_MASK not in info:
        raise ContractViolation(
            f"info has no {ACTION_MASK!r}, but reset() gave one. Give it at every step"
        )
    given = info[ACTION_MASK] if kind == "info" else env.get_wrapper_attr("action_masks")()
    try:
        mask = lay_out_mask(action, given)
    except ValueError as error:
        raise ContractViolation(
            f"{SOURCE_NAMES[kind]} gave {error}. {_accepted_shapes(action)}"
        ) from error
    shape = mask.shape if isinstance(given, (tuple, dict)) else np.shape(given)
    if not masked_choices(action, shape):
        raise ContractViolation(
            f"{SOURCE_NAMES[kind]} gave a mask of shape {shape}. {_accepted_shapes(action)}"
        )
    check_mask_values(mask, SOURCE_NAMES[kind])
    return mask.astype(np.int8)


def check_mask_values(mask: np.ndarray, source: str) -> None:
    """Raise ContractViolation if the mask from ``source`` holds anything but 0 and 1."""
    if not ((mask == 0) | (mask == 1)).all():
        raise ContractViolation(
            f"{source} gave {mask}. A mask holds only 1 (allowed) and 0 (forbidden)"
        )


def add_mask(description: EnvDescription, env: Any, obs: Any, info: dict[str, Any]) -> Any:
    """Return the observation with the environment's action mask added, if it gives one apart.

    Raises ContractViolation if the mask's shape differs from the first one's, and for a mask where
    the first reset gave none.
    """
    if not description.mask:
        if ACTION_MASK in info and not _has_mask(description.obs):
            raise ContractViolation(
                f"step() gave {SOURCE_NAMES['info']}, but reset() gave none. Give it always"
            )
        return obs
    mask = read_mask(description.mask, description.action, env, info)
    parts: Any = description.obs
    first = parts[ACTION_MASK].shape
    if mask.shape != first:
        said = (
            f"{SOURCE_NAMES[description.mask]} gave a mask of shape {mask.shape}, but the first had"
        )
        raise ContractViolation(f"{said} {first}. Give the same shape at every step")
    return {**({OBSERVATION: obs} if description.wrap else obs), ACTION_MASK: mask}


class OptionCheck:
    """Checks that a mask leaves an option in every choice to whoever must act."""

    def __init__(self, description: EnvDescription):
        space: Any = description.obs
        self._agents = description.agents
        shape = space[ACTION_MASK].shape if _has_mask(space) else None
        # a mask of a shape that does not fit is refused when the world is made
        self._sizes: tuple[int, ...] = ()
        if shape and not self._agents:
            self._sizes = masked_choices(description.action, shape)
        elif shape and len(shape) == 2:
            self._sizes = shape[1:]

    def check(self, obs: Any, step: int) -> None:
        """Raise :class:`ContractViolation` if a choice has no option after ``step`` steps of an
        episode that goes on."""
        if not self._sizes:
            return
        mask = np.asarray(obs[ACTION_MASK])
        check_mask_values(mask, f"observation[{ACTION_MASK!r}]")
        empty = without_option(mask.reshape(-1, sum(self._sizes)), self._sizes)
        if self._agents:
            empty &= np.asarray(obs[ALIVE], bool)[:, None]
        if not empty.any():
            return
        agent, choice = np.argwhere(empty)[0].tolist()
        when = f"after step {step} of an episode" if step else "after reset()"
        whose = f" to agent {self._agents[agent]}" if self._agents else ""
        raise ContractViolation(
            f"{when} {describe_empty_choice(choice, self._sizes)}{whose}. Allow at least one, or "
            "end the episode"
        )


def sample_allowed_action(space: Any, allowed: Any, several: bool) -> Any:
    """Return an action of ``space`` that takes the first option that the mask ``allowed`` leaves
    to each choice (None: a random one); ``several`` agents have one row each."""
    space.seed(0)
    sizes = choice_sizes(space)
    if allowed is None or not (several or masked_choices(space, np.shape(allowed))):
        return space.sample()
    if not several and is_joint_mask(space, np.shape(allowed)):
        chosen = np.argwhere(allowed)[0]
    else:
        parts = np.split(np.ravel(allowed), np.cumsum(sizes)[:-1])
        chosen = np.array([np.argmax(part) for part in parts])
    made, at = [], 0
    for _, leaf in space_leaves(space):
        if not (count := len(choice_sizes(leaf))):
            made.append(leaf.sample())
            continue
        own = chosen[at : at + count].reshape(leaf.shape) + getattr(leaf, "start", 0)
        made.append(own.astype(leaf.dtype)[()])
        at += count
    return arrange_leaves(space, iter(made))


def lay_out_mask(action: spaces.Space[Any], mask: Any) -> np.ndarray:
    """Return a mask with one axis per choice as it is, and any other as one row of all choices.

    Masks of a Dict, a Tuple or several choices may also be given part by part, as gymnasium's
    ``sample(mask)`` takes them. Raises ``ValueError``, which says what it is, for a mask whose
    parts do not fit the action's.
    """
    if isinstance(mask, (tuple, dict)):
        return np.concatenate([np.zeros(0, np.int8), *_part_rows(action, mask)])
    array = _as_array(mask)
    return array if is_joint_mask(action, array.shape) else array.ravel()


def with_laid_out_mask(description: EnvDescription, obs: Any) -> Any:
    """Return an observation whose mask, where the environment gives it apart, is laid out as agents
    see it."""
    if not (description.mask and isinstance(obs, dict) and ACTION_MASK in obs):
        return obs
    mask = lay_out_mask(description.action, obs[ACTION_MASK])
    return {**obs, ACTION_MASK: mask.astype(np.int8)}


def _has_mask(space: Any) -> bool:
    return isinstance(space, spaces.Dict) and ACTION_MASK in space.spaces


def _part_rows(action: Any, mask: Any) -> list[np.ndarray]:
    """Return the rows of a mask that is given part by part; parts without a choice may lack."""
    if isinstance(action, spaces.Dict) and isinstance(mask, dict):
        if unknown := set(mask) - set(action.spaces):
            raise ValueError(f"a part {unknown.pop()!r} that actions do not have")
        parts: Any = [(part, mask.get(name)) for name, part in sorted(action.spaces.items())]
    elif isinstance(action, spaces.Tuple) and isinstance(mask, tuple):
        if len(mask) != len(action.spaces):
            raise ValueError(f"{len(mask)} parts")
        parts = list(zip(action.spaces, mask, strict=True))
    else:
        return [_choice_rows(action, mask)]
    return [row for part, own in parts if mask_size(part) for row in _part_rows(part, own)]


def _choice_rows(action: Any, mask: Any) -> np.ndarray:
    """Return the row of one part's mask, which may have a tuple of one row per choice."""
    if mask is None:
        raise ValueError(f"no mask for {action}")
    if not isinstance(mask, tuple):
        row = _as_array(mask).ravel()
        if len(row) != mask_size(action):
            raise ValueError(f"a mask of shape {np.shape(mask)} for {action}")
        return row
    rows = [_as_array(part).ravel() for part in mask]
    lengths = tuple(len(row) for row in rows)
    if sum(lengths) == mask_size(action) and lengths != choice_sizes(action):
        raise ValueError(f"rows of {lengths} entries for choices among {choice_sizes(action)}")
    return np.concatenate(rows)


def _as_array(mask: Any) -> np.ndarray:
    try:
        return np.asarray(mask)
    except ValueError as error:
        raise ValueError("rows of unequal length") from error


def _accepted_shapes(action: spaces.Space[Any]) -> str:
    row = f"Give one of shape ({mask_size(action)},), all choices in one row"
    if isinstance(action, (spaces.Dict, spaces.Tuple)):
        return f"{row}, or one for each part of the action"
    if not isinstance(action, spaces.MultiDiscrete) or len(action.nvec) < 2:
        return row
    return f"{row}, or of shape {choice_sizes(action)}, one axis per choice"
