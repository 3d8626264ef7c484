"""Pure environments as worlds, and gymnax among them."""

from __future__ import annotations

import warnings
from typing import Any

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium import spaces
from hypothesis import given, settings
from hypothesis import strategies as st

from sterling import random_keys
from sterling.envs.compiled import gymnax_env
from sterling.envs.traced_world import TracedWorld
from sterling.types import Mistake, Step


class Diary:
    """Shows which episode it is in (a random number) and its clock; ends by chance."""

    obs = spaces.Box(0.0, 2.0**31, (2,), np.float32)
    action = spaces.Discrete(2)

    def __init__(self, end: float = 0.2):
        self.end = end

    def reset(self, key: Any) -> Any:
        state = jnp.stack([jax.random.randint(key, (), 1, 2**20), jnp.zeros((), jnp.int32)])
        return state, state.astype(jnp.float32)

    def step(self, state: Any, action: Any, key: Any) -> Any:
        state = state + jnp.array([0, 1], jnp.int32)
        ended = jax.random.bernoulli(key, self.end)
        reward = state[1].astype(jnp.float32)
        return state, state.astype(jnp.float32), reward, ended, jnp.zeros((), bool)


def play(world: Any, steps: int, seeds: tuple[int, ...]) -> tuple[Any, Step]:
    """First observation and every answer to the action 0, ``(time, seed, env, ...)``."""
    shape = (len(seeds), world.spec.envs, *world.spec.action.shape)
    action = np.zeros(shape, jax.dtypes.canonicalize_dtype(world.spec.action.dtype))

    @jax.jit
    def run(numbers: Any) -> tuple[Any, Step]:
        def step(state: Any, time: Any) -> Any:
            return world.step(
                state, jnp.asarray(action), random_keys.for_seeds(numbers, "world", time)
            )

        state, obs = world.reset(random_keys.for_seeds(numbers, "reset", 0))
        return obs, jax.lax.scan(step, state, jnp.arange(steps, dtype=jnp.int32))[1]

    return run(np.asarray(seeds))


@settings(max_examples=5)
@given(
    seeds=st.lists(st.integers(0, 999), min_size=1, max_size=3, unique=True),
    envs=st.integers(1, 4),
    limit=st.sampled_from([0, 1, 2, 5]),
    end=st.sampled_from([0.0, 0.3, 1.0]),
    strategy=st.sampled_from(["vmap", "map"]),
)
def test_traced_world_transitions_join_no_two_episodes(
    seeds: list[int], envs: int, limit: int, end: float, strategy: str
) -> None:
    world = TracedWorld(Diary(end), tuple(seeds), envs, limit=limit, strategy=strategy)
    first, step = play(world, 25, tuple(seeds))
    obs = np.concatenate([np.asarray(first)[None], step.obs])
    episode, clock = obs[..., 0], obs[..., 1]
    mask, last, cut = np.asarray(step.mask), np.asarray(step.last), np.asarray(step.discount == 1.0)
    np.testing.assert_array_equal(mask, episode[1:] == episode[:-1])
    np.testing.assert_array_equal(mask, clock[1:] == clock[:-1] + 1)
    assert (clock[1:][~mask] == 0).all()
    np.testing.assert_array_equal(last[:-1], ~mask[1:])
    assert mask[0].all()
    assert not (last & ~mask).any()
    np.testing.assert_array_equal(np.asarray(step.reward), np.where(mask, clock[1:], 0.0))
    if end == 1.0:
        assert not (last & cut).any()  # what ends in the step of its cut has ended
    if end == 0.0:
        np.testing.assert_array_equal(last, mask & (clock[1:] == limit) & (limit > 0))
        assert cut.all()


def test_traced_world_seeds_under_map_equal_each_alone_bit_for_bit() -> None:
    seeds = (5, 6, 7)
    together = TracedWorld(Diary(), seeds, 3, strategy="map", limit=9)
    first, step = play(together, 40, seeds)
    for index, seed in enumerate(seeds):
        alone_first, alone = play(
            TracedWorld(Diary(), (seed,), 3, strategy="map", limit=9), 40, (seed,)
        )
        np.testing.assert_array_equal(first[index], alone_first[0])
        for one, all_seeds in zip(jax.tree.leaves(alone), jax.tree.leaves(step), strict=True):
            np.testing.assert_array_equal(one[:, 0], all_seeds[:, index])


