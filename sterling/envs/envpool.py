"""EnvPool: worlds in C++, stepped inside the compiled program.

One pool serves every seed. EnvPool resets on the step after an end (the action of that step is
ignored), which is Sterling's own convention, so nothing has to be patched: rows whose episode was
already over are masked. Its C++ side exchanges float64 for MuJoCo; the calls are therefore made
and traced under ``enable_x64`` and cast at the boundary (without it memory is silently corrupted).
An episode that ends in the very step of its time limit counts as cut: EnvPool does not tell.

Atari: with ``episodic_life`` a lost life is an end to the learner (discount 0), while the score
counts whole games; EnvPool goes on with the same game and presses FIRE where a game needs it.
Worlds for evaluation answer ``last`` only where the game is over.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
import warnings
import zlib
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from gymnasium import spaces
from jaxtyping import Array, Bool, Key, PyTree

from sterling.envs import pool_judges
from sterling.envs.options import check_options, check_switch
from sterling.envs.reporting import of_pool
from sterling.types import Action, AnyArray, Mistake, Obs, Score, Spec, Step

# what Sterling itself decides, or what a world cannot have
OURS = (
    *("num_envs", "batch_size", "seed", "env_seed", "base_path"),
    *("gym_reset_return_info", "max_num_players"),
)
# what EnvPool's ``make`` takes for MuJoCo beside a task's own options
PICTURES = ("from_pixels", "render_width", "render_height", "render_camera_id")


class PoolState(eqx.Module):
    """EnvPool's opaque handle, and which episodes have just ended."""

    handle: Array
    ended: Bool[Array, "seed env"]


class Pool:
    """``seeds x envs`` copies of one EnvPool task as a :class:`sterling.types.World`."""

    traced = True
    exact = False  # the simulators live in C++: a resumed run starts fresh episodes
    stack = 1

    def __init__(
        self,
        name: str,
        /,
        seeds: tuple[int, ...],
        envs: int,
        *,
        purpose: str = "train",
        channels: Any = None,  # as text; None: whether a goal was reached, where there are goals
        **options: Any,
    ):
        check_options(name, options, [*option_names(name), "channels"])
        self.seeds, self.envs = len(seeds), envs
        env_seeds = [env_seed(seed, env, purpose) for seed in seeds for env in range(envs)]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            self._pool = _made(name, env_seeds, options)
            action, obs = self._pool.action_space, self._pool.observation_space
        self._check_players(name)
        with jax.enable_x64(True):
            self._handle, self._recv, self._send, _ = self._pool.xla()
        declared = list(self._pool.spec.action_array_spec.values())[-1]
        self._action_dtype = declared.dtype
        self._first = action.low if _is_choices(action) else None  # choices are counted from 0
        self._lives = is_atari(name) and bool(self._pool.config["episodic_life"])
        self._teaches = teaches(purpose)
        config, arrays = dict(self._pool.config), self._pool.spec.state_array_spec
        judge = pool_judges.judge_of(config, obs)
        said = pool_judges.success(judge, arrays) if channels is None else str(channels)
        self._reported = of_pool(name, arrays, said)
        self.spec = Spec(
            obs=_single_precision(obs),
            action=_action(action),
            envs=envs,
            channels=self._reported,
            judge=judge,
        )

    def reset(self, keys: Key[Array, "seed"]) -> tuple[PoolState, Obs]:
        """Start every episode anew; the pool's own seeds decide, ``keys`` are not used."""
        obs, _ = self._pool.reset()
        ended = jnp.zeros((self.seeds, self.envs), bool)
        return PoolState(jnp.asarray(self._handle), ended), self._shape(obs)

    def step(
        self, state: PoolState, action: Action, keys: Key[Array, "seed"]
    ) -> tuple[PoolState, Step]:
        """One step of every env; traced."""
        flat = action.reshape(-1, *action.shape[2:])
        flat = flat if self._first is None else flat + self._first.astype(flat.dtype)[None]
        with jax.enable_x64(True):
            handle = self._send(state.handle, flat.astype(self._action_dtype))
            handle, (obs, reward, terminated, truncated, info) = self._recv(handle)
            game_over = info["terminated"] != 0 if self._lives else terminated
            more = {each: info[each] for each in self._reported}
            answer = self._shape((obs, reward, terminated, truncated, game_over, more))
        obs, reward, terminated, truncated, game_over, more = answer
        fresh = state.ended
        ended = (terminated | truncated) & ~fresh
        last = (game_over | truncated) & ~fresh
        discount = (~terminated | truncated).astype(jnp.float32)
        lives = self._lives and self._teaches
        score = Score(reward, last) if lives else None
        more = {each: _unless(fresh, x.astype(jnp.float32)) for each, x in more.items()}
        step = Step(obs, reward, discount, ended if lives else last, ~fresh, score, more)
        return PoolState(handle, ended), step

    def close(self) -> None:
        """Release the pool's threads."""
        self._pool.close()

    def _shape(self, tree: PyTree) -> PyTree:
        """(seed * env, ...) -> (seed, env, ...), in the dtype the space says."""

        def shape(x: AnyArray) -> Array:
            x = jnp.asarray(x).reshape(self.seeds, self.envs, *x.shape[1:])
            return x.astype(_single(x.dtype))

        return jax.tree.map(shape, tree)

    def _check_players(self, name: str) -> None:
        players = int(self._pool.config.get("max_num_players", 1))
        if players > 1:
            raise Mistake(
                f"environment {name} has {players} players at once; worlds here have one agent"
            )


