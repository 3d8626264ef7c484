"""Action masks as environments give them: by a method, or in ``info``.

A mask that is already an entry of the observation is handled as any other observation. Workers
import this file, so it imports nothing slow.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from gymnasium import spaces

from sterling.envs.hosted.shared_memory import (
    ACTION_MASK,
    ContractViolation,
    EnvDescription,
    is_joint_mask,
    mask_size,
)

# sources of masks as a user writes them
SOURCE_NAMES = {"method": "action_masks()", "info": f'info["{ACTION_MASK}"]'}


def find_mask_source(env: Any, info: dict[str, Any]) -> str:
    """Return where the environment's masks come from: "method", "info" or "" for no mask."""
    if not mask_size(env.action_space):
        return ""
    return "method" if env.has_wrapper_attr("action_masks") else "info" * (ACTION_MASK in info)


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
        shape = mask.shape if isinstance(given, tuple) else np.shape(given)
    except ValueError as error:
        said = f"{SOURCE_NAMES[kind]} gave rows of unequal length"
        raise ContractViolation(f"{said}. {_accepted_shapes(action)}") from error
    if mask.ndim == 1 and len(mask) != mask_size(action):
        raise ContractViolation(
            f"{SOURCE_NAMES[kind]} gave a mask of shape {shape}. {_accepted_shapes(action)}"
        )
    if not ((mask == 0) | (mask == 1)).all():
        raise ContractViolation(
            f"{SOURCE_NAMES[kind]} gave {mask}. A mask holds only 1 (allowed) and 0 (forbidden)"
        )
    return mask.astype(np.int8)


def read_consistent_mask(description: EnvDescription, env: Any, info: dict[str, Any]) -> np.ndarray:
    """Return the environment's current mask; raise ContractViolation if its shape differs from the
    first one's."""
    mask = read_mask(description.mask, description.action, env, info)
    parts: Any = description.obs
    first = parts[ACTION_MASK].shape
    if mask.shape != first:
        said = (
            f"{SOURCE_NAMES[description.mask]} gave a mask of shape {mask.shape}, but the first had"
        )
        raise ContractViolation(f"{said} {first}. Give the same shape at every step")
    return mask


def lay_out_mask(action: spaces.Space[Any], mask: Any) -> np.ndarray:
    """Return a mask with one axis per choice as it is, and any other as one row of all choices.

    Raises ``ValueError`` for rows of unequal length.
    """
    if isinstance(mask, tuple):  # one mask per part, the form of gymnasium's sample()
        return np.concatenate([np.ravel(part) for part in mask])
    array = np.asarray(mask)
    return array if is_joint_mask(action, array.shape) else array.ravel()


def with_laid_out_mask(description: EnvDescription, obs: Any) -> Any:
    """Return an observation whose mask, where the environment gives it apart, is laid out as agents
    see it."""
    if not (description.mask and isinstance(obs, dict) and ACTION_MASK in obs):
        return obs
    mask = lay_out_mask(description.action, obs[ACTION_MASK])
    return {**obs, ACTION_MASK: mask.astype(np.int8)}


def _accepted_shapes(action: spaces.Space[Any]) -> str:
    row = f"Give one of shape ({mask_size(action)},), all choices in one row"
    if not isinstance(action, spaces.MultiDiscrete) or len(action.nvec) < 2:
        return row
    joint = tuple(int(n) for n in action.nvec.ravel())
    return f"{row}, or of shape {joint}, one axis per choice"
