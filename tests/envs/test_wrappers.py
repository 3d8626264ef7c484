"""Worlds made of worlds, traced and on the host, against what they wrap."""

from __future__ import annotations

from typing import Any

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium import spaces

from sterling import random_keys
from sterling.envs.actions.bounded_actions import RescaleAction
from sterling.envs.compiled.envpool_env import EnvPoolWorld
from sterling.envs.frame_stack import FrameStack
from sterling.envs.hosted.hosted_env import HostWorld
from sterling.envs.traced_world import TracedWorld
from sterling.envs.world_wrappers import ActionRepeat, ClipReward, TimeLimit
from sterling.types import Mistake, Step

SEEDS, ENVS = (0, 1), 3


class Walk:
    """A point on a line: the action (in [2, 6]) is added up; ends beyond ``end``."""

    obs = spaces.Box(-np.inf, np.inf, (2,), np.float32)
    action = spaces.Box(2.0, 6.0, (1,), np.float32)

    def __init__(self, end: float = 30.0):
        self.end = end

    def reset(self, key: Any) -> Any:
        state = jnp.stack([jax.random.uniform(key, (), jnp.float32), jnp.zeros(())])
        return state, state

    def step(self, state: Any, action: Any, key: Any) -> Any:
        state = state + jnp.stack([action[0], jnp.ones(())])
        return state, state, -3.0 * action[0], state[0] > self.end, jnp.zeros((), bool)


def answers(world: Any, actions: np.ndarray) -> tuple[Any, Step]:
    """First observation and every answer, ``(time, seed, env, ...)``."""

    def world_keys(time: Any) -> Any:
        return random_keys.for_seeds(jnp.asarray(SEEDS), "world", jnp.asarray(time))

    def step(state: Any, row: Any) -> Any:
        return world.step(state, row[0], world_keys(row[1]))

    state, obs = world.reset(random_keys.for_seeds(jnp.asarray(SEEDS), "reset", 0))
    times = np.arange(len(actions), dtype=np.int32)
    if world.traced:
        return obs, jax.jit(lambda s, rows: jax.lax.scan(step, s, rows)[1])(state, (actions, times))
    rows = []
    for row in zip(actions, times, strict=True):
        state, answer = step(state, row)
        rows.append(answer)
    world.close()
    return obs, jax.tree.map(lambda *parts: np.stack(parts), *rows)


def uniform(shape: tuple[int, ...], low: float = -1.0, high: float = 1.0) -> np.ndarray:
    return np.random.default_rng(0).uniform(low, high, shape).astype(np.float32)


def walk(end: float = 30.0) -> TracedWorld:
    return TracedWorld(Walk(end), SEEDS, ENVS)


def pendulum_pool() -> EnvPoolWorld:
    return EnvPoolWorld("Pendulum-v1", SEEDS, ENVS, max_episode_steps=9)


def pendulum_host() -> HostWorld:
    def build() -> Any:
        return gymnasium.make("Pendulum-v1", max_episode_steps=9)

    return HostWorld(build, SEEDS, ENVS, workers=0)


WORLDS = pytest.mark.parametrize("build", [walk, pendulum_pool, pendulum_host])


@WORLDS
def test_rescale_action_clips_and_stretches_to_the_bounds(build: Any) -> None:
    space, unit = build().spec.action, uniform((20, 2, ENVS, 1), -1.5, 1.5)
    stretched = space.low + (np.clip(unit, -1.0, 1.0) + 1.0) * 0.5 * (space.high - space.low)
    outside = RescaleAction(build())
    assert outside.spec.action == spaces.Box(-1.0, 1.0, (1,), np.float32)
    found, expected = answers(outside, unit)[1], answers(build(), stretched)[1]
    np.testing.assert_allclose(found.obs, expected.obs, rtol=1e-4, atol=1e-4)
    assert isinstance(found.obs, type(expected.obs))


