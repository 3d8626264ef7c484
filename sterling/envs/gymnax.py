"""gymnax: classic control, MinAtar, bsuite and a few more, as pure JAX programs.

gymnax folds its step limit into ``done``. Where the limit only cuts episodes short it is therefore
lifted inside gymnax and applied by :class:`sterling.envs.traced.Traced`, so that a cut is a cut:
classic control, MinAtar, FourRooms, Reacher, Swimmer and Pong. Elsewhere the clock is part of the
task (DiscountingChain, the bandits, MetaMaze and PointRobot show it to the agent or pay by it) or
never comes to bear (Catch, DeepSea, MemoryChain, UmbrellaChain, MNISTBandit end before), and an
episode ends as gymnax says. Actions in bounded boxes and observations are float32.
"""

from __future__ import annotations

import contextlib
import dataclasses
import inspect
import warnings
from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from gymnasium import spaces
from jaxtyping import Array, Key, PyTree

from sterling.envs.options import check_options
from sterling.envs.seat import explain
from sterling.envs.traced import Traced
from sterling.types import Action, Mistake, Obs

CLASSIC = ("CartPole-v1", "Pendulum-v1", "Acrobot-v1", "MountainCar-v0", "MountainCarContinuous-v0")
FAMILIES = ("-MinAtar", "-bsuite", "-misc")
CUT_BY_CLOCK = ("FourRooms-misc", "Reacher-misc", "Swimmer-misc", "Pong-misc")
BROKEN = ("SimpleBandit-bsuite",)  # gymnax 0.0.9 confuses its state's fields: it cannot be stepped
NEVER = 2**30  # steps


def make(
    name: str, /, seeds: tuple[int, ...], envs: int, *, strategy: str = "vmap", **params: Any
) -> Traced:
    """``seeds x envs`` copies of a gymnax environment.

    ``params`` are fields of the environment's parameters or arguments of its constructor
    (``size=20`` for DeepSea); ``max_episode_steps`` changes the step limit. Raises ``Mistake``
    for an option that the environment does not have or that it cannot be made with.
    """
    given = ", ".join(f"{key}={value!r}" for key, value in params.items())
    with _quiet():
        try:
            task, limit = _task(name, params)
        except (ArithmeticError, TypeError, ValueError) as error:
            if not given:  # not the user's doing
                raise
            said = f"cannot be made with {given} ({explain(error)})"
            raise Mistake(f"environment {name} {said}; give it other values") from error
    return Traced(task, seeds, envs, limit=limit, strategy=strategy)


class Task:
    """A gymnax environment as a :class:`sterling.envs.traced.Task`."""

    def __init__(self, env: Any, params: Any):
        self._env, self._params = env, params
        self.obs = _space(env.observation_space(params), env)
        self.action = _space(env.action_space(params), env)
        self._dtypes = jax.tree.map(lambda x: x.dtype, jax.eval_shape(self._trial))

    def reset(self, key: Key[Array, ""]) -> tuple[PyTree, Obs]:
        """Start an episode."""
        with _quiet():
            obs, state = self._env.reset_env(key, self._params)
        return self._settled(state), self._seen(obs)

    def step(
        self, state: PyTree, action: Action, key: Key[Array, ""]
    ) -> tuple[PyTree, Obs, Array, Array, Array]:
        """Move; a limit that gymnax itself keeps is an end."""
        with _quiet():
            obs, state, reward, done, _ = self._env.step_env(key, state, action, self._params)
        reward = jnp.asarray(reward, jnp.float32)
        ended = jnp.asarray(done, bool)
        return self._settled(state), self._seen(obs), reward, ended, jnp.zeros((), bool)

    def _trial(self) -> PyTree:
        """One step: gymnax's resets hold Python numbers whose dtype only a step shows."""
        key = jax.random.key(0)
        with _quiet():
            _, state = self._env.reset_env(key, self._params)
            action = jnp.zeros(self.action.shape, jax.dtypes.canonicalize_dtype(self.action.dtype))
            state = self._env.step_env(key, state, action, self._params)[1]
        return jax.tree.map(jnp.asarray, state)

    def _settled(self, state: PyTree) -> PyTree:
        return jax.tree.map(lambda x, dtype: jnp.asarray(x).astype(dtype), state, self._dtypes)

    def _seen(self, obs: Any) -> Obs:
        return jax.tree.map(lambda x: jnp.asarray(x).astype(jnp.float32), obs)


def names() -> list[str]:
    """Every environment of gymnax that works."""
    return sorted(name for name in _gymnax().registered_envs if name not in BROKEN)


def knows(name: str) -> bool:
    """Whether gymnax has ``name``; gymnax (3 s) is imported only if the name looks like it."""
    return name in CLASSIC or (name.endswith(FAMILIES) and name in _gymnax().registered_envs)


def _gymnax() -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import gymnax
    return gymnax


def _task(name: str, given: dict[str, Any]) -> tuple[Task, int]:
    """The task, and the step limit that its world has to keep (0: none)."""
    if name in BROKEN:
        raise Mistake(f"environment {name} is broken in gymnax itself and cannot be stepped")
    gymnax = _gymnax()
    limit = given.pop("max_episode_steps", None)
    usual, usual_params = _made(gymnax, name, {})
    fields = [field.name for field in dataclasses.fields(usual_params)]
    arguments = inspect.signature(type(usual)).parameters
    check_options(name, given, [*fields, *arguments, "max_episode_steps"])
    env, params = _made(gymnax, name, {k: v for k, v in given.items() if k not in fields})
    params = params.replace(**{k: v for k, v in given.items() if k in fields})
    limit = params.max_steps_in_episode if limit is None else limit
    cut = name in CLASSIC or name.endswith("-MinAtar") or name in CUT_BY_CLOCK
    params = params.replace(max_steps_in_episode=NEVER if cut else limit or NEVER)
    return Task(env, params), int(limit) if cut else 0


def _made(gymnax: Any, name: str, arguments: dict[str, Any]) -> tuple[Any, Any]:
    try:
        return gymnax.make(name, **arguments)
    except OSError as error:
        raise Mistake(f"environment {name} downloads data on first use: {error}") from error


def _space(space: Any, env: Any) -> spaces.Space[Any]:
    """The Gymnasium space for a gymnax one; boxes become float32."""
    if hasattr(space, "n"):
        return spaces.Discrete(int(space.n))
    if not hasattr(space, "low"):
        raise Mistake(
            f"environment {env.name} has a {type(space).__name__} space; use Box, Discrete"
        )
    shape = tuple(space.shape)
    low, high = (np.broadcast_to(np.asarray(x, np.float32), shape) for x in (space.low, space.high))
    return spaces.Box(low, high, shape, np.float32)


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """gymnax mixes dtypes and ranks, and asks for int64: its business, not the user's."""
    with warnings.catch_warnings(), jax.numpy_dtype_promotion("standard"):
        warnings.simplefilter("ignore")
        with jax.numpy_rank_promotion("allow"):
            yield
