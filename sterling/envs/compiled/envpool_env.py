"""EnvPool: environments in C++, stepped inside the compiled program.

One pool serves every seed. EnvPool resets on the step after an end and ignores that step's action,
which is Sterling's own convention: rows that reset are masked and nothing else is changed. Its C++
side exchanges float64 for MuJoCo, so calls are traced and made under ``enable_x64`` and cast at the
boundary (without it memory is silently corrupted). An episode that ends in the very step of its
time limit counts as truncated: EnvPool does not tell the two apart.

Atari: with ``episodic_life`` a lost life is an end for the learner (discount 0), while scores count
whole games; EnvPool continues the same game and presses FIRE where a game needs it. In worlds for
evaluation ``last`` is True only where the game is over.
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
from jaxtyping import Array, Bool, Key, PyTree

from sterling.envs.compiled import envpool_goals
from sterling.envs.compiled.envpool_spaces import (
    agent_action_space,
    dtype_of_32_bits,
    is_integer_vector,
    space_of_32_bits,
)
from sterling.envs.declared_channels import envpool_channels
from sterling.envs.env_options import check_bool, check_options
from sterling.problem.time_limit import positive_limit
from sterling.types import Action, AnyArray, Mistake, Obs, Score, Spec, Step

# options that Sterling sets itself, or that a world cannot have
RESERVED_OPTIONS = (
    *("num_envs", "batch_size", "seed", "env_seed", "base_path"),
    *("gym_reset_return_info", "max_num_players"),
)
# options of EnvPool's ``make`` for MuJoCo, beside a task's own
RENDER_OPTIONS = ("from_pixels", "render_width", "render_height", "render_camera_id")


class PoolState(eqx.Module):
    """EnvPool's opaque handle, and which episodes ended in the last step."""

    handle: Array
    ended: Bool[Array, "seed env"]


class EnvPoolWorld:
    """``seeds x envs`` copies of one EnvPool task as a :class:`sterling.types.World`."""

    traced = True
    exact = False  # the simulators live in C++: a resumed run starts new episodes
    stack = 1

    def __init__(
        self,
        name: str,
        /,
        seeds: tuple[int, ...],
        envs: int,
        *,
        purpose: str = "train",
        channels: Any = None,  # as text; None: "success" where the task has goals
        **options: Any,
    ):
        check_options(name, options, [*option_names(name), "channels"])
        self.seeds, self.envs = len(seeds), envs
        env_seeds = [env_seed(seed, env, purpose) for seed in seeds for env in range(envs)]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            self._pool = _make_pool(name, env_seeds, options)
            action, obs = self._pool.action_space, self._pool.observation_space
        self._check_players(name)
        with jax.enable_x64(True):
            self._handle, self._recv, self._send, _ = self._pool.xla()
        declared = list(self._pool.spec.action_array_spec.values())[-1]
        self._action_dtype = declared.dtype
        # Sterling counts choices from 0
        self._first_choice = action.low if is_integer_vector(action) else None
        self._lives_end_episodes = is_atari(name) and bool(self._pool.config["episodic_life"])
        self._is_training = is_training_purpose(purpose)
        config, arrays = dict(self._pool.config), self._pool.spec.state_array_spec
        judge = envpool_goals.find_judge(config, obs)
        if channels is None:
            channels = envpool_goals.success_channel(judge, arrays)
        self._reported = envpool_channels(name, arrays, str(channels))
        self.spec = Spec(
            obs=space_of_32_bits(obs),
            action=agent_action_space(action),
            envs=envs,
            channels=self._reported,
            judge=judge,
            limit=positive_limit(config.get("max_episode_steps")),
        )

    def reset(self, keys: Key[Array, "seed"]) -> tuple[PoolState, Obs]:
        """Start every episode anew; the pool has its own seeds and ignores ``keys``."""
        obs, _ = self._pool.reset()
        ended = jnp.zeros((self.seeds, self.envs), bool)
        return PoolState(jnp.asarray(self._handle), ended), self._by_seed(obs)

    def step(
        self, state: PoolState, action: Action, keys: Key[Array, "seed"]
    ) -> tuple[PoolState, Step]:
        """Step every env, inside the compiled program."""
        flat = action.reshape(-1, *action.shape[2:])
        if self._first_choice is not None:
            flat = flat + self._first_choice.astype(flat.dtype)[None]
        with jax.enable_x64(True):
            handle = self._send(state.handle, flat.astype(self._action_dtype))
            handle, (obs, reward, terminated, truncated, info) = self._recv(handle)
            game_over = info["terminated"] != 0 if self._lives_end_episodes else terminated
            channels = {each: info[each] for each in self._reported}
            answer = self._by_seed((obs, reward, terminated, truncated, game_over, channels))
        obs, reward, terminated, truncated, game_over, channels = answer
        resetting = state.ended
        ended = (terminated | truncated) & ~resetting
        last = (game_over | truncated) & ~resetting
        discount = (~terminated | truncated).astype(jnp.float32)
        lives = self._lives_end_episodes and self._is_training
        score = Score(reward, last) if lives else None
        channels = {
            each: _zero_where(resetting, x.astype(jnp.float32)) for each, x in channels.items()
        }
        step = Step(obs, reward, discount, ended if lives else last, ~resetting, score, channels)
        return PoolState(handle, ended), step

    def close(self) -> None:
        """Release the pool's threads."""
        self._pool.close()

    def _by_seed(self, tree: PyTree) -> PyTree:
        """Reshape (seed * env, ...) to (seed, env, ...) and cast 64-bit leaves to 32 bits."""

        def shape(x: AnyArray) -> Array:
            x = jnp.asarray(x).reshape(self.seeds, self.envs, *x.shape[1:])
            return x.astype(dtype_of_32_bits(x.dtype))

        return jax.tree.map(shape, tree)

    def _check_players(self, name: str) -> None:
        players = int(self._pool.config.get("max_num_players", 1))
        if players > 1:
            raise Mistake(
                f"Environment {name} has {players} simultaneous players, but EnvPool worlds here "
                "have one agent. Use another environment."
            )