def test_rescale_action_to_the_same_bounds_changes_no_bit() -> None:
    actions = uniform((20, 2, ENVS, 6))
    inner = EnvPoolWorld("HalfCheetah-v5", SEEDS, ENVS)
    outside = RescaleAction(EnvPoolWorld("HalfCheetah-v5", SEEDS, ENVS))
    np.testing.assert_array_equal(answers(outside, actions)[1].obs, answers(inner, actions)[1].obs)


def test_rescale_action_refuses_unbounded_and_discrete_actions() -> None:
    with pytest.raises(Mistake, match="Only a bounded Box"):
        RescaleAction(EnvPoolWorld("CartPole-v1", SEEDS, ENVS))


@WORLDS
def test_clip_reward_leaves_the_score_unclipped(build: Any) -> None:
    actions = uniform((20, 2, ENVS, 1), 2.0, 2.5)
    found, expected = answers(ClipReward(build()), actions)[1], answers(build(), actions)[1]
    np.testing.assert_array_equal(found.reward, np.sign(expected.reward))
    np.testing.assert_array_equal(found.score.reward, expected.reward)
    np.testing.assert_array_equal(found.score.last, expected.last)
    assert found.reward.dtype == expected.reward.dtype


@WORLDS
def test_frame_stack_never_holds_frames_of_two_episodes(build: Any) -> None:
    depth, actions = 3, uniform((40, 2, ENVS, 1), 2.0, 6.0)
    world = FrameStack(build(), depth)
    size = build().spec.obs.shape[0]
    first, stacked = answers(world, actions)
    inner_first, inner = answers(build(), actions)
    frames = [[np.asarray(inner_first)] * depth]
    for obs, mask in zip(np.asarray(inner.obs), np.asarray(inner.mask), strict=True):
        begun = [obs] * depth
        went_on = [*frames[-1][1:], obs]
        frames.append(
            [np.where(mask[..., None], x, y) for x, y in zip(went_on, begun, strict=True)]
        )
    expected = np.stack([np.concatenate(each, -1) for each in frames])
    np.testing.assert_array_equal(first, expected[0])
    np.testing.assert_array_equal(stacked.obs, expected[1:])
    assert (~np.asarray(inner.mask)).sum() > 5
    assert world.stack == depth
    assert world.spec.obs.shape == (depth * size,)


@pytest.mark.parametrize("shape", [(10, 10, 4), (10, 12)])
def test_frame_stack_adds_a_channel_axis_to_pictures_without_one(shape: Any) -> None:
    """Every frame of the stack is a whole picture, the newest last; bytes, so (10, 12) is grey."""

    class Picture(Walk):
        obs = spaces.Box(0, 255, shape, np.uint8)

        def reset(self, key: Any) -> Any:
            state, seen = super().reset(key)
            return state, self.paint(seen)

        def step(self, state: Any, action: Any, key: Any) -> Any:
            state, seen, *rest = super().step(state, action, key)
            return state, self.paint(seen), *rest

        def paint(self, seen: Any) -> Any:
            return jnp.broadcast_to(seen[1].astype(jnp.uint8), shape)

    world = FrameStack(TracedWorld(Picture(12.0), SEEDS, ENVS), 3)
    assert world.spec.obs.shape == (3, *shape)
    assert (world.spec.obs.low == 0).all()
    assert (world.spec.obs.high == 255).all()
    first, step = answers(world, np.full((4, 2, ENVS, 1), 5.0, np.float32))
    assert first.shape == (2, ENVS, 3, *shape)
    clock = np.asarray(step.obs)[:, 0, 0].reshape(4, 3, -1)
    assert (clock == clock[..., :1]).all()  # no frame is mixed with another
    assert clock[..., 0].tolist() == [[0, 0, 1], [0, 1, 2], [1, 2, 3], [0, 0, 0]]


def test_frame_stack_refuses_discrete_observations() -> None:
    with pytest.raises(Mistake, match="cannot be stacked"):
        FrameStack(EnvPoolWorld("FrozenLake-v1", SEEDS, ENVS), 4)


