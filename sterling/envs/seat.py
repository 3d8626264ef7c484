"""One Gymnasium environment in its seat: built, checked, seeded, stepped.

This file runs inside worker processes: like ``board`` and ``serve`` it may import nothing slow (no
JAX), so that a worker starts in a fraction of a second.
"""

from __future__ import annotations

import contextlib
import math
import os
from collections.abc import Callable, Sequence
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

from sterling.envs import masks, parallel, reported
from sterling.envs.board import (
    BUILD,
    MASK,
    PROPER,
    SKIP,
    STEP,
    Board,
    NoneMade,
    Problem,
    Violation,
    choices,
    is_joint,
    leaves,
    plain,
    tree,
)

LEAVES = (spaces.Box, spaces.Discrete, spaces.MultiDiscrete, spaces.MultiBinary)


def probe(
    factory: Callable[[], Any], names: tuple[str, ...] = (), weights: tuple[float, ...] = ()
) -> Problem:
    """Build one environment, look at it closely over one reset and one step, close it. ``names``
    are entries of ``info`` to be reported, ``weights`` those of a reward that is a vector.

    Raises :class:`Violation` with a line that names what is wrong with it.
    """
    env = built(factory)
    if not isinstance(env, gymnasium.Env):
        raise NoneMade(f"the factory returned {_describe(env)}; return a gymnasium.Env")
    try:
        return check(env, names, weights)
    finally:
        env.close()


def built(factory: Callable[[], Any]) -> Any:
    """What the factory makes; one of PettingZoo's environments as one of all its agents."""
    env = factory()
    return parallel.together(env) if parallel.is_of_agents(env) else env


def check(
    env: gymnasium.Env, names: tuple[str, ...] = (), weights: tuple[float, ...] = ()
) -> Problem:
    """``probe`` for an environment that exists; it is left somewhere in an episode."""
    for name in ("observation_space", "action_space"):
        _check_space(name, getattr(env, name, None))
    obs, info = _checked_reset(env.reset(seed=0))
    obs_space, wrap = plain(env.observation_space, single=True), False
    has_mask = isinstance(obs_space, spaces.Dict) and MASK in obs_space.spaces
    mask = "" if has_mask else masks.source(env, info)
    if mask:
        wrap = not isinstance(obs_space, spaces.Dict)
        parts = {PROPER: obs_space} if wrap else dict(obs_space.spaces)
        first = masks.read(mask, env.action_space, env, info)
        form: Any = first.shape if first.ndim > 1 else first.size
        obs_space = spaces.Dict({**parts, MASK: spaces.MultiBinary(form)})
    agents = env.names if isinstance(env, parallel.Together) else ()
    named = env.get_wrapper_attr("unseen") if env.has_wrapper_attr("unseen") else ()
    own = named if isinstance(named, str | tuple | list) else ()  # else it means something else
    problem = Problem(obs_space, plain(env.action_space), mask, wrap, agents=agents, unseen=own)
    seen = with_mask(problem, env, obs, info)
    writer = Writer(obs_space, [np.zeros(s.shape or (), s.dtype) for _, s in leaves(obs_space)])
    writer.write(seen)
    allowed = seen[MASK] if mask or has_mask else None
    obs, reward, _, _, info = checked_step(env.step(_any_action(env.action_space, allowed)))
    writer.write(with_mask(problem, env, obs, info))
    channels, weights = reported.found(names, weights, reward, info, agents)
    return problem._replace(channels=channels, weights=weights)


class Writer:
    """Checks observations against their space and copies them into rows of the board."""

    def __init__(self, space: spaces.Space[Any], rows: Sequence[np.ndarray]):
        parts = zip(leaves(space), rows, strict=True)
        self._parts = [
            (path, part, row, "observation" + "".join(f"[{k!r}]" for k in path if k != PROPER))
            for (path, part), row in parts
        ]

    def write(self, obs: Any) -> None:
        """Copy one observation; raises :class:`Violation`."""
        for path, space, row, name in self._parts:
            value = obs
            for key in path:
                value = _part(value, key, name)
            value = np.asarray(value)
            if value.shape != row.shape:
                said = f"where observation_space says {row.shape}"
                raise Violation(f"{name} of shape {value.shape} {said}")
            if value.dtype != row.dtype and not np.can_cast(value.dtype, row.dtype, "same_kind"):
                said = f"where observation_space says {row.dtype}"
                raise Violation(f"{name} of type {value.dtype} {said}")
            row[...] = value
            if row.dtype.kind == "f" and not np.isfinite(row).all():
                raise Violation(f"{name} holds NaN or infinity")
            if not isinstance(space, spaces.Box) and not space.contains(row[()]):
                raise Violation(f"{name} is {value}, outside {space}")


