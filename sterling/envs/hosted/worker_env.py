"""One Gymnasium environment inside a worker: built, checked, seeded and stepped.

This file runs inside worker processes, so it imports nothing slow (no JAX): a worker starts in a
fraction of a second.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Sequence
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

from sterling.envs.hosted import pettingzoo_parallel, reported_channels, reported_masks
from sterling.envs.hosted.shared_memory import (
    BUILD,
    LARGEST_NUMBER,
    OBSERVATION,
    SKIP,
    STEP,
    ContractViolation,
    EnvDescription,
    NotGymnasiumEnv,
    SharedArrays,
    arrange_leaves,
    plain_space,
    read_numbers,
    space_leaves,
)
from sterling.envs.padding.padded_observations import check_is_padded, unpadded_space
from sterling.problem.action_choices import ACTION_MASK
from sterling.problem.observation_values import cast_leaf, outside_space
from sterling.problem.time_limit import time_limit
from sterling.system.shown_values import short_text

SUPPORTED_SPACES = (spaces.Box, spaces.Discrete, spaces.MultiDiscrete, spaces.MultiBinary)


def inspect_factory(
    factory: Callable[[], Any], names: tuple[str, ...] = (), weights: tuple[float, ...] = ()
) -> EnvDescription:
    """Build one environment, inspect it over one reset and one step, and close it.

    ``names`` are entries of ``info`` to report, ``weights`` those of a vector reward. Raises
    :class:`ContractViolation`, whose line says what is wrong.
    """
    env = build_env(factory)
    if not isinstance(env, gymnasium.Env):
        raise NotGymnasiumEnv(f"the factory returned {_describe(env)}. Return a gymnasium.Env")
    try:
        return inspect_env(env, names, weights)
    finally:
        env.close()


def build_env(factory: Callable[[], Any]) -> Any:
    """Build an environment; one of PettingZoo's becomes one environment of all its agents."""
    env = factory()
    if pettingzoo_parallel.is_pettingzoo_env(env):
        return pettingzoo_parallel.join_agents(env)
    return env


def inspect_env(
    env: gymnasium.Env, names: tuple[str, ...] = (), weights: tuple[float, ...] = ()
) -> EnvDescription:
    """Inspect an existing environment over one reset and one step, and leave it in that episode."""
    for name in ("observation_space", "action_space"):
        _check_space(name, getattr(env, name, None))
    obs, info = _check_reset_result(env.reset(seed=0))
    obs_space, wrap = plain_space(env.observation_space, single=True), False
    has_mask = isinstance(obs_space, spaces.Dict) and ACTION_MASK in obs_space.spaces
    mask = "" if has_mask else reported_masks.find_mask_source(env, info)
    if mask:
        wrap = not isinstance(obs_space, spaces.Dict)
        parts = {OBSERVATION: obs_space} if wrap else dict(obs_space.spaces)
        first = reported_masks.read_mask(mask, env.action_space, env, info)
        form: Any = first.shape if first.ndim > 1 else first.size
        obs_space = spaces.Dict({**parts, ACTION_MASK: spaces.MultiBinary(form)})
    agents = env.names if isinstance(env, pettingzoo_parallel.JointEnv) else ()
    description = EnvDescription(
        *(obs_space, plain_space(env.action_space), mask, wrap),
        **{"agents": agents, "unseen": _unseen_names(env), "unpadded": unpadded_space(env)},
        limit=time_limit(env),
    )
    seen = reported_masks.add_mask(description, env, obs, info)
    options = reported_masks.OptionCheck(description)
    writer = ObservationWriter(
        obs_space, [np.zeros(s.shape or (), s.dtype) for _, s in space_leaves(obs_space)]
    )
    writer.write(seen)
    outside = writer.describe_outside()
    options.check(seen, 0)
    allowed = seen[ACTION_MASK] if mask or has_mask else None
    first_action = reported_masks.sample_allowed_action(env.action_space, allowed, bool(agents))
    obs, reward, terminated, truncated, info = check_step_result(env.step(first_action))
    seen = reported_masks.add_mask(description, env, obs, info)
    writer.write(seen)
    if not (terminated or truncated):
        options.check(seen, 1)
    found = reported_channels.infer_channels(names, weights, reward, info, agents)
    return description._replace(**found, outside=outside or writer.describe_outside())


