"""Play random actions in a world and record everything that it returns."""

from __future__ import annotations

import dataclasses
import time
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from sterling import random_keys
from sterling.envs.hosted.shared_memory import arrange_leaves, space_leaves
from sterling.problem.action_choices import ACTION_MASK, choice_sizes
from sterling.problem.hybrid_action import HybridAction
from sterling.types import Spec, World


@dataclasses.dataclass(frozen=True)
class Trajectory:
    """What a world returned; leaves are ``(time, seed, env, ...)``, those of ``first`` without
    time."""

    first: Any  # observations
    obs: Any
    reward: np.ndarray
    discount: np.ndarray
    last: np.ndarray
    mask: np.ndarray
    channels: dict[str, np.ndarray]
    action: Any = None
    rate: float = 0.0  # environment steps per second, of all copies; the first step, which may
    # compile a program, is left out

    def difference(self, other: Trajectory, observations_only: bool = False) -> str | None:
        """Return the name of a part that differs in any bit, over the steps that both have; None if
        none does."""
        more = ("reward", "discount", "last", "channels")
        names = ("first", "obs") + (() if observations_only else more)
        words = {"first": "first observations", "obs": "observations", "last": "ends of episodes"}
        count = min(len(self.reward), len(other.reward))
        for name in names:
            pairs = zip(
                *(jax.tree.leaves(getattr(each, name)) for each in (self, other)), strict=True
            )
            cut = [(x, y) if name == "first" else (x[:count], y[:count]) for x, y in pairs]
            if not all(np.array_equal(x, y, equal_nan=x.dtype.kind == "f") for x, y in cut):
                return words.get(name, name if name == "channels" else f"{name}s")
        return None

    def select_seed(self, at: int) -> Trajectory:
        """Return the part of one seed."""
        first = jax.tree.map(lambda x: x[at : at + 1], self.first)
        rest = {
            each.name: jax.tree.map(lambda x: x[:, at : at + 1], getattr(self, each.name))
            for each in dataclasses.fields(self)
            if each.name not in ("first", "rate")
        }
        return Trajectory(first, **rest)


class CopyFailed(Exception):
    """A copy of a hosted environment failed, for the reason that is the message."""


class PlayStopped(Exception):
    """A world raised ``error``, after the steps that ``played`` holds (None: before the second)."""

    def __init__(self, error: BaseException, played: Trajectory | None):
        super().__init__(str(error))
        self.error, self.played = error, played


def unwrap_world(world: Any) -> Any:
    """Return the world inside all wrappers."""
    while hasattr(world, "world"):
        world = world.world
    return world


def play_randomly(
    world: World, seeds: tuple[int, ...], steps: int, key: int, save_at: int | None = None
) -> Trajectory:
    """Play ``steps`` random actions in ``world`` and return what it answered.

    The actions depend on the seed alone. At step ``save_at`` the state is saved as arrays and
    restored. Raises what the world raises, and :class:`CopyFailed`.
    """
    try:
        return play_until_fault(world, seeds, steps, key, save_at)
    except PlayStopped as stopped:
        raise stopped.error from None


def play_until_fault(
    world: World, seeds: tuple[int, ...], steps: int, key: int, save_at: int | None = None
) -> Trajectory:
    """Play as :func:`play_randomly` does. Raises :class:`PlayStopped` with the steps so far,
    whatever the world raises."""
    rows: list[Any] = []
    first, spent = None, 0.0
    try:
        numbers = jnp.asarray(seeds, jnp.int32)
        state, obs = world.reset(random_keys.for_seeds(numbers, "reset", key))
        step = jax.jit(world.step) if world.traced else world.step
        first = _to_numpy(obs)
        hands = [np.random.default_rng([seed, 7]) for seed in seeds]
        for clock in range(steps):
            action = _random_actions(world.spec, _to_numpy(obs), hands)
            action = jax.tree.map(jnp.asarray, action) if world.traced else action
            keys = random_keys.for_seeds(numbers, "step", clock + key * 100_000)
            begun = time.perf_counter()
            state, answer = step(state, action, keys)
            obs = answer.obs
            parts = (answer.reward, answer.discount, answer.last, answer.mask, answer.channels)
            row = _to_numpy((obs, *parts, action))
            spent += (time.perf_counter() - begun) * (clock > 0)
            if failures := getattr(unwrap_world(world), "failures", []):
                raise CopyFailed(failures[-1][1])
            rows.append(row)
            if clock == save_at:
                state = jax.tree.map(_save_and_restore, state)
    except (Exception, SystemExit) as error:  # of the world's own code
        raise PlayStopped(error, _stacked(first, rows, spent) if len(rows) > 1 else None) from error
    return _stacked(first, rows, spent)


def _stacked(first: Any, rows: list[Any], spent: float) -> Trajectory:
    stacked = jax.tree.map(lambda *x: np.stack(x), *rows)
    obs, reward, discount, last, mask, channels, action = stacked
    rate = (len(rows) - 1) * int(np.prod(reward.shape[1:])) / spent if spent else 0.0
    return Trajectory(first, obs, reward, discount, last, mask, channels, action, rate)


def _to_numpy(values: Any) -> Any:
    return jax.tree.map(np.array, values)


def _save_and_restore(leaf: Any) -> Any:
    """Save a leaf as plain numbers and restore it, as a checkpoint does."""
    if jax.dtypes.issubdtype(leaf.dtype, jax.dtypes.prng_key):
        data = np.asarray(jax.random.key_data(leaf)).tobytes()
        shape = jax.random.key_data(leaf).shape
        return jax.random.wrap_key_data(jnp.asarray(np.frombuffer(data, np.uint32).reshape(shape)))
    array = np.asarray(leaf)
    return jnp.asarray(np.frombuffer(array.tobytes(), array.dtype).reshape(array.shape))


def _random_actions(spec: Spec, obs: Any, hands: list[np.random.Generator]) -> Any:
    """Draw random actions ``(seed, env, ...)``; only allowed ones if the world has a mask."""
    allowed = obs.get(ACTION_MASK) if isinstance(obs, dict) else None
    rows = [
        [
            _random_action(spec.action, hand, None if allowed is None else allowed[at, env])
            for env in range(spec.envs)
        ]
        for at, hand in enumerate(hands)
    ]
    stacked = [jax.tree.map(lambda *x: np.stack(x), *row) for row in rows]
    return jax.tree.map(lambda *x: np.stack(x), *stacked)


def _random_action(space: Any, hand: np.random.Generator, allowed: np.ndarray | None) -> Any:
    chosen = None if allowed is None else _random_choices(space, hand, allowed)
    if chosen is not None and not isinstance(space, HybridAction):
        return chosen.reshape(space.shape)
    parts = []
    for _, leaf in space_leaves(space):
        leaf.seed(int(hand.integers(2**31)))
        drawn = np.asarray(leaf.sample())
        parts.append(drawn.astype(np.float32 if drawn.dtype.kind == "f" else np.int32))
    if chosen is not None:
        parts[0][: len(chosen)] = chosen
    return arrange_leaves(space, iter(parts))


def _random_choices(space: Any, hand: np.random.Generator, allowed: np.ndarray) -> np.ndarray:
    """Draw an allowed option of each choice; any of one that is left without (an agent that left
    may do anything)."""
    rows = np.split(allowed.ravel(), np.cumsum(choice_sizes(space))[:-1])
    options = [np.flatnonzero(row if row.any() else row == 0) for row in rows]
    return np.array([hand.choice(each) for each in options], np.int32)
