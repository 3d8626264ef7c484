"""Worlds made of worlds: the same protocol outside and inside.

They work on traced worlds (in JAX) and on host worlds (in NumPy). ``ActionRepeat`` and
``TimeLimit`` need a world whose state is all arrays: elsewhere the world itself must be asked, and
the message says how.
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

from sterling import keys as named
from sterling.envs.board import is_bounded
from sterling.envs.starts import Start, able
from sterling.envs.traced import select
from sterling.types import Action, AnyArray, Mistake, Obs, Score, Spec, Step, World


class Wrapper:
    """A world that answers as ``world`` does, but for what a subclass says otherwise."""

    def __init__(self, world: World, spec: Spec | None = None, stack: int | None = None):
        self.world, self.spec = world, world.spec if spec is None else spec
        self.seeds, self.traced, self.exact = world.seeds, world.traced, world.exact
        self.stack = getattr(world, "stack", 1) if stack is None else stack
        self.alternating = getattr(world, "alternating", False)  # a game of two sides in turn
        self._numpy: Any = jnp if world.traced else np

    def reset(self, keys: Key[Array, "seed"]) -> tuple[PyTree, Obs]:
        """Start every episode anew."""
        return self.world.reset(keys)

    def step(self, state: PyTree, action: Action, keys: Key[Array, "seed"]) -> tuple[PyTree, Step]:
        """One step of every env."""
        return self.world.step(state, action, keys)

    @property
    def book(self) -> PyTree:
        """The levels that episodes begin in (``envs/starts.py``)."""
        return able(self.world).book

    def assign(
        self, state: PyTree, start: Start, given: Bool[Array, "seed env"], now: bool = False
    ) -> PyTree:
        """Tell the inner world where episodes begin."""
        return able(self.world).assign(state, start, given, now)

    def here(self, state: PyTree, obs: Obs) -> Start:
        """Where the inner world is."""
        return able(self.world).here(state, obs)

    def to_world(self, action: Action) -> Action:
        """An agent's action as the environment itself takes it."""
        inner = getattr(self.world, "to_world", None)
        return inner(action) if inner else action

    def to_agent(self, obs: Obs) -> Obs:
        """What the environment itself shows as an agent sees it; frames must be stacked already."""
        inner = getattr(self.world, "to_agent", None)
        return inner(obs) if inner else obs

    def close(self) -> None:
        """Release what the inner world holds."""
        self.world.close()


class RescaleAction(Wrapper):
    """Actions in [-1, 1] for a bounded box: clipped, then stretched to its bounds, and rounded
    where it holds integers."""

    def __init__(self, world: World):
        space: Any = world.spec.action
        if not is_bounded(space):
            raise Mistake(f"only a bounded Box can be rescaled, not {space}")
        low, high = space.low.astype(np.float32), space.high.astype(np.float32)
        self._middle, self._half = (low + high) / 2.0, (high - low) / 2.0
        self._whole = space.dtype.kind in "iu"
        unit = spaces.Box(-1.0, 1.0, space.shape, np.float32)
        super().__init__(world, dataclasses.replace(world.spec, action=unit))

    def step(
        self, state: PyTree, action: AnyArray, keys: Key[Array, "seed"]
    ) -> tuple[PyTree, Step]:
        """Step with the stretched action."""
        return self.world.step(state, self._stretched(action), keys)

    def to_world(self, action: Action) -> Action:
        """In the environment's own units; leading axes are free."""
        return super().to_world(self._stretched(action))

    def _stretched(self, action: AnyArray) -> AnyArray:
        unit = self._numpy.clip(action, -1.0, 1.0).astype(np.float32)
        lead = (1,) * (unit.ndim - self._half.ndim)
        middle, half = (x.reshape(lead + x.shape) for x in (self._middle, self._half))
        made = middle + unit * half
        return self._numpy.rint(made) if self._whole else made  # still floats: NaN stays NaN


class Flatten(Wrapper):
    """Observations of any shape as one vector of float32; bytes become numbers from 0 to 1."""

    def __init__(self, world: World):
        space = world.spec.obs
        if not isinstance(space, spaces.Box) or world.spec.agents:
            what = "what several agents see" if world.spec.agents else space
            raise Mistake(f"only a Box can be flattened, not {what}; leave out flatten")
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
        return state, self._flat(obs)

    def step(self, state: PyTree, action: Action, keys: Key[Array, "seed"]) -> tuple[PyTree, Step]:
        """Step, and flatten what is seen."""
        state, step = self.world.step(state, action, keys)
        return state, dataclasses.replace(step, obs=self._flat(step.obs))

    def here(self, state: PyTree, obs: Obs) -> Start:
        """Where the inner world is, which shows its observations in their own shape."""
        space: Any = self.world.spec.obs
        lead, whole = obs.shape[:2], space.dtype.kind in "iu"
        raw = obs.reshape(*lead, *self._shape) / self._unit
        raw = (self._numpy.rint(raw) if whole else raw).astype(space.dtype)
        return super().here(state, raw)

    def to_agent(self, obs: Obs) -> Obs:
        """As one vector; leading axes are free."""
        return self._flat(super().to_agent(obs))

    def _flat(self, obs: Any) -> AnyArray:
        lead = obs.shape[: obs.ndim - len(self._shape)]
        return obs.reshape(*lead, -1).astype(np.float32) * np.float32(self._unit)