def _unseen_names(env: gymnasium.Env) -> Any:
    """Return what an environment calls ``unseen``; of another type than names it means something
    else, so () then."""
    named = env.get_wrapper_attr("unseen") if env.has_wrapper_attr("unseen") else ()
    return named if isinstance(named, str | tuple | list) else ()


class ObservationWriter:
    """Checks observations against their space and copies them into the shared arrays."""

    def __init__(self, space: spaces.Space[Any], rows: Sequence[np.ndarray]):
        parts = zip(space_leaves(space), rows, strict=True)
        self._parts = [
            (path, part, row, "observation" + "".join(f"[{k!r}]" for k in path if k != OBSERVATION))
            for (path, part), row in parts
        ]

    def write(self, obs: Any) -> None:
        """Copy one observation; raises :class:`ContractViolation` if it does not fit its space."""
        for path, space, row, name in self._parts:
            value = obs
            for key in path:
                value = _observation_part(value, key, name)
            value = np.asarray(value)
            if value.shape != row.shape:
                said = f"but observation_space says {row.shape}"
                raise ContractViolation(f"{name} has shape {value.shape}, {said}")
            if value.dtype != row.dtype and not np.can_cast(value.dtype, row.dtype, "same_kind"):
                said = f"but observation_space says {row.dtype}"
                raise ContractViolation(f"{name} has type {value.dtype}, {said}")
            try:
                row[...] = cast_leaf(space, value)
            except ValueError as error:
                raise ContractViolation(f"{name} {error}") from None

    def describe_outside(self) -> str:
        """Return which number of the last observation lies outside its space; "" if none does."""
        for _, space, row, name in self._parts:
            wrong = np.argwhere(outside_space(space, row)).tolist()
            if wrong:
                where = "".join(f"[{number}]" for number in wrong[0])
                said = f"outside {short_text(str(space))}"
                return f"{name}{where} is {row[tuple(wrong[0])]:.6g}, {said}"
        return ""


class HostedEnv:
    """The environment of row ``index`` of the shared arrays."""

    def __init__(
        self,
        factory: Callable[[], Any],
        description: EnvDescription,
        shared: SharedArrays,
        index: int,
    ):
        self.index = index
        self._env: Any = None
        self._factory, self._description, self._shared = factory, description, shared
        obs, action = space_leaves(description.obs), space_leaves(description.action)
        rows = [shared[f"obs{n}"][index : index + 1] for n in range(len(obs))]
        views = [r.reshape(s.shape or ()) for r, (_, s) in zip(rows, obs, strict=True)]
        self._writer = ObservationWriter(description.obs, views)
        self._options, self._steps = reported_masks.OptionCheck(description), 0
        self._actions = [shared[f"action{n}"] for n in range(len(action))]

    def carry_out_order(self) -> None:
        """Carry out this row's order; an exception of the environment passes through."""
        shared, index, env = self._shared, self.index, self._env
        order = shared["order"][index]
        if order == STEP:
            # copies: the environment may keep its action
            parts = [action[index].copy() for action in self._actions]
            answer = env.step(arrange_leaves(self._description.action, iter(parts)))
            obs, reward, terminated, truncated, info = check_step_result(answer)
            self._steps, over = self._steps + 1, terminated or truncated
            where = (self._description, shared, index)
            reported_channels.write_step(*where, reward, info, step=self._steps)
            shared["terminated"][index], shared["truncated"][index] = terminated, truncated
        else:
            seed, self._steps, over = None, 0, False
            if order == BUILD:
                self.close()
                env, seed = build_env(self._factory), int(shared["seed"][index])
                self._env = env
            obs, info = _check_reset_result(env.reset(seed=seed))
        seen = reported_masks.add_mask(self._description, env, obs, info)
        self._writer.write(seen)
        if not over:
            self._options.check(seen, self._steps)

    def close(self) -> None:
        """Close the environment, if there is one."""
        env, self._env = self._env, None
        if env is not None:
            with contextlib.suppress(Exception):  # a broken environment may fail to close, too
                env.close()


