"""A vectorised Gymnasium environment as a world, whatever its autoreset mode.

Sterling's convention is Gymnasium's ``NEXT_STEP``: the step after an end resets and is masked. In
that mode nothing is lost, so use it where you can. In the other two modes one sub-environment
cannot reset while the others step:

  SAME_STEP  the reset happens within the last step; the true next observation is
             ``info["final_obs"]``
  DISABLED   the reset is ordered, with ``reset_mask``, before the next step

In both, the step after an end is already the first step of the new episode, taken with an action
that was chosen for the old episode's final observation. That step is masked: no stored transition
joins two episodes, but the first transition of every episode is not learned from, and an episode of
one step is lost. Its reward still counts in the episode's return (not in its length).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import numpy as np
from gymnasium import Space
from gymnasium.spaces import Dict
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv, VectorEnv
from jaxtyping import Array, Bool, Key, PyTree

from sterling.envs.actions.action_bounds import agent_action_space, to_env_action
from sterling.envs.compiled.envpool_env import env_seed
from sterling.envs.hosted.shared_memory import (
    LARGEST_NUMBER,
    cast_observations,
    plain_space,
    space_leaves,
)
from sterling.problem.action_choices import ACTION_MASK
from sterling.problem.time_limit import vector_time_limit
from sterling.types import Action, Mistake, Obs, Score, Spec, Step


class VectorWorld:
    """``make_vec(count)`` with ``count = seeds x envs`` as a :class:`sterling.types.World`.

    Unlike :class:`~sterling.envs.hosted.hosted_env.HostWorld` it does not handle failures of
    sub-environments: they end the run.
    """

    traced = False
    exact = False  # episodes cannot be saved: a resumed run starts new ones
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
        self._vector_env, self.seeds, self.envs = make_vec(count), len(seeds), envs
        self.name = name or type(self._vector_env.unwrapped).__name__
        if self._vector_env.num_envs != count:
            raise Mistake(
                f"Environment {self.name} has {self._vector_env.num_envs} copies, but {len(seeds)} "
                f"seeds x {envs} envs are {count}. Let make_vec(count) build count copies."
            )
        mode = self._vector_env.metadata.get("autoreset_mode")
        if mode is None:
            raise Mistake(
                f"Environment {self.name} does not say how it resets. Set "
                'metadata["autoreset_mode"] to one of gymnasium.vector.AutoresetMode.'
            )
        self._mode = AutoresetMode(mode)
        self._seeds = [env_seed(seed, env, purpose) for seed in seeds for env in range(envs)]
        action = self._vector_env.single_action_space
        obs = self._vector_env.single_observation_space
        self.spec = Spec(
            obs=plain_space(obs, single=True),
            action=agent_action_space(plain_space(action)),
            envs=envs,
            limit=vector_time_limit(self._vector_env),
        )
        self._started = False
        self._must_reset = np.zeros(count, bool)  # the episode is over: the next step is masked
        self._masked_reward = np.zeros(count, np.float32)  # reward of a masked first step

    def reset(self, keys: Key[Array, "seed"]) -> tuple[None, Obs]:
        """Start every episode anew; the world has its own seeds and ignores ``keys``."""
        obs, info = self._vector_env.reset(seed=None if self._started else self._seed())
        self._refuse_mask(info)
        self._started = True
        self._must_reset[:], self._masked_reward[:] = False, 0.0
        obs = jax.tree.map(np.array, obs)
        self._check(obs)
        return None, self._cast_by_seed(obs)

    def step(self, state: None, action: Action, keys: Key[Array, "seed"]) -> tuple[None, Step]:
        """Step every environment."""
        resetting = self._must_reset
        if self._mode is AutoresetMode.DISABLED and resetting.any():
            self._vector_env.reset(options={"reset_mask": resetting})
        obs, reward, terminated, truncated, info = self._vector_env.step(self._actions(action))
        self._refuse_mask(info)
        ended = np.asarray(terminated | truncated)
        obs = jax.tree.map(np.array, obs)  # a copy: the environment may reuse its arrays
        if self._mode is AutoresetMode.SAME_STEP and ended.any():
            self._put_final_observations(obs, ended, info)
        reward = self._checked_rewards(np.asarray(reward))
        score = None
        if self._mode is not AutoresetMode.NEXT_STEP:
            counted = np.where(resetting, np.float32(0.0), reward + self._masked_reward)
            self._masked_reward = np.where(resetting, reward, np.float32(0.0))
            score = Score(self._by_seed(counted), self._by_seed(ended))
        self._must_reset = ended
        answer = Step(
            self._cast_by_seed(obs),
            self._by_seed(np.where(resetting, np.float32(0.0), reward)),
            self._by_seed(np.where(terminated & ~resetting, np.float32(0.0), np.float32(1.0))),
            self._by_seed(ended),
            self._by_seed(~resetting),
            score,
        )
        return None, answer

    @property
    def action_space(self) -> Space[Any]:
        """The environment's own action space, of one copy."""
        return self._vector_env.single_action_space

    def to_world(self, action: Action) -> Action:
        """Convert agents' actions, with any leading axes, to the environment's own."""
        spaces = iter(leaf for _, leaf in space_leaves(self.action_space))
        return jax.tree.map(lambda part: to_env_action(next(spaces), np.asarray(part)), action)

    def close(self) -> None:
        """Close the vector environment."""
        self._vector_env.close()

    def _seed(self) -> Any:
        """Return one seed per copy if the class is known to take a list, else one for all."""
        takes_list = isinstance(self._vector_env.unwrapped, (SyncVectorEnv, AsyncVectorEnv))
        return self._seeds if takes_list else self._seeds[0]

    def _actions(self, action: Action) -> Any:
        """Reshape (seed, env, ...) to (seed * env, ...) and convert to the environment's own
        actions."""
        rows = jax.tree.map(np.asarray, action)
        rows = jax.tree.map(lambda x: x.reshape(len(self._must_reset), *x.shape[2:]), rows)
        return self.to_world(rows)

    def _put_final_observations(
        self, obs: PyTree, ended: Bool[np.ndarray, "total"], info: Any
    ) -> None:
        """Replace the first observations of new episodes by the final ones of those that ended."""
        if "final_obs" not in info:
            raise Mistake(
                f"Environment {self.name} resets in the same step but gives no info['final_obs']. "
                "Make it with autoreset_mode=NEXT_STEP."
            )
        final, whole = info["final_obs"], jax.tree.leaves(obs)
        is_list = isinstance(final, np.ndarray) and final.dtype == object  # one object per copy
        for row in np.flatnonzero(ended):
            parts = jax.tree.leaves(final[row] if is_list else final)
            for array, part in zip(whole, parts, strict=True):
                array[row] = part if is_list else part[row]

    def _checked_rewards(self, reward: np.ndarray) -> np.ndarray:
        """Return the rewards as float32, NaN and infinity included; raise Mistake for numbers that
        float32 does not hold, and for complex ones."""
        wrong = np.isfinite(reward) & (np.abs(reward) > LARGEST_NUMBER)
        wrong |= np.iscomplexobj(reward)
        if np.any(wrong):
            first = reward.ravel()[np.argmax(wrong)]
            raise Mistake(
                f"Environment {self.name}: step() returned the reward {first!r}. Give real numbers "
                f"of at most {LARGEST_NUMBER:.3g}."
            )
        return reward.astype(np.float32)

    def _refuse_mask(self, info: Any) -> None:
        """Raise Mistake for masks that are not observed: they would be ignored."""
        space = self.spec.obs
        if ACTION_MASK in info and not (isinstance(space, Dict) and ACTION_MASK in space.spaces):
            raise Mistake(
                f"Environment {self.name} gives info[{ACTION_MASK!r}], which a vector environment "
                "cannot pass on. Observe it as an entry of a Dict, or give a factory of single "
                "environments."
            )

    def _check(self, obs: PyTree) -> None:
        """Raise Mistake if the first observations do not have their space's shapes."""
        parts = zip(space_leaves(self.spec.obs), jax.tree.leaves(obs), strict=True)
        for (_, space), part in parts:
            expected = (len(self._must_reset), *(space.shape or ()))
            if part.shape != expected:
                raise Mistake(
                    f"Environment {self.name}: observations have shape {part.shape}, but "
                    f"observation_space says {expected}."
                )

    def _cast_by_seed(self, obs: PyTree) -> PyTree:
        """Reshape (seed * env, ...) to (seed, env, ...), and cast what 32 bits do not hold to
        float32."""
        return jax.tree.map(self._by_seed, cast_observations(self.spec.obs, obs))

    def _by_seed(self, array: np.ndarray) -> np.ndarray:
        return array.reshape(self.seeds, self.envs, *array.shape[1:])