class ClipReward(Wrapper):
    """The learner sees the reward's sign (Mnih 2015); the score keeps the reward."""

    def __init__(self, world: World):
        judge = world.spec.judge

        def clipped(achieved: Any, desired: Any) -> tuple[Any, Any]:
            assert judge is not None
            reward, discount = judge(achieved, desired)
            return jnp.sign(reward), discount

        own = None if judge is None else clipped
        super().__init__(world, dataclasses.replace(world.spec, judge=own))

    def step(self, state: PyTree, action: Action, keys: Key[Array, "seed"]) -> tuple[PyTree, Step]:
        """Step, and clip."""
        state, step = self.world.step(state, action, keys)
        clipped = self._numpy.sign(step.reward)
        return state, dataclasses.replace(step, reward=clipped, score=step.counted)


class ActionRepeat(Wrapper):
    """Every action is taken ``times`` times, or until the episode is over; rewards add up."""

    def __init__(self, world: World, times: int):
        if times < 1:
            raise Mistake(f"an action cannot be repeated {times} times; use 1 or more")
        if not world.exact:
            raise Mistake(
                "ActionRepeat cannot hold this world still at an episode's end; "
                "give EnvPool frame_skip=..., or wrap the Gymnasium environment itself"
            )
        # what is achieved between two of its steps is not seen, so goals cannot be judged anew
        super().__init__(world, dataclasses.replace(world.spec, judge=None))
        self._times = times

    def step(self, state: PyTree, action: Action, keys: Key[Array, "seed"]) -> tuple[PyTree, Step]:
        """Repeat; a reset happens once and is the whole step."""
        state, step = self.world.step(state, action, keys)

        def again(carry: tuple[PyTree, Step], time: Int[Array, ""]) -> tuple[Any, None]:
            state, step = carry
            over = step.last | ~step.mask
            moved, more = self.world.step(state, action, named.fold_each(keys, "repeat", time))
            score = more.score
            if score is not None and step.score is not None:
                score = Score(step.score.reward + score.reward, score.last)
            channels = self._together(step.channels, more.channels, time)
            more = dataclasses.replace(
                more, reward=step.reward + more.reward, score=score, channels=channels
            )
            return select(over, (state, step), (moved, more)), None

        times = jnp.arange(1, self._times, dtype=jnp.int32)
        return jax.lax.scan(again, (state, step), times)[0]

    def _together(
        self, so_far: dict[str, AnyArray], now: dict[str, AnyArray], steps: Int[Array, ""]
    ) -> dict[str, AnyArray]:
        """Each channel's value of ``steps`` repetitions and one more, reduced as in an episode."""
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
    """The inner world's state, how long episodes have run, and which were just cut."""

    world: PyTree
    elapsed: Int[Array, "seed env"]
    cut: Bool[Array, "seed env"]


class TimeLimit(Wrapper):
    """Cuts episodes after ``steps`` steps: ``last`` with discount 1, then a fresh episode."""

    def __init__(self, world: World, steps: int):
        if steps < 1:
            raise Mistake(f"a time limit of {steps} steps is not possible; use 1 or more")
        if not world.exact:
            raise Mistake(
                "TimeLimit cannot reset one env of this world; "
                "give the environment max_episode_steps=... instead"
            )
        super().__init__(world)
        self._steps = steps

    def reset(self, keys: Key[Array, "seed"]) -> tuple[LimitState, Obs]:
        """Start every episode and its clock."""
        state, obs = self.world.reset(keys)
        shape = (self.seeds, self.spec.envs)
        return LimitState(state, jnp.zeros(shape, jnp.int32), jnp.zeros(shape, bool)), obs

    def assign(
        self, state: PyTree, start: Start, given: Bool[Array, "seed env"], now: bool = False
    ) -> PyTree:
        """Raises Mistake: episodes begin by this wrapper's own clock."""
        raise Mistake(
            "TimeLimit cannot be told where an episode begins; give the environment "
            "max_episode_steps=... instead"
        )

    def step(
        self, state: LimitState, action: Action, keys: Key[Array, "seed"]
    ) -> tuple[LimitState, Step]:
        """Step, or reset what was cut in the step before."""
        moved, step = self.world.step(state.world, action, keys)
        started, first_obs = self.world.reset(named.fold_each(keys, "limit"))
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
        step = select(state.cut, fresh, step)
        cut = (elapsed >= self._steps) & ~step.last
        score = None if step.score is None else Score(step.score.reward, step.score.last | cut)
        step = dataclasses.replace(step, last=step.last | cut, score=score)
        return LimitState(select(state.cut, started, moved), elapsed, cut), step