def _made(name: str, env_seeds: list[int], options: dict[str, Any]) -> Any:
    """EnvPool's own object; Mistake where it cannot be made so."""
    import envpool

    count = len(env_seeds)
    try:
        return envpool.make(name, env_type="gymnasium", num_envs=count, seed=env_seeds, **options)
    except TypeError as error:
        given = ", ".join(f"{key}={value!r}" for key, value in options.items())
        raise Mistake(f"environment {name} cannot be made with {given}") from error
    except RuntimeError as error:  # a file that it needs is not here
        raise Mistake(f"environment {name} cannot be made: {error}") from error


def _unless(fresh: Bool[Array, "seed env"], x: Array) -> Array:
    """The array, 0 where an episode has only just begun."""
    return jnp.where(fresh.reshape(fresh.shape + (1,) * (x.ndim - 2)), 0.0, x)


def missing() -> str | None:
    """Why EnvPool cannot be used here; None where it can."""
    if sys.platform in ("darwin", "win32"):
        return "EnvPool cannot be compiled into programs on this operating system"
    return None if importlib.util.find_spec("envpool") else "EnvPool is not installed"


def option_names(name: str) -> list[str]:
    """The options that a task leaves to the user."""
    module, spec, _ = _registry()[name]
    pictures = PICTURES if module.startswith("envpool.mujoco") else ()
    try:
        keys = getattr(importlib.import_module(module), spec)._config_keys
    except ImportError as error:
        raise Mistake(f"environment {name} cannot be made: {error}") from error
    return sorted({*keys, *pictures} - set(OURS))


def is_atari(name: str) -> bool:
    """Whether a task is an Atari game."""
    return _registry()[name][0] == "envpool.atari"


def is_clipped(name: str, options: dict[str, Any]) -> bool:
    """Whether training learns from the sign of rewards: in Atari games, but for
    ``reward_clip=False``. Raises Mistake for what is neither true nor false."""
    if not is_atari(name):
        return False
    clip = options.get("reward_clip", True)
    check_switch("reward_clip", clip)
    return bool(clip)


def has_lives(name: str, options: dict[str, Any]) -> bool:
    """Whether a lost life is an end in experience, as it is in Atari games but for
    ``episodic_life=False``: EnvPool idles before the game goes on."""
    return is_atari(name) and bool(options.get("episodic_life", True))


def knows(name: str) -> bool:
    """Whether EnvPool is here and has ``name``."""
    return missing() is None and name in _registry()


def names() -> list[str]:
    """Every task EnvPool offers; none where EnvPool cannot be used."""
    return sorted(_registry()) if missing() is None else []


def family(name: str) -> str:
    """The part of EnvPool that a task belongs to, such as ``mujoco.dmc``."""
    return _registry()[name][0].removeprefix("envpool.")


def unusable(name: str) -> str | None:
    """Why a listed task does not run here, told without making it; None where nothing is known to
    stand against it: several players at once, or a system library that is not installed."""
    module, spec, defaults = _registry()[name]
    players = defaults.get("max_num_players", 1)
    if players > 1:
        return f"needs {players} players at once; worlds here have one agent"
    try:
        getattr(importlib.import_module(module), spec)
    except ImportError as error:
        return str(error)
    return None


def _registry() -> dict[str, tuple[str, str, dict[str, Any]]]:
    """Task -> module, name of its spec's class, defaults."""
    from envpool.registration import registry

    return registry.specs


def teaches(purpose: str) -> bool:
    """Whether agents learn in a world made for this purpose."""
    return purpose.partition("/")[0] == "train"


def env_seed(seed: int, env: int, purpose: str) -> int:
    """A 31-bit seed per (seed, env, purpose), the same whichever seeds run beside it."""
    return zlib.crc32(f"{seed}/{env}/{purpose}".encode()) & 0x7FFFFFFF


def _single(dtype: Any) -> Any:
    """The dtype, or the one of 32 bits for one of 64."""
    return (
        {"f": jnp.float32, "i": jnp.int32, "u": jnp.uint32}[dtype.kind]
        if dtype.itemsize == 8
        else dtype
    )


def _single_precision(space: Any) -> Any:
    """The same space with boxes of 64 bits as boxes of 32."""
    if isinstance(space, spaces.Dict):
        return spaces.Dict({key: _single_precision(part) for key, part in space.items()})
    if isinstance(space, spaces.Tuple):
        return spaces.Tuple([_single_precision(part) for part in space])
    if not isinstance(space, spaces.Box):
        return space
    dtype = np.dtype(_single(space.dtype))
    low, high = _bound(space.low, dtype), _bound(space.high, dtype)
    if dtype.kind == "f":  # EnvPool declares no lower bound as 0 or as the smallest number above it
        low = np.where((low >= 0.0) & (high >= np.finfo(dtype).max), -high, low)
    return spaces.Box(low, high, dtype=dtype)


def _is_choices(space: spaces.Space[Any]) -> bool:
    """A row of integers, which EnvPool declares as a box."""
    return isinstance(space, spaces.Box) and space.dtype.kind in "iu" and len(space.shape) == 1


def _action(space: Any) -> Any:
    """The action space as Sterling sees it."""
    if _is_choices(space):
        return spaces.MultiDiscrete(space.high.astype(np.int64) - space.low + 1)
    return _single_precision(space)


def _bound(bound: np.ndarray, dtype: Any) -> np.ndarray:
    """A bound in a smaller dtype, which may not hold it."""
    if dtype.kind == "f":
        with np.errstate(over="ignore"):  # what lies beyond is infinite
            return bound.astype(dtype)
    limits = np.iinfo(dtype)
    return np.clip(bound, limits.min, limits.max).astype(dtype)
