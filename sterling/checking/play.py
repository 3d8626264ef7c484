"""Play random actions in a world and keep everything that it answers."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from sterling import keys
from sterling.envs.board import MASK, leaves, tree
from sterling.types import Spec, World


@dataclasses.dataclass(frozen=True)
class Played:
    """What a world answered; leaves are ``(time, seed, env, ...)``, of ``first`` without time."""

    first: Any  # observations
    obs: Any
    reward: np.ndarray
    discount: np.ndarray
    last: np.ndarray
    mask: np.ndarray
    channels: dict[str, np.ndarray]

    def difference(self, other: Played, observations_only: bool = False) -> str | None:
        """Return which part differs in any bit, over the steps that both have; None: none does."""
        more = ("reward", "discount", "last", "channels")
        names = ("first", "obs") + (() if observations_only else more)
        words = {"first": "first observations", "obs": "observations", "last": "ends of episodes"}
        count = min(len(self.reward), len(other.reward))
        for name in names:
            pairs = zip(*(jax.tree.leaves(getattr(each, name)) for each in (self, other)),
                        strict=True)  # fmt: skip
            cut = [(x, y) if name == "first" else (x[:count], y[:count]) for x, y in pairs]
            if not all(np.array_equal(x, y, equal_nan=x.dtype.kind == "f") for x, y in cut):
                return words.get(name, name if name == "channels" else f"{name}s")
        return None

    def of_seed(self, at: int) -> Played:
        """The part of one seed."""
        first = jax.tree.map(lambda x: x[at : at + 1], self.first)
        rest = {each.name: jax.tree.map(lambda x: x[:, at : at + 1], getattr(self, each.name))
                for each in dataclasses.fields(self) if each.name != "first"}  # fmt: skip
        return Played(first, **rest)


def play(
    world: World, seeds: tuple[int, ...], steps: int, key: int, save_at: int | None = None
) -> Played:
    """Return what ``world`` answers to ``steps`` random actions, which depend on the seed and on
    nothing else. At ``save_at`` the state is written as arrays and read back."""
    numbers = jnp.asarray(seeds, jnp.int32)
    state, obs = world.reset(keys.at(numbers, "reset", key))
    step = jax.jit(world.step) if world.traced else world.step
    first, rows = _host(obs), []
    hands = [np.random.default_rng([seed, 7]) for seed in seeds]
    for time in range(steps):
        action = _actions(world.spec, _host(obs), hands)
        action = jax.tree.map(jnp.asarray, action) if world.traced else action
        state, answer = step(state, action, keys.at(numbers, "step", time + key * 100_000))
        obs = answer.obs
        parts = (answer.reward, answer.discount, answer.last, answer.mask, answer.channels)
        rows.append(_host((obs, *parts)))
        if time == save_at:
            state = jax.tree.map(_written, state)
    return Played(first, *jax.tree.map(lambda *parts: np.stack(parts), *rows))


def _host(values: Any) -> Any:
    return jax.tree.map(np.array, values)


def _written(leaf: Any) -> Any:
    """A leaf written as plain numbers and read back, as a checkpoint does it."""
    if jax.dtypes.issubdtype(leaf.dtype, jax.dtypes.prng_key):
        data = np.asarray(jax.random.key_data(leaf)).tobytes()
        shape = jax.random.key_data(leaf).shape
        return jax.random.wrap_key_data(jnp.asarray(np.frombuffer(data, np.uint32).reshape(shape)))
    array = np.asarray(leaf)
    return jnp.asarray(np.frombuffer(array.tobytes(), array.dtype).reshape(array.shape))


def _actions(spec: Spec, obs: Any, hands: list[np.random.Generator]) -> Any:
    """Random actions ``(seed, env, ...)``, those that are allowed where the world says so."""
    allowed = obs.get(MASK) if isinstance(obs, dict) else None
    rows = [[_action(spec.action, hand, None if allowed is None else allowed[at, env])
             for env in range(spec.envs)] for at, hand in enumerate(hands)]  # fmt: skip
    stacked = [jax.tree.map(lambda *x: np.stack(x), *row) for row in rows]
    return jax.tree.map(lambda *x: np.stack(x), *stacked)


def _action(space: Any, hand: np.random.Generator, allowed: np.ndarray | None) -> Any:
    if allowed is not None and allowed.ndim == 2 and hasattr(space, "nvec"):  # a row for each agent
        rows = np.where(allowed.any(1, keepdims=True), allowed, 1)  # who is gone may do anything
        return np.array([hand.choice(np.flatnonzero(row)) for row in rows], np.int32)
    if allowed is not None and hasattr(space, "n") and space.shape == ():
        return np.int32(hand.choice(np.flatnonzero(allowed)))
    parts = []
    for _, leaf in leaves(space):
        leaf.seed(int(hand.integers(2**31)))
        drawn = np.asarray(leaf.sample())
        parts.append(drawn.astype(np.float32 if drawn.dtype.kind == "f" else np.int32))
    return tree(space, iter(parts))
