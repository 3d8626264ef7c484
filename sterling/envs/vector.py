"""A vectorised Gymnasium environment as a world, whatever its autoreset mode.

Sterling's convention is Gymnasium's ``NEXT_STEP``: the step after an end resets and is masked. With
that mode nothing is lost, so ask for it wherever there is a choice. The other two modes cannot let
one sub-environment reset while the others step:

    SAME_STEP  the reset happens within the last step; its true successor is ``info["final_obs"]``
    DISABLED   the reset is ordered, with ``reset_mask``, before the next step

In both the step after an end is already the first step of the new episode, taken with an action
chosen for the old one's final observation. That step is masked: no stored transition joins two
episodes, but the first transition of every episode is not learned from, and an episode of a single
step is not seen at all. Its reward still counts in the episode's return (not in its length).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import numpy as np
from gymnasium import Space
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv, VectorEnv
from jaxtyping import Array, Bool, Key, PyTree

from sterling.envs.board import as_seen, leaves, own, plain, seen
from sterling.envs.envpool import env_seed
from sterling.types import Action, Mistake, Obs, Score, Spec, Step


class Vector:
    """``make_vec(count)`` with ``count = seeds x envs`` as a :class:`sterling.types.World`.

    Unlike :class:`~sterling.envs.gymnasium.Host` it steps what it is given: failures in the
    sub-environments are the vector environment's affair and end the run.
    """

    traced = False
    exact = False  # episodes cannot be saved: a resumed run starts fresh ones
    stack = 1

    def __init__(
        self,
        make_vec: Callable[[int], VectorEnv],
        seeds: tuple[int, ...],
        envs: int,
        *,
        purpose: str = "train",
        name: str = "",
    ):
        count = len(seeds) * envs
        self._vec, self.seeds, self.envs = make_vec(count), len(seeds), envs
        self.name = name or type(self._vec.unwrapped).__name__
        if self._vec.num_envs != count:
            raise Mistake(
                f"environment {self.name} has {self._vec.num_envs} copies where {len(seeds)} seeds "
                f"x {envs} envs are {count}; let make_vec(count) build that many"
            )
        mode = self._vec.metadata.get("autoreset_mode")
        if mode is None:
            raise Mistake(
                f"environment {self.name} does not say how it resets; set "
                'metadata["autoreset_mode"] to one of gymnasium.vector.AutoresetMode'
            )
        self._mode = AutoresetMode(mode)
        self._seeds = [env_seed(seed, env, purpose) for seed in seeds for env in range(envs)]
        action, obs = self._vec.single_action_space, self._vec.single_observation_space
        self.spec = Spec(obs=plain(obs, single=True), action=seen(plain(action)), envs=envs)
        self._started = False
        self._due = np.zeros(count, bool)  # the episode is over
        self._owed = np.zeros(count, np.float32)  # reward of a masked first step

    def reset(self, keys: Key[Array, "seed"]) -> tuple[None, Obs]:
        """Start every episode anew; seeded by the world's own seeds; ``keys`` are not used."""
        obs, _ = self._vec.reset(seed=None if self._started else self._seed())
        self._started = True
        self._due[:], self._owed[:] = False, 0.0
        obs = jax.tree.map(np.array, obs)
        self._check(obs)
        return None, self._shaped(obs)

    def step(self, state: None, action: Action, keys: Key[Array, "seed"]) -> tuple[None, Step]:
        """One step of every environment."""
        due = self._due
        if self._mode is AutoresetMode.DISABLED and due.any():
            self._vec.reset(options={"reset_mask": due})
        obs, reward, terminated, truncated, info = self._vec.step(self._actions(action))
        ended = np.asarray(terminated | truncated)
        obs = jax.tree.map(np.array, obs)  # the environment may write into its own again
        if self._mode is AutoresetMode.SAME_STEP and ended.any():
            self._put_final(obs, ended, info)
        reward = np.asarray(reward, np.float32)
        score = None
        if self._mode is not AutoresetMode.NEXT_STEP:
            counted = np.where(due, np.float32(0.0), reward + self._owed)
            self._owed = np.where(due, reward, np.float32(0.0))
            score = Score(self._shape(counted), self._shape(ended))
        self._due = ended
        answer = Step(
            self._shaped(obs),
            self._shape(np.where(due, np.float32(0.0), reward)),
            self._shape(np.where(terminated & ~due, np.float32(0.0), np.float32(1.0))),
            self._shape(ended),
            self._shape(~due),
            score,
        )
        return None, answer

    @property
    def action_space(self) -> Space[Any]:
        """The environment's own, of one copy."""
        return self._vec.single_action_space

    def to_world(self, action: Action) -> Action:
        """Actions with any leading axes as the environment itself takes them."""
        spaces = iter(leaf for _, leaf in leaves(self.action_space))
        return jax.tree.map(lambda part: own(next(spaces), np.asarray(part)), action)

    def close(self) -> None:
        """Close the vector environment."""
        self._vec.close()

    def _seed(self) -> Any:
        """One seed per copy where the class is known to take a list, otherwise one for all."""
        takes_list = isinstance(self._vec.unwrapped, (SyncVectorEnv, AsyncVectorEnv))
        return self._seeds if takes_list else self._seeds[0]

    def _actions(self, action: Action) -> Any:
        """(seed, env, ...) -> (seed * env, ...) in the environment's own dtype and count."""
        rows = jax.tree.map(np.asarray, action)
        rows = jax.tree.map(lambda x: x.reshape(len(self._due), *x.shape[2:]), rows)
        return self.to_world(rows)

    def _put_final(self, obs: PyTree, ended: Bool[np.ndarray, "total"], info: Any) -> None:
        """Replace the first observations of new episodes by the last ones of those that ended."""
        if "final_obs" not in info:
            raise Mistake(
                f"environment {self.name} resets in the same step but gives no info['final_obs']; "
                "make it with autoreset_mode=NEXT_STEP"
            )
        final, whole = info["final_obs"], jax.tree.leaves(obs)
        is_list = isinstance(final, np.ndarray) and final.dtype == object  # one per copy
        for row in np.flatnonzero(ended):
            parts = jax.tree.leaves(final[row] if is_list else final)
            for array, part in zip(whole, parts, strict=True):
                array[row] = part if is_list else part[row]

    def _check(self, obs: PyTree) -> None:
        """The first observation must be what the space says."""
        parts = zip(leaves(self.spec.obs), jax.tree.leaves(obs), strict=True)
        for (_, space), part in parts:
            expected = (len(self._due), *(space.shape or ()))
            if part.shape != expected:
                raise Mistake(
                    f"environment {self.name}: observations of shape {part.shape} where "
                    f"observation_space says {expected}"
                )

    def _shaped(self, obs: PyTree) -> PyTree:
        """(seed * env, ...) -> (seed, env, ...), what 32 bits do not hold as float32."""
        return jax.tree.map(self._shape, as_seen(self.spec.obs, obs))

    def _shape(self, array: np.ndarray) -> np.ndarray:
        return array.reshape(self.seeds, self.envs, *array.shape[1:])
