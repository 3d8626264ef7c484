"""Masks of allowed actions as environments give them: by a method, or in ``info``.

Those in an observation's own entry are observations like any other. Like ``seat`` this imports
nothing slow.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from gymnasium import spaces

from sterling.envs.board import MASK, Problem, Violation, choices, is_joint

SAID = {"method": "action_masks()", "info": f'info["{MASK}"]'}  # by what the user calls it


def source(env: Any, info: dict[str, Any]) -> str:
    """Where the environment's masks come from, as ``Problem.mask`` says it."""
    if not choices(env.action_space):
        return ""
    return "method" if env.has_wrapper_attr("action_masks") else "info" * (MASK in info)


def read(kind: str, action: spaces.Space[Any], env: Any, info: dict[str, Any]) -> np.ndarray:
    """The mask that an environment with actions of ``action`` gives now, laid out.

    Raises :class:`Violation` for one that cannot be.
    """
    if kind == "info" and MASK not in info:
        raise Violation(f"info has no {MASK!r} though reset() gave one; give it at every step")
    given = info[MASK] if kind == "info" else env.get_wrapper_attr("action_masks")()
    try:
        mask = laid_out(action, given)
        shape = mask.shape if isinstance(given, tuple) else np.shape(given)
    except ValueError as error:
        said = f"{SAID[kind]} gave rows of unequal length"
        raise Violation(f"{said}; {_possible(action)}") from error
    if mask.ndim == 1 and len(mask) != choices(action):
        raise Violation(f"{SAID[kind]} gave a mask of shape {shape}; {_possible(action)}")
    if not ((mask == 0) | (mask == 1)).all():
        raise Violation(f"{SAID[kind]} gave {mask}; a mask holds 1 (allowed) and 0 (not)")
    return mask.astype(np.int8)


def checked(problem: Problem, env: Any, info: dict[str, Any]) -> np.ndarray:
    """The mask that the environment gives now, which must be laid out as its first one was."""
    mask = read(problem.mask, problem.action, env, info)
    parts: Any = problem.obs
    first = parts[MASK].shape
    if mask.shape != first:
        said = f"{SAID[problem.mask]} gave a mask of shape {mask.shape}, the first was one of"
        raise Violation(f"{said} {first}; keep to one form")
    return mask


def laid_out(action: spaces.Space[Any], mask: Any) -> np.ndarray:
    """A mask with an axis per choice as it is, any other as one row of all choices.

    Raises ``ValueError`` for a list of rows of unequal length.
    """
    if isinstance(mask, tuple):  # one mask per part, as gymnasium's sample() takes them
        return np.concatenate([np.ravel(part) for part in mask])
    array = np.asarray(mask)
    return array if is_joint(action, array.shape) else array.ravel()


def _possible(action: spaces.Space[Any]) -> str:
    row = f"give one of shape ({choices(action)},), all choices in one row"
    if not isinstance(action, spaces.MultiDiscrete) or len(action.nvec) < 2:
        return row
    joint = tuple(int(n) for n in action.nvec.ravel())
    return f"{row}, or of shape {joint}, an axis per choice"
