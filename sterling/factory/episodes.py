"""What was lived as it is stored: whole episodes, actions in the environment's own units."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
from gymnasium.spaces import Box
from jaxtyping import Bool, Int

from sterling.data import chosen, spaces
from sterling.data.columns import Arrays, Block
from sterling.data.spaces import Space
from sterling.types import Action, Record, World


def own_action(world: World) -> Space:
    """The action space of the environment inside all wrappers; choices that are only allowed
    together stay one number, as in their mask."""
    inner = _inside(world)
    return getattr(inner, "action_space", inner.spec.action)


def _inside(world: World) -> Any:
    inner: Any = world
    while hasattr(inner, "world") and not getattr(inner, "joint", False):
        inner = inner.world
    return inner


def _executed(world: World, chosen: Action) -> Action:
    """Actions as the environment took them: in its own units, and where it clips them, clipped."""
    to_world = getattr(world, "to_world", None)
    if to_world is None or getattr(_inside(world), "joint", False):
        return chosen
    return jax.tree.map(np.asarray, to_world(chosen))


def _is_clipped(space: Space) -> bool:
    """Whether something else than what was chosen may be done."""
    if not isinstance(space, Box):
        return False
    known = np.isfinite(space.low).any() or np.isfinite(space.high).any()
    return spaces.is_whole(space) or bool(known)


def block(rows: Record, world: World, quota: int, source: int, *, newest: bool = False) -> Block:
    """Rows ``(time, env, ...)`` in the order they were lived, as episodes, env after env.

    Masked rows are no experience: an episode they stand behind was cut there. ``quota`` rows are
    kept, the first that were lived or the ``newest``; an episode that begins or stops in the
    middle for that is one that was cut. ``source`` is the number of their source.
    ``log_prob`` is of actions as they were chosen; where the world clips them, those are kept
    beside (``sterling/data/chosen.py``).
    """
    envs = rows.mask.shape[1]
    lived = np.flatnonzero(np.asarray(rows.mask))
    lived = lived[max(len(lived) - quota, 0) :] if newest else lived[:quota]
    time, env = np.divmod(lived, envs)
    order = np.argsort(env, kind="stable")
    time, env = time[order], env[order]
    length = _lengths(rows, time, env)
    arrays = _columns(rows, world, time, env)
    ends = np.cumsum(length)
    for name, (now, then) in _pairs(rows, world).items():
        arrays[name] = _with_last(now[time, env], then[time, env], ends)
    return Block(arrays, length.astype(np.int64), np.full(len(length), source, np.int32))


def _with_last(now: np.ndarray, then: np.ndarray, ends: np.ndarray) -> np.ndarray:
    """What was seen before every row, and after the last row of each episode."""
    return np.insert(now, ends, then[ends - 1], axis=0)


def _lengths(
    rows: Record, time: Int[np.ndarray, "row"], env: Int[np.ndarray, "row"]
) -> Int[np.ndarray, "episode"]:
    """How long each episode is, of rows in the order in which they are kept."""
    over: Bool[np.ndarray, "time env"] = np.asarray(rows.last) | ~np.asarray(rows.mask)
    number = np.cumsum(over, 0) - over  # of the episode of its env that a row belongs to
    begins = np.diff(number[time, env], prepend=-1) != 0
    begins |= np.diff(env, prepend=-1) != 0
    return np.diff([*np.flatnonzero(begins), len(time)])


def _columns(
    rows: Record, world: World, time: Int[np.ndarray, "row"], env: Int[np.ndarray, "row"]
) -> Arrays:
    """The columns that have one entry per row."""

    def of(x: Any) -> np.ndarray:
        return np.asarray(x)[time, env]

    action = jax.tree.map(of, rows.action)
    space = own_action(world)
    done = _executed(world, action)
    parts = spaces.parts("action", space)
    arrays: Arrays = {
        name: _as_space(part, leaf)
        for (name, part), leaf in zip(parts.items(), jax.tree.leaves(done), strict=True)
    }
    arrays["reward"] = of(rows.reward).astype(np.float32)
    arrays["discount"] = of(rows.discount).astype(np.float32)
    if "log_prob" in rows.extras:
        log_prob = of(rows.extras["log_prob"]).astype(np.float32)
        clipped = isinstance(action, np.ndarray) and _is_clipped(space)
        arrays |= chosen.as_stored(space, action if clipped else None, log_prob)
    return arrays


def _pairs(rows: Record, world: World) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Observations before and after every row, by the names of their columns."""
    names = spaces.parts("obs", world.spec.obs)
    now, then = jax.tree.leaves(rows.obs), jax.tree.leaves(rows.next_obs)
    pairs = zip(names.items(), now, then, strict=True)
    return {name: (_as_space(part, x), _as_space(part, y)) for (name, part), x, y in pairs}


def _as_space(space: Space, array: Any) -> np.ndarray:
    """In the type that the space has; choices as 64-bit numbers, as Gymnasium gives them."""
    array = np.asarray(array)
    return array.astype(np.int64 if space.dtype is None else space.dtype, copy=False)