class HostedEnvs:
    """The environments of one worker."""

    def __init__(self, envs: Sequence[HostedEnv], shared: SharedArrays, worker: int):
        self._envs, self._shared, self._worker = envs, shared, worker

    def carry_out_orders(self) -> dict[int, str]:
        """Carry out all orders; return the reason of every failure, by environment."""
        shared, worker, failures = self._shared, self._worker, {}
        for env in self._envs:
            if shared["order"][env.index] == SKIP:
                continue
            shared["current"][worker] = env.index
            shared["ticks"][worker] += 1
            try:
                env.carry_out_order()
            except Exception as error:
                failures[env.index] = describe_error(error)
        shared["current"][worker] = -1
        return failures

    def close(self) -> None:
        """Close every environment."""
        for env in self._envs:
            env.close()


def describe_error(error: BaseException) -> str:
    """Describe an exception in one line, with the file and line it came from."""
    said = short_text(str(error))
    if isinstance(error, ContractViolation):
        return said
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    if trace is None:
        return f"{type(error).__name__}: {said}"
    where = f"{os.path.basename(trace.tb_frame.f_code.co_filename)}:{trace.tb_lineno}"
    return f"{type(error).__name__}: {said} ({where})"


def check_step_result(answer: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
    """Return what ``step`` returned, with the reward as a number or vector of floats; raise
    :class:`ContractViolation` if it breaks the contract."""
    if not isinstance(answer, tuple) or len(answer) != 5 or not isinstance(answer[4], dict):
        said = "It must return (obs, reward, terminated, truncated, info)"
        raise ContractViolation(f"step() returned {_describe(answer)}. {said}")
    obs, reward, terminated, truncated, info = answer
    if not isinstance(reward, float) or not abs(reward) <= LARGEST_NUMBER:
        reward = read_numbers(reward, "step() returned the reward")
        if reward.ndim > 1 or reward.shape in {(0,), (1,)}:
            said = "Return a number, or a vector with one number for each of several objectives"
            raise ContractViolation(f"step() returned a reward of shape {reward.shape}. {said}")
        reward = reward if reward.ndim else float(reward)
    return obs, reward, bool(terminated), bool(truncated), info


def _check_reset_result(answer: Any) -> tuple[Any, dict[str, Any]]:
    if not isinstance(answer, tuple) or len(answer) != 2 or not isinstance(answer[1], dict):
        raise ContractViolation(f"reset() returned {_describe(answer)}. It must return (obs, info)")
    return answer


def _check_space(name: str, space: Any) -> None:
    if not isinstance(space, spaces.Space):
        raise ContractViolation(f"it has no {name}. Set self.{name} to a space of gymnasium.spaces")
    for _, leaf in space_leaves(space):
        check_is_padded(name, leaf)
        if not isinstance(leaf, SUPPORTED_SPACES):
            raise ContractViolation(
                f"{name} has a part of type {type(leaf).__name__}. Use Box, Discrete, "
                "MultiDiscrete, MultiBinary, or a Dict or Tuple of them"
            )


def _observation_part(value: Any, key: Any, name: str) -> Any:
    """Return one part of a nested observation; ``name`` is its path, for the message."""
    try:
        return value[key]
    except (LookupError, TypeError, ValueError):
        raise ContractViolation(f"{name} is missing from {_describe(value)}") from None


def _describe(value: Any) -> str:
    if isinstance(value, tuple):
        return f"{len(value)} values"
    return f"something of type {type(value).__name__}"
