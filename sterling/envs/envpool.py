"""EnvPool: 1,600 worlds in C++, stepped inside the compiled program.

One pool serves every seed. EnvPool resets on the step after an end (the action of that step is
ignored), which is Sterling's own convention, so nothing has to be patched: rows whose episode was
already over are masked. Its C++ side exchanges float64 for MuJoCo; the calls are therefore made
and traced under ``enable_x64`` and cast at the boundary (without it memory is silently corrupted).
"""

from __future__ import annotations

import warnings
import zlib
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from gymnasium import spaces
from jaxtyping import Array, Bool, Key, PyTree

from sterling.types import Action, AnyArray, Mistake, Obs, Spec, Step


class PoolState(eqx.Module):
    """EnvPool's opaque handle, and which episodes have just ended."""

    handle: Array
    ended: Bool[Array, "seed env"]


class Pool:
    """``seeds x envs`` copies of one EnvPool task as a :class:`sterling.types.World`."""

    traced = True
    exact = False  # the simulators live in C++: a resumed run starts fresh episodes

    def __init__(
        self, name: str, seeds: tuple[int, ...], envs: int, *, purpose: str = "train", **options: Any
    ):
        import envpool

        self.seeds, self.envs = len(seeds), envs
        env_seeds = [_env_seed(seed, env, purpose) for seed in seeds for env in range(envs)]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                self._pool = envpool.make(
                    name, env_type="gymnasium", num_envs=len(env_seeds), seed=env_seeds, **options
                )
            except TypeError as error:
                raise Mistake(f"environment {name}: {error}") from error
            action, obs = self._pool.action_space, self._pool.observation_space
        with jax.enable_x64(True):
            self._handle, self._recv, self._send, _ = self._pool.xla()
        self._action_dtype = self._pool.spec.action_array_spec[self._pool.spec._action_keys[-1]].dtype
        self.spec = Spec(obs=_single_precision(obs), action=_single_precision(action), envs=envs)

    def reset(self, keys: Key[Array, "seed"]) -> tuple[PoolState, Obs]:
        """Start every episode anew; the pool's own seeds decide, ``keys`` are not used."""
        obs, _ = self._pool.reset()
        ended = jnp.zeros((self.seeds, self.envs), bool)
        return PoolState(jnp.asarray(self._handle), ended), self._shape(obs)

    def step(
        self, state: PoolState, action: Action, keys: Key[Array, "seed"]
    ) -> tuple[PoolState, Step]:
        """One step of every env; traced."""
        flat = jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), action)
        with jax.enable_x64(True):
            handle = self._send(state.handle, flat.astype(self._action_dtype))
            handle, (obs, reward, terminated, truncated, _) = self._recv(handle)
            obs, reward = self._shape(obs), self._shape(reward)
            terminated, truncated = self._shape(terminated), self._shape(truncated)
        fresh = state.ended
        last = (terminated | truncated) & ~fresh
        discount = jnp.where(terminated & ~truncated, 0.0, 1.0).astype(jnp.float32)
        step = Step(obs, reward.astype(jnp.float32), discount, last, ~fresh)
        return PoolState(handle, last), step

    def close(self) -> None:
        """Release the pool's threads."""
        self._pool.close()

    def _shape(self, tree: PyTree) -> PyTree:
        """(seed * env, ...) -> (seed, env, ...), in the dtype the space says."""

        def shape(x: AnyArray) -> Array:
            x = jnp.asarray(x).reshape(self.seeds, self.envs, *x.shape[1:])
            return x.astype(jnp.float32) if x.dtype == jnp.float64 else x

        return jax.tree.map(shape, tree)


def names() -> list[str]:
    """Every task EnvPool offers."""
    import envpool

    return sorted(envpool.list_all_envs())


def _env_seed(seed: int, env: int, purpose: str) -> int:
    """A 31-bit seed per (seed, env, purpose), the same whichever seeds run beside it."""
    return zlib.crc32(f"{seed}/{env}/{purpose}".encode()) & 0x7FFFFFFF


def _single_precision(space: Any) -> Any:
    """The same space with float64 boxes as float32."""
    if isinstance(space, spaces.Dict):
        return spaces.Dict({key: _single_precision(part) for key, part in space.items()})
    if isinstance(space, spaces.Tuple):
        return spaces.Tuple([_single_precision(part) for part in space])
    if isinstance(space, spaces.Box) and space.dtype == np.float64:
        low, high = space.low.astype(np.float32), space.high.astype(np.float32)
        return spaces.Box(low, high, dtype=np.float32)
    return space