def _make_pool(name: str, env_seeds: list[int], options: dict[str, Any]) -> Any:
    """Make EnvPool's own object; raises Mistake if its options or files are wrong."""
    import envpool

    count = len(env_seeds)
    try:
        return envpool.make(name, env_type="gymnasium", num_envs=count, seed=env_seeds, **options)
    except TypeError as error:
        given = ", ".join(f"{key}={value!r}" for key, value in options.items())
        raise Mistake(
            f"Environment {name} cannot be made with {given}. Use other options."
        ) from error
    except RuntimeError as error:  # a file that it needs is missing
        raise Mistake(f"Environment {name} cannot be made: {error}") from error


def _zero_where(resetting: Bool[Array, "seed env"], x: Array) -> Array:
    """Return ``x``, set to 0 where an episode has just begun."""
    return jnp.where(resetting.reshape(resetting.shape + (1,) * (x.ndim - 2)), 0.0, x)


def unavailable_reason() -> str | None:
    """Return why EnvPool cannot be used here; None if it can."""
    if sys.platform in ("darwin", "win32"):
        return "EnvPool cannot be compiled into programs on this operating system"
    return None if importlib.util.find_spec("envpool") else "EnvPool is not installed"


def option_names(name: str) -> list[str]:
    """Return the names of the options that a user may give for a task."""
    module, spec, _ = _task_registry()[name]
    pictures = RENDER_OPTIONS if module.startswith("envpool.mujoco") else ()
    try:
        keys = getattr(importlib.import_module(module), spec)._config_keys
    except ImportError as error:
        raise Mistake(f"Environment {name} cannot be made: {error}") from error
    return sorted({*keys, *pictures} - set(RESERVED_OPTIONS))


def is_atari(name: str) -> bool:
    """Whether a task is an Atari game."""
    return _task_registry()[name][0] == "envpool.atari"


def clips_rewards(name: str, options: dict[str, Any]) -> bool:
    """Whether training uses the sign of rewards: True for Atari games unless ``reward_clip=False``.

    Raises Mistake if ``reward_clip`` is neither true nor false.
    """
    if not is_atari(name):
        return False
    clip = options.get("reward_clip", True)
    check_bool("reward_clip", clip)
    return bool(clip)


def has_lives(name: str, options: dict[str, Any]) -> bool:
    """Whether a lost life ends an episode of experience: True for Atari games unless
    ``episodic_life=False``. EnvPool then idles for a step before the game continues."""
    return is_atari(name) and bool(options.get("episodic_life", True))


def knows(name: str) -> bool:
    """Whether EnvPool can be used and has ``name``."""
    return unavailable_reason() is None and name in _task_registry()


def names() -> list[str]:
    """Return the names of all EnvPool tasks; none where EnvPool cannot be used."""
    return sorted(_task_registry()) if unavailable_reason() is None else []


def family(name: str) -> str:
    """Return the part of EnvPool that a task belongs to, such as ``mujoco.dmc``."""
    return _task_registry()[name][0].removeprefix("envpool.")


def unusable_reason(name: str) -> str | None:
    """Return why a listed task cannot run here, without making it; None if no reason is known.

    Known reasons: several simultaneous players, or a system library that is not installed.
    """
    module, spec, defaults = _task_registry()[name]
    players = defaults.get("max_num_players", 1)
    if players > 1:
        return f"needs {players} simultaneous players; EnvPool worlds here have one agent"
    try:
        getattr(importlib.import_module(module), spec)
    except ImportError as error:
        return str(error)
    return None


def task_defaults(name: str) -> dict[str, Any]:
    """Return the options with which EnvPool registered a task; what is changed in it counts."""
    return _task_registry()[name][2]


def _task_registry() -> dict[str, tuple[str, str, dict[str, Any]]]:
    """Return EnvPool's registry: task name -> module, name of its spec class, defaults."""
    from envpool.registration import registry

    return registry.specs


def is_training_purpose(purpose: str) -> bool:
    """Whether a world made for ``purpose`` is for training."""
    return purpose.partition("/")[0] == "train"


def env_seed(seed: int, env: int, purpose: str) -> int:
    """Return a 31-bit seed for (seed, env, purpose), whichever other seeds run beside it."""
    return zlib.crc32(f"{seed}/{env}/{purpose}".encode()) & 0x7FFFFFFF