class Seat:
    """Row ``index`` of the board, and the environment behind it."""

    def __init__(self, factory: Callable[[], Any], problem: Problem, board: Board, index: int):
        self.index = index
        self._env: Any = None
        self._factory, self._problem, self._board = factory, problem, board
        obs, action = leaves(problem.obs), leaves(problem.action)
        rows = [board[f"obs{n}"][index : index + 1] for n in range(len(obs))]
        views = [r.reshape(s.shape or ()) for r, (_, s) in zip(rows, obs, strict=True)]
        self._writer = Writer(problem.obs, views)
        self._actions = [board[f"action{n}"] for n in range(len(action))]

    def obey(self) -> None:
        """Carry out this row's order; raises whatever the environment raises."""
        board, index, env = self._board, self.index, self._env
        order = board["order"][index]
        if order == STEP:
            parts = [action[index].copy() for action in self._actions]  # the env may keep it
            answer = env.step(tree(self._problem.action, iter(parts)))
            obs, reward, terminated, truncated, info = checked_step(answer)
            reported.write(self._problem, board, index, reward, info)
            board["terminated"][index], board["truncated"][index] = terminated, truncated
        else:
            seed = None
            if order == BUILD:
                self.close()
                env, seed = built(self._factory), int(board["seed"][index])
                self._env = env
            obs, info = _checked_reset(env.reset(seed=seed))
        self._writer.write(with_mask(self._problem, env, obs, info))

    def close(self) -> None:
        """Close the environment, if there is one."""
        env, self._env = self._env, None
        if env is not None:
            with contextlib.suppress(Exception):  # a broken environment may fail to close as well
                env.close()


class Seats:
    """The environments of one worker."""

    def __init__(self, seats: Sequence[Seat], board: Board, worker: int):
        self._seats, self._board, self._worker = seats, board, worker

    def obey(self) -> dict[int, str]:
        """Carry out all orders; what went wrong, by environment."""
        board, worker, failures = self._board, self._worker, {}
        for seat in self._seats:
            if board["order"][seat.index] == SKIP:
                continue
            board["current"][worker] = seat.index
            board["ticks"][worker] += 1
            try:
                seat.obey()
            except Exception as error:
                failures[seat.index] = explain(error)
        board["current"][worker] = -1
        return failures

    def close(self) -> None:
        """Close every environment."""
        for seat in self._seats:
            seat.close()


def explain(error: BaseException) -> str:
    """An exception in one line, with the place it came from."""
    said = " ".join(str(error).split())[:300]
    if isinstance(error, Violation):
        return said
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    if trace is None:
        return f"{type(error).__name__}: {said}"
    where = f"{os.path.basename(trace.tb_frame.f_code.co_filename)}:{trace.tb_lineno}"
    return f"{type(error).__name__}: {said} ({where})"


def with_mask(problem: Problem, env: Any, obs: Any, info: dict[str, Any]) -> Any:
    """The observation, with the mask of allowed actions beside it where there is one."""
    if not problem.mask:
        return obs
    mask = masks.checked(problem, env, info)
    return {**({PROPER: obs} if problem.wrap else obs), MASK: mask}


def checked_step(answer: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
    """What ``step`` returned, a reward as a number or as a vector, or :class:`Violation`."""
    if not isinstance(answer, tuple) or len(answer) != 5 or not isinstance(answer[4], dict):
        said = "it must return (obs, reward, terminated, truncated, info)"
        raise Violation(f"step() returned {_describe(answer)}; {said}")
    obs, reward, terminated, truncated, info = answer
    if not isinstance(reward, float) and (np.ndim(reward) > 1 or np.shape(reward) in {(0,), (1,)}):
        said = "return a number, or one for each of several objectives"
        raise Violation(f"step() returned a reward of shape {np.shape(reward)}; {said}")
    try:
        reward = np.asarray(reward, float) if np.ndim(reward) else float(reward)
    except (TypeError, ValueError):
        raise Violation(f"step() returned the reward {reward!r:.60}; return a number") from None
    if not np.isfinite(reward).all():
        raise Violation(f"step() returned the reward {reward}")
    return obs, reward, bool(terminated), bool(truncated), info


def _checked_reset(answer: Any) -> tuple[Any, dict[str, Any]]:
    if not isinstance(answer, tuple) or len(answer) != 2 or not isinstance(answer[1], dict):
        raise Violation(f"reset() returned {_describe(answer)}; it must return (obs, info)")
    return answer


def _check_space(name: str, space: Any) -> None:
    if not isinstance(space, spaces.Space):
        raise Violation(f"it has no {name}; set self.{name} to one of gymnasium.spaces")
    for _, leaf in leaves(space):
        if not isinstance(leaf, LEAVES):
            raise Violation(
                f"{name} has a part of type {type(leaf).__name__}; use Box, Discrete, "
                "MultiDiscrete, MultiBinary, or a Dict/Tuple of them"
            )


def _any_action(space: Any, allowed: Any) -> Any:
    """Some action of ``space``, one that the mask allows."""
    space.seed(0)
    if allowed is None or not choices(space):
        return space.sample()
    if not np.any(allowed):
        raise Violation("the action mask allows no action at all after reset()")
    if isinstance(space, spaces.Discrete):
        return space.start + np.flatnonzero(allowed)[0]
    if is_joint(space, np.shape(allowed)):
        return (np.argwhere(allowed)[0] + space.start).astype(space.dtype)
    is_multi = isinstance(space, spaces.MultiDiscrete)
    sizes = space.nvec.ravel() if is_multi else [2] * math.prod(space.shape)
    parts = np.split(np.ravel(allowed), np.cumsum(sizes)[:-1])
    first = np.array([np.argmax(part) for part in parts]).reshape(space.shape)
    return (first + getattr(space, "start", 0)).astype(space.dtype)


def _part(value: Any, key: Any, name: str) -> Any:
    """A part of an observation of several; ``name`` says which of the whole."""
    try:
        return value[key]
    except (LookupError, TypeError, ValueError):
        raise Violation(f"{name} is missing from {_describe(value)}") from None


def _describe(value: Any) -> str:
    if isinstance(value, tuple):
        return f"{len(value)} values"
    return f"something of type {type(value).__name__}"
