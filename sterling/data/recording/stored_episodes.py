"""Convert rows of experience to stored episodes, with actions in the environment's own units."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
from gymnasium.spaces import Box
from jaxtyping import Bool, Int

from sterling.data import recorded_actions, space_json
from sterling.data.episode_columns import Arrays, Block
from sterling.data.space_json import Space
from sterling.types import Action, Record, World


def stored_action_space(world: World) -> Space:
    """Return the action space of the environment inside all wrappers. Discrete actions that a joint
    mask combines into one number stay one number."""
    inner = _innermost_world(world)
    return getattr(inner, "action_space", inner.spec.action)


def _innermost_world(world: World) -> Any:
    inner: Any = world
    while hasattr(inner, "world") and not getattr(inner, "joint", False):
        inner = inner.world
    return inner


def _executed_action(world: World, chosen: Action) -> Action:
    """Return actions as the environment executed them: in its units, and clipped if it clips."""
    to_world = getattr(world, "to_world", None)
    if to_world is None or getattr(_innermost_world(world), "joint", False):
        return chosen
    return jax.tree.map(np.asarray, to_world(chosen))


def _may_be_clipped(space: Space) -> bool:
    """Whether the executed action may differ from the sampled one, by clipping or rounding."""
    if not isinstance(space, Box):
        return False
    known = np.isfinite(space.low).any() or np.isfinite(space.high).any()
    return space_json.is_integer(space) or bool(known)


def rows_to_block(
    rows: Record, world: World, quota: int, source: int, *, newest: bool = False
) -> Block:
    """Convert rows ``(time, env, ...)``, in order of time, to episodes, one env after another.

    Rows with mask False are not experience; an episode before such a row is truncated there. The
    first ``quota`` valid rows are kept, or the ``newest``; episodes that this splits count as
    truncated. ``source`` is the index of their source. Channels of the world are columns
    ``extra/NAME``, as far as the rows have them. ``log_prob`` belongs to actions before clipping;
    if the environment clips, these are stored too: see ``sterling/data/recorded_actions.py``.
    """
    envs = rows.mask.shape[1]
    valid = np.flatnonzero(np.asarray(rows.mask))
    valid = valid[max(len(valid) - quota, 0) :] if newest else valid[:quota]
    time, env = np.divmod(valid, envs)
    order = np.argsort(env, kind="stable")
    time, env = time[order], env[order]
    length = _episode_lengths(rows, time, env)
    arrays = _row_columns(rows, world, time, env)
    ends = np.cumsum(length)
    for name, (now, then) in _observation_pairs(rows, world).items():
        arrays[name] = _append_last(now[time, env], then[time, env], ends)
    return Block(arrays, length.astype(np.int64), np.full(len(length), source, np.int32))


def _append_last(now: np.ndarray, then: np.ndarray, ends: np.ndarray) -> np.ndarray:
    """Return the observation of every row, and after each episode's last row its successor."""
    return np.insert(now, ends, then[ends - 1], axis=0)


def _episode_lengths(
    rows: Record, time: Int[np.ndarray, "row"], env: Int[np.ndarray, "row"]
) -> Int[np.ndarray, "episode"]:
    """Return the length of each episode, for rows in their stored order."""
    over: Bool[np.ndarray, "time env"] = np.asarray(rows.last) | ~np.asarray(rows.mask)
    number = np.cumsum(over, 0) - over  # index of a row's episode within its env
    begins = np.diff(number[time, env], prepend=-1) != 0
    begins |= np.diff(env, prepend=-1) != 0
    return np.diff([*np.flatnonzero(begins), len(time)])


def _row_columns(
    rows: Record, world: World, time: Int[np.ndarray, "row"], env: Int[np.ndarray, "row"]
) -> Arrays:
    """Return the columns that have one entry per row."""

    def at_rows(x: Any) -> np.ndarray:
        return np.asarray(x)[time, env]

    action = jax.tree.map(at_rows, rows.action)
    space = stored_action_space(world)
    done = _executed_action(world, action)
    parts = space_json.column_spaces("action", space)
    arrays: Arrays = {
        name: _cast_to_space(part, leaf)
        for (name, part), leaf in zip(parts.items(), jax.tree.leaves(done), strict=True)
    }
    arrays["reward"] = at_rows(rows.reward).astype(np.float32)
    arrays["discount"] = at_rows(rows.discount).astype(np.float32)
    told = [name for name in world.spec.channels if name in rows.extras]
    arrays |= {f"extra/{name}": at_rows(rows.extras[name]).astype(np.float32) for name in told}
    if "log_prob" in rows.extras:
        log_prob = at_rows(rows.extras["log_prob"]).astype(np.float32)
        clipped = isinstance(action, np.ndarray) and _may_be_clipped(space)
        arrays |= recorded_actions.to_stored_columns(space, action if clipped else None, log_prob)
    return arrays


def _observation_pairs(rows: Record, world: World) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Return each observation column's values before and after every row."""
    names = space_json.column_spaces("obs", world.spec.obs)
    now, then = jax.tree.leaves(rows.obs), jax.tree.leaves(rows.next_obs)
    pairs = zip(names.items(), now, then, strict=True)
    return {
        name: (_cast_to_space(part, x), _cast_to_space(part, y)) for (name, part), x, y in pairs
    }


def _cast_to_space(space: Space, array: Any) -> np.ndarray:
    """Cast to the space's dtype; discrete actions to int64, as Gymnasium has them."""
    array = np.asarray(array)
    return array.astype(np.int64 if space.dtype is None else space.dtype, copy=False)
