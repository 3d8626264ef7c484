"""gymnax: classic control, MinAtar, bsuite and a few more, as pure JAX programs.

gymnax folds its step limit into ``done``. Where the limit merely truncates episodes it is lifted
inside gymnax and applied by :class:`sterling.envs.traced_world.TracedWorld`, so that a truncation
is not taken for an end: classic control, MinAtar, FourRooms, Reacher, Swimmer and Pong. Elsewhere
an episode ends as gymnax says: either time is part of the task (DiscountingChain, the bandits,
MetaMaze and PointRobot show it to the agent or pay by it), or the limit is never reached (Catch,
DeepSea, MemoryChain, UmbrellaChain, MNISTBandit end before). Actions in bounded boxes and
observations are float32.
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

from sterling.envs.env_options import check_options
from sterling.envs.hosted.worker_env import describe_error
from sterling.envs.traced_world import TracedWorld
from sterling.types import Action, Mistake, Obs

CLASSIC = ("CartPole-v1", "Pendulum-v1", "Acrobot-v1", "MountainCar-v0", "MountainCarContinuous-v0")
FAMILIES = ("-MinAtar", "-bsuite", "-misc")
CUT_BY_TIME_LIMIT = ("FourRooms-misc", "Reacher-misc", "Swimmer-misc", "Pong-misc")
BROKEN = ("SimpleBandit-bsuite",)  # gymnax 0.0.9 mixes up its state's fields
NO_TIME_LIMIT = 2**30  # steps


def make(
    name: str, /, seeds: tuple[int, ...], envs: int, *, strategy: str = "vmap", **params: Any
) -> TracedWorld:
    """Make ``seeds x envs`` copies of a gymnax environment.

    ``params`` are fields of the environment's parameters or arguments of its constructor
    (``size=20`` for DeepSea); ``max_episode_steps`` changes the step limit. Raises ``Mistake`` for
    an unknown option or an impossible value.
    """
    given = ", ".join(f"{key}={value!r}" for key, value in params.items())
    with _permissive_dtypes():
        try:
            task, limit = _make_task(name, params)
        except (ArithmeticError, TypeError, ValueError) as error:
            if not given:  # not the user's mistake
                raise
            said = f"cannot be made with {given} ({describe_error(error)})"
            raise Mistake(f"Environment {name} {said}. Give other values.") from error
    return TracedWorld(task, seeds, envs, limit=limit, strategy=strategy)


class GymnaxTask:
    """A gymnax environment as a :class:`sterling.envs.traced_world.Task`."""

    def __init__(self, env: Any, params: Any):
        self._env, self._params = env, params
        self.obs = _to_gymnasium_space(env.observation_space(params), env)
        self.action = _to_gymnasium_space(env.action_space(params), env)
        self._dtypes = jax.tree.map(lambda x: x.dtype, jax.eval_shape(self._step_once))

    def reset(self, key: Key[Array, ""]) -> tuple[PyTree, Obs]:
        """Start an episode."""
        with _permissive_dtypes():
            obs, state = self._env.reset_env(key, self._params)
        return self._cast_state(state), self._cast_obs(obs)

    def step(
        self, state: PyTree, action: Action, key: Key[Array, ""]
    ) -> tuple[PyTree, Obs, Array, Array, Array]:
        """Step the environment; a limit that gymnax applies itself is an end."""
        with _permissive_dtypes():
            obs, state, reward, done, _ = self._env.step_env(key, state, action, self._params)
        reward = jnp.asarray(reward, jnp.float32)
        ended = jnp.asarray(done, bool)
        return self._cast_state(state), self._cast_obs(obs), reward, ended, jnp.zeros((), bool)

    def _step_once(self) -> PyTree:
        """Return the state after one step: its dtypes are the final ones, those of a reset may be
        Python numbers."""
        key = jax.random.key(0)
        with _permissive_dtypes():
            _, state = self._env.reset_env(key, self._params)
            action = jnp.zeros(self.action.shape, jax.dtypes.canonicalize_dtype(self.action.dtype))
            state = self._env.step_env(key, state, action, self._params)[1]
        return jax.tree.map(jnp.asarray, state)

    def _cast_state(self, state: PyTree) -> PyTree:
        return jax.tree.map(lambda x, dtype: jnp.asarray(x).astype(dtype), state, self._dtypes)

    def _cast_obs(self, obs: Any) -> Obs:
        return jax.tree.map(lambda x: jnp.asarray(x).astype(jnp.float32), obs)


def names() -> list[str]:
    """Return the names of all gymnax environments that work."""
    return sorted(name for name in _import_gymnax().registered_envs if name not in BROKEN)


def knows(name: str) -> bool:
    """Whether gymnax has ``name``; gymnax (3 s) is imported only if the name looks like one of its
    own."""
    return name in CLASSIC or (name.endswith(FAMILIES) and name in _import_gymnax().registered_envs)


def _import_gymnax() -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import gymnax
    return gymnax


def option_names(name: str) -> list[str]:
    """Return the names of an environment's options: its parameters, and its constructor's."""
    env, params = _make_env(_import_gymnax(), name, {})
    fields = [field.name for field in dataclasses.fields(params)]
    return [*fields, *inspect.signature(type(env)).parameters, "max_episode_steps"]


def _make_task(name: str, given: dict[str, Any]) -> tuple[GymnaxTask, int]:
    """Make the task; return it with the step limit that its world has to apply (0: none)."""
    if name in BROKEN:
        raise Mistake(
            f"Environment {name} is broken in gymnax and cannot be stepped. Use another one."
        )
    gymnax = _import_gymnax()
    limit = given.pop("max_episode_steps", None)
    _, default_params = _make_env(gymnax, name, {})
    fields = [field.name for field in dataclasses.fields(default_params)]
    check_options(name, given, option_names(name))
    env, params = _make_env(gymnax, name, {k: v for k, v in given.items() if k not in fields})
    params = params.replace(**{k: v for k, v in given.items() if k in fields})
    limit = params.max_steps_in_episode if limit is None else limit
    cut = name in CLASSIC or name.endswith("-MinAtar") or name in CUT_BY_TIME_LIMIT
    params = params.replace(max_steps_in_episode=NO_TIME_LIMIT if cut else limit or NO_TIME_LIMIT)
    return GymnaxTask(env, params), int(limit) if cut else 0


def _make_env(gymnax: Any, name: str, arguments: dict[str, Any]) -> tuple[Any, Any]:
    try:
        return gymnax.make(name, **arguments)
    except OSError as error:
        raise Mistake(
            f"Environment {name} could not download its data on first use: {error}"
        ) from error


def _to_gymnasium_space(space: Any, env: Any) -> spaces.Space[Any]:
    """Convert a gymnax space to a Gymnasium space; boxes become float32."""
    if hasattr(space, "n"):
        return spaces.Discrete(int(space.n))
    if not hasattr(space, "low"):
        raise Mistake(
            f"Environment {env.name} has a {type(space).__name__} space, which is not supported. "
            "Use an environment with Box or Discrete spaces."
        )
    shape = tuple(space.shape)
    low, high = (np.broadcast_to(np.asarray(x, np.float32), shape) for x in (space.low, space.high))
    return spaces.Box(low, high, shape, np.float32)


@contextlib.contextmanager
def _permissive_dtypes() -> Iterator[None]:
    """Context manager that permits gymnax's mixed dtypes and ranks and silences its warnings."""
    with warnings.catch_warnings(), jax.numpy_dtype_promotion("standard"):
        warnings.simplefilter("ignore")
        with jax.numpy_rank_promotion("allow"):
            yield
