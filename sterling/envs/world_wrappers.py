"""Worlds around worlds: the same protocol outside and inside.

Wrappers work on traced worlds (in JAX) and on host worlds (in NumPy). ``ActionRepeat`` and
``TimeLimit`` need a world whose state is all arrays; for others, their messages say which option of
the environment to use instead.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from gymnasium import spaces
from jaxtyping import Array, Bool, Int, Key, PyTree

from sterling import random_keys
from sterling.envs.episode_starts import Start, require_startable
from sterling.envs.traced_world import tree_where
from sterling.problem.observation_values import cast_leaf
from sterling.types import Action, AnyArray, Mistake, Obs, Score, Spec, Step, World


class Wrapper:
    """A world that behaves as ``world`` does, except for what a subclass changes."""

    def __init__(self, world: World, spec: Spec | None = None, stack: int | None = None):
        self.world, self.spec = world, world.spec if spec is None else spec
        self.seeds, self.traced, self.exact = world.seeds, world.traced, world.exact
        self.stack = getattr(world, "stack", 1) if stack is None else stack
        self._np: Any = jnp if world.traced else np

    def reset(self, keys: Key[Array, "seed"]) -> tuple[PyTree, Obs]:
        """Start every episode anew."""
        return self.world.reset(keys)

    def step(self, state: PyTree, action: Action, keys: Key[Array, "seed"]) -> tuple[PyTree, Step]:
        """Step every env."""
        return self.world.step(state, action, keys)

    @property
    def book(self) -> PyTree:
        """The levels that episodes begin in (``envs/episode_starts.py``)."""
        return require_startable(self.world).book

    def assign_start(
        self, state: PyTree, start: Start, given: Bool[Array, "seed env"], now: bool = False
    ) -> PyTree:
        """Tell the inner world where episodes begin."""
        return require_startable(self.world).assign_start(state, start, given, now)

    def current_start(self, state: PyTree, obs: Obs) -> Start:
        """Return the inner world's current state as a start."""
        return require_startable(self.world).current_start(state, obs)

    def to_world(self, action: Action) -> Action:
        """Convert an agent's action to the environment's own."""
        inner = getattr(self.world, "to_world", None)
        return inner(action) if inner else action

    def to_agent(self, obs: Obs) -> Obs:
        """Convert the environment's own observation to the form that agents see; frames must be
        stacked already."""
        inner = getattr(self.world, "to_agent", None)
        return inner(obs) if inner else obs

    def close(self) -> None:
        """Release what the inner world holds."""
        self.world.close()


class Flatten(Wrapper):
    """Observe a box of any shape as one vector of float32; bytes are scaled to [0, 1]."""

    def __init__(self, world: World):
        space = world.spec.obs
        if not isinstance(space, spaces.Box) or world.spec.agents:
            what = "observations of several agents" if world.spec.agents else space
            raise Mistake(f"Only a Box can be flattened, not {what}. Leave out flatten.")
        self._unit = 1.0 / 255.0 if space.dtype == np.uint8 else 1.0
        self._shape = space.shape
        low, high = (
            self._unit * bound.ravel().astype(np.float32) for bound in (space.low, space.high)
        )
        flat = spaces.Box(low, high, dtype=np.float32)
        super().__init__(world, dataclasses.replace(world.spec, obs=flat), stack=1)

    def reset(self, keys: Key[Array, "seed"]) -> tuple[PyTree, Obs]:
        """Start every episode anew."""
        state, obs = self.world.reset(keys)
        return state, self._flatten(obs)

    def step(self, state: PyTree, action: Action, keys: Key[Array, "seed"]) -> tuple[PyTree, Step]:
        """Step, and flatten the observations."""
        state, step = self.world.step(state, action, keys)
        return state, dataclasses.replace(step, obs=self._flatten(step.obs))

    def current_start(self, state: PyTree, obs: Obs) -> Start:
        """Return the inner world's current start; observations get their original shape back."""
        space: Any = self.world.spec.obs
        lead, whole = obs.shape[:2], space.dtype.kind in "iu"
        raw = obs.reshape(*lead, *self._shape) / self._unit
        raw = (self._np.rint(raw) if whole else raw).astype(space.dtype)
        return super().current_start(state, raw)

    def to_agent(self, obs: Obs) -> Obs:
        """Flatten an observation; any leading axes. Raise Mistake for a picture of bytes that holds
        something else, such as numbers in [0, 1]."""
        own: Any = super().to_agent(obs)
        if self._unit == 1.0:
            return self._flatten(own)
        try:
            return self._flatten(cast_leaf(self.world.spec.obs, own))
        except ValueError as error:
            raise Mistake(f"an observation {error}.") from error

    def _flatten(self, obs: Any) -> AnyArray:
        lead = obs.shape[: obs.ndim - len(self._shape)]
        return obs.reshape(*lead, -1).astype(np.float32) * np.float32(self._unit)


class ClipReward(Wrapper):
    """Clip the learner's reward to its sign (Mnih 2015); scores keep the reward."""

    def __init__(self, world: World):
        judge = world.spec.judge

        def clipped(achieved: Any, desired: Any) -> tuple[Any, Any]:
            assert judge is not None
            reward, discount = judge(achieved, desired)
            return jnp.sign(reward), discount

        own = None if judge is None else clipped
        super().__init__(world, dataclasses.replace(world.spec, judge=own))

    def step(self, state: PyTree, action: Action, keys: Key[Array, "seed"]) -> tuple[PyTree, Step]:
        """Step, and clip the reward to its sign."""
        state, step = self.world.step(state, action, keys)
        clipped = self._np.sign(step.reward)
        return state, dataclasses.replace(step, reward=clipped, score=step.counted)