def test_action_repeat_stops_at_the_episode_end() -> None:
    """Actions of 5: the first beyond 22 is step 5; with 3 to a step that is in the second one."""
    actions = np.full((5, 2, ENVS, 1), 5.0, np.float32)
    _, step = answers(ActionRepeat(walk(22.0), 3), actions)
    clock = np.asarray(step.obs[..., 1])
    np.testing.assert_array_equal(clock[:, 0, 0], [3.0, 5.0, 0.0, 3.0, 5.0])
    np.testing.assert_array_equal(step.reward[:, 0, 0], [-45.0, -30.0, 0.0, -45.0, -30.0])
    np.testing.assert_array_equal(step.last[:, 0, 0], [False, True, False, False, True])
    np.testing.assert_array_equal(step.mask[:, 0, 0], [True, True, False, True, True])
    np.testing.assert_array_equal(step.discount[:, 0, 0], [1.0, 0.0, 1.0, 1.0, 0.0])
    assert (np.asarray(step.last) == (clock == 5.0)).all()


def test_action_repeat_sums_rewards_and_scores() -> None:
    actions = np.full((2, 2, ENVS, 1), 5.0, np.float32)
    step = answers(ActionRepeat(ClipReward(walk(22.0)), 3), actions)[1]
    np.testing.assert_array_equal(step.reward[:, 0, 0], [-3.0, -2.0])
    np.testing.assert_array_equal(step.score.reward[:, 0, 0], [-45.0, -30.0])
    np.testing.assert_array_equal(step.score.last[:, 0, 0], [False, True])


@pytest.mark.parametrize("stack", [1, 2])
def test_a_time_limit_cuts_and_resets(stack: int) -> None:
    actions = np.full((40, 2, ENVS, 1), 5.0, np.float32)
    inner = walk(22.0) if stack == 1 else FrameStack(walk(22.0), stack)
    step = answers(TimeLimit(inner, 4), actions)[1]
    clock = np.asarray(step.obs[..., -1])
    np.testing.assert_array_equal(clock[:10, 0, 0], [1, 2, 3, 4, 0, 1, 2, 3, 4, 0])
    np.testing.assert_array_equal(step.last, clock == 4.0)
    np.testing.assert_array_equal(step.mask, clock > 0.0)
    assert (step.discount == 1.0).all()
    starts = np.asarray(step.obs[..., 0])[clock == 0.0]
    assert len(np.unique(starts)) == len(starts)  # every episode begins elsewhere
    np.testing.assert_array_equal(step.reward, np.where(clock > 0.0, -15.0, 0.0))


def test_time_limit_keeps_earlier_terminations() -> None:
    actions = np.full((12, 2, ENVS, 1), 5.0, np.float32)
    limited, free = (answers(w, actions)[1] for w in (TimeLimit(walk(22.0), 5), walk(22.0)))
    np.testing.assert_array_equal(limited.discount, free.discount)
    np.testing.assert_array_equal(limited.last, free.last)


def test_a_time_limit_equals_the_worlds_own() -> None:
    actions = uniform((30, 2, ENVS, 1), 2.0, 6.0)
    own = answers(TracedWorld(Walk(), SEEDS, ENVS, limit=5), actions)[1]
    outside = answers(TimeLimit(walk(), 5), actions)[1]
    for part in ("last", "mask", "discount", "reward"):
        np.testing.assert_array_equal(getattr(own, part), getattr(outside, part))


@pytest.mark.parametrize(
    ("wrap", "remedy"), [(TimeLimit, "max_episode_steps"), (ActionRepeat, "frame_skip")]
)
@pytest.mark.parametrize("build", [pendulum_pool, pendulum_host])
def test_wrappers_refuse_environments_that_cannot_pause(wrap: Any, remedy: str, build: Any) -> None:
    world = build()
    with pytest.raises(Mistake, match=remedy):
        wrap(world, 4)
    world.close()