def test_traced_world_env_is_independent_of_the_number_of_envs() -> None:
    few, many = (play(TracedWorld(Diary(), (1,), envs), 30, (1,))[1].obs for envs in (2, 5))
    np.testing.assert_array_equal(few, many[:, :, :2])


def test_traced_world_refuses_unknown_strategy_and_negative_limit() -> None:
    with pytest.raises(Mistake, match="'vmap' or 'map'"):
        TracedWorld(Diary(), (0,), 1, strategy="loop")
    with pytest.raises(Mistake, match="time limit of -1"):
        TracedWorld(Diary(), (0,), 1, limit=-1)


def gymnax_step(name: str, state: dict[str, float], action: Any) -> tuple[Any, float, bool]:
    """One step of gymnax from a given state."""
    task = gymnax_env.make(name, (0,), 1).task
    start, _ = task.reset(jax.random.key(0))
    start = start.replace(**{field: jnp.asarray(x, jnp.float32) for field, x in state.items()})
    _, obs, reward, terminated, _ = task.step(start, action, jax.random.key(0))
    return obs, float(reward), bool(terminated)


@pytest.mark.parametrize("action", [0, 1])
@pytest.mark.parametrize("start", [(0.1, -0.2, 0.03, 0.4), (2.39, 1.0, -0.1, 0.7)])
def test_gymnax_cartpole_dynamics_equal_gymnasium(start: tuple[float, ...], action: int) -> None:
    env = gymnasium.make("CartPole-v1").unwrapped
    env.reset()
    env.state = np.array(start)
    obs, reward, terminated, *_ = env.step(action)
    names = ("x", "x_dot", "theta", "theta_dot")
    found = gymnax_step("CartPole-v1", dict(zip(names, start, strict=True)), jnp.asarray(action))
    np.testing.assert_allclose(found[0], obs, rtol=1e-5, atol=1e-6)
    assert found[1:] == (reward, terminated)


@pytest.mark.parametrize("torque", [-3.0, 0.7])
@pytest.mark.parametrize("start", [(3.0, -1.5), (-0.4, 7.9)])
def test_gymnax_pendulum_dynamics_equal_gymnasium(
    start: tuple[float, float], torque: float
) -> None:
    env = gymnasium.make("Pendulum-v1").unwrapped
    env.reset()
    env.state = np.array(start)
    obs, reward, *_ = env.step(np.array([torque], np.float32))
    names = ("theta", "theta_dot")
    action = jnp.asarray([torque], jnp.float32)
    found = gymnax_step("Pendulum-v1", dict(zip(names, start, strict=True)), action)
    np.testing.assert_allclose(found[0], obs, rtol=1e-5, atol=1e-5)
    assert found[1] == pytest.approx(float(reward), rel=1e-5)


def test_gymnax_time_limit_truncates_where_time_is_no_part_of_the_task() -> None:
    _, step = play(gymnax_env.make("Breakout-MinAtar", (0,), 2, max_episode_steps=3), 8, (0,))
    np.testing.assert_array_equal(np.flatnonzero(step.last[:, 0, 0]), [2, 6])
    assert (step.discount == 1.0).all()


def test_gymnax_time_limit_terminates_where_time_is_part_of_the_task() -> None:
    _, step = play(gymnax_env.make("DiscountingChain-bsuite", (0,), 2), 101, (0,))
    np.testing.assert_array_equal(np.flatnonzero(step.last[:, 0, 0]), [99])
    assert (step.discount[99] == 0.0).all()


def test_gymnax_env_runs_in_float32_without_warnings() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        first, step = play(gymnax_env.make("Pong-misc", (0,), 1), 3, (0,))
    assert first.dtype == step.obs.dtype == step.reward.dtype == jnp.float32
    assert first.shape == (1, 1, 30, 40, 3)


def test_gymnax_takes_parameters_and_arguments() -> None:
    assert gymnax_env.make("DeepSea-bsuite", (0,), 1, size=5).spec.obs.shape == (5, 5)
    assert gymnax_env.make("Pendulum-v1", (0,), 1, max_torque=0.5).spec.action.high[0] == 0.5
    with pytest.raises(Mistake, match="no option 'sizes'; did you mean size"):
        gymnax_env.make("DeepSea-bsuite", (0,), 1, sizes=5)
    with pytest.raises(Mistake, match="broken in gymnax"):
        gymnax_env.make("SimpleBandit-bsuite", (0,), 1)