class ActionRepeat(Wrapper):
    """Take every action ``times`` times, or until the episode is over; rewards add up."""

    def __init__(self, world: World, times: int):
        if times < 1:
            raise Mistake(f"An action cannot be repeated {times} times. Use 1 or more.")
        if not world.exact:
            raise Mistake(
                "ActionRepeat cannot stop this world at an episode's end. "
                "Give EnvPool frame_skip=..., or wrap the Gymnasium environment itself."
            )
        # goals achieved between two outer steps are not observed, so they cannot be judged anew
        limit = world.spec.limit
        limit = None if limit is None else -(-limit // times)
        super().__init__(world, dataclasses.replace(world.spec, judge=None, limit=limit))
        self._times = times

    def step(self, state: PyTree, action: Action, keys: Key[Array, "seed"]) -> tuple[PyTree, Step]:
        """Repeat the action; a reset happens once and is the whole step."""
        state, step = self.world.step(state, action, keys)

        def repeat(carry: tuple[PyTree, Step], time: Int[Array, ""]) -> tuple[Any, None]:
            state, step = carry
            over = step.last | ~step.mask
            moved, more = self.world.step(
                state, action, random_keys.fold_each(keys, "repeat", time)
            )
            score = more.score
            if score is not None and step.score is not None:
                score = Score(step.score.reward + score.reward, score.last)
            channels = self._combine_channels(step.channels, more.channels, time)
            more = dataclasses.replace(
                more, reward=step.reward + more.reward, score=score, channels=channels
            )
            return tree_where(over, (state, step), (moved, more)), None

        times = jnp.arange(1, self._times, dtype=jnp.int32)
        return jax.lax.scan(repeat, (state, step), times)[0]

    def _combine_channels(
        self, so_far: dict[str, AnyArray], now: dict[str, AnyArray], steps: Int[Array, ""]
    ) -> dict[str, AnyArray]:
        """Combine the channels of ``steps`` repetitions and one more, as an episode's steps are
        combined."""
        made, times = {}, steps.astype(jnp.float32)
        for name, channel in self.spec.channels.items():
            before, value = so_far[name], now[name]
            made[name] = {
                "sum": before + value,
                "mean": (times * before + value) / (times + 1.0),
                "last": value,
                "max": jnp.maximum(before, value),
            }[channel.reduce]
        return made


class LimitState(eqx.Module):
    """The inner world's state, the lengths of the episodes so far, and which were just
    truncated."""

    world: PyTree
    elapsed: Int[Array, "seed env"]
    cut: Bool[Array, "seed env"]


class TimeLimit(Wrapper):
    """Truncate episodes after ``steps`` steps: ``last`` with discount 1, then a new episode."""

    def __init__(self, world: World, steps: int):
        if steps < 1:
            raise Mistake(f"A time limit of {steps} steps is not possible. Use 1 or more.")
        if not world.exact:
            raise Mistake(
                "TimeLimit cannot reset one env of this world. "
                "Give the environment max_episode_steps=... instead."
            )
        limit = steps if world.spec.limit is None else min(steps, world.spec.limit)
        super().__init__(world, dataclasses.replace(world.spec, limit=limit))
        self._steps = steps

    def reset(self, keys: Key[Array, "seed"]) -> tuple[LimitState, Obs]:
        """Start every episode and its step count."""
        state, obs = self.world.reset(keys)
        shape = (self.seeds, self.spec.envs)
        return LimitState(state, jnp.zeros(shape, jnp.int32), jnp.zeros(shape, bool)), obs

    def assign_start(
        self, state: PyTree, start: Start, given: Bool[Array, "seed env"], now: bool = False
    ) -> PyTree:
        """Raise Mistake: this wrapper counts the steps of episodes itself."""
        raise Mistake(
            "TimeLimit cannot begin an episode in a given start. Give the environment "
            "max_episode_steps=... instead."
        )

    def step(
        self, state: LimitState, action: Action, keys: Key[Array, "seed"]
    ) -> tuple[LimitState, Step]:
        """Step, or reset what was truncated in the step before."""
        moved, step = self.world.step(state.world, action, keys)
        started, first_obs = self.world.reset(random_keys.fold_each(keys, "limit"))
        elapsed = jnp.where(state.cut | ~step.mask, 0, state.elapsed + 1)
        fresh = Step(
            first_obs,
            jnp.zeros_like(step.reward),
            jnp.ones_like(step.discount),
            jnp.zeros_like(step.last),
            jnp.zeros_like(step.mask),
            None if step.score is None else jax.tree.map(jnp.zeros_like, step.score),
            {name: jnp.zeros_like(value) for name, value in step.channels.items()},
        )
        step = tree_where(state.cut, fresh, step)
        cut = (elapsed >= self._steps) & ~step.last
        score = None if step.score is None else Score(step.score.reward, step.score.last | cut)
        step = dataclasses.replace(step, last=step.last | cut, score=score)
        return LimitState(tree_where(state.cut, started, moved), elapsed, cut), step
