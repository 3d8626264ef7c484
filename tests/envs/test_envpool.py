"""EnvPool inside the compiled program against EnvPool's own NumPy interface."""

from __future__ import annotations

from functools import partial
from typing import Any

import envpool
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from sterling import random_keys
from sterling.cli import main
from sterling.envs import make
from sterling.envs.compiled.envpool_env import (
    EnvPoolWorld,
    clips_rewards,
    env_seed,
    unusable_reason,
)
from sterling.envs.world_wrappers import ClipReward
from sterling.types import Mistake, Step

SEEDS, ENVS = (3, 8), 2


def own_interface(name: str, actions: np.ndarray, purpose: str = "train", **options: Any) -> Any:
    """Observations, rewards, ends, cuts and clocks of an identically seeded pool."""
    seeds = [env_seed(seed, env, purpose) for seed in SEEDS for env in range(ENVS)]
    pool = envpool.make(name, env_type="gymnasium", num_envs=len(seeds), seed=seeds, **options)
    obs, info = pool.reset()
    rows = [(obs, *[np.zeros(len(seeds))] * 3, info["elapsed_step"], info)]
    for action in actions:
        flat = action.reshape(len(seeds), *action.shape[2:])
        obs, reward, terminated, truncated, info = pool.step(flat)
        rows.append((obs, reward, terminated, truncated, info["elapsed_step"], info))
    pool.close()
    return rows


def compiled(world: Any, actions: np.ndarray) -> tuple[Any, Step]:
    """First observation, and every answer, ``(time, seed, env, ...)``."""

    unused = random_keys.for_seeds(jnp.arange(world.seeds), "unused", 0)  # EnvPool draws for itself

    @jax.jit
    def run(state: Any, actions: Any) -> Step:
        step = partial(world.step, keys=unused)
        return jax.lax.scan(step, state, actions)[1]

    state, obs = world.reset(unused)
    return obs, run(state, jnp.asarray(actions))


def random_actions(world: Any, steps: int) -> np.ndarray:
    generator, space = np.random.default_rng(0), world.spec.action
    shape = (steps, len(SEEDS), ENVS)
    if hasattr(space, "n"):
        return generator.integers(0, space.n, shape).astype(np.int32)
    return generator.uniform(space.low, space.high, (*shape, *space.shape)).astype(np.float32)


@pytest.mark.parametrize(
    ("name", "limit"), [("CartPole-v1", 13), ("Hopper-v5", 11), ("CartPole-v1", 500)]
)
def test_envpool_transitions_join_no_two_episodes(name: str, limit: int) -> None:
    world = EnvPoolWorld(name, SEEDS, ENVS, max_episode_steps=limit)
    actions = random_actions(world, 120)
    _, step = compiled(world, actions)
    rows = own_interface(name, actions, max_episode_steps=limit)
    clock = np.stack([row[4] for row in rows]).reshape(len(rows), len(SEEDS), ENVS)
    terminated, truncated = (
        np.stack([row[k] for row in rows[1:]]).reshape(120, len(SEEDS), ENVS).astype(bool)
        for k in (2, 3)
    )
    advanced = clock[1:] == clock[:-1] + 1
    np.testing.assert_array_equal(step.mask, advanced)  # a row is one step of one episode
    assert (clock[1:][~advanced] == 0).all()  # or a reset, and nothing else
    np.testing.assert_array_equal(step.last, (terminated | truncated) & advanced)
    np.testing.assert_array_equal(step.last[:-1], ~step.mask[1:])  # which follows every last row
    np.testing.assert_array_equal(np.asarray(step.discount == 0.0), terminated & advanced)
    assert step.last.sum() > 20
    assert (step.last & (step.discount == 1.0)).any() == truncated.any()


def test_envpool_truncated_step_keeps_its_final_observation() -> None:
    """Hopper cut after 11 steps: its next observation is what 12 free steps show, not a reset."""
    world, free = (EnvPoolWorld("Hopper-v5", SEEDS, ENVS, max_episode_steps=n) for n in (4, 400))
    actions = random_actions(world, 4)
    np.testing.assert_array_equal(compiled(world, actions)[1].obs, compiled(free, actions)[1].obs)


def test_envpool_doubles_pass_the_xla_boundary_intact() -> None:
    """Without ``enable_x64`` around EnvPool's calls, memory was silently corrupted."""
    world = EnvPoolWorld("HalfCheetah-v5", SEEDS, ENVS)
    actions = random_actions(world, 50)
    first, step = compiled(world, actions)
    rows = own_interface("HalfCheetah-v5", actions.astype(np.float64))
    obs = np.stack([row[0] for row in rows]).reshape(51, len(SEEDS), ENVS, -1)
    reward = np.stack([row[1] for row in rows[1:]]).reshape(50, len(SEEDS), ENVS)
    assert step.obs.dtype == step.reward.dtype == jnp.float32
    np.testing.assert_array_equal(first, obs[0].astype(np.float32))
    np.testing.assert_array_equal(step.obs, obs[1:].astype(np.float32))
    np.testing.assert_array_equal(step.reward, reward.astype(np.float32))


def test_envpool_seed_is_independent_of_other_seeds() -> None:
    together, alone = (
        EnvPoolWorld("Hopper-v5", SEEDS, ENVS),
        EnvPoolWorld("Hopper-v5", SEEDS[1:], ENVS),
    )
    actions = random_actions(together, 20)
    both, one = compiled(together, actions)[1], compiled(alone, actions[:, 1:])[1]
    np.testing.assert_array_equal(both.obs[:, 1:], one.obs)
    evaluated = EnvPoolWorld("Hopper-v5", SEEDS, ENVS, purpose="evaluate")
    assert not np.array_equal(compiled(evaluated, actions)[1].obs, both.obs)


def test_envpool_integer_observations_stay_int32() -> None:
    world = EnvPoolWorld("FrozenLake-v1", SEEDS, ENVS)
    first, step = compiled(world, random_actions(world, 5))
    assert first.dtype == step.obs.dtype == jnp.int32


def test_envpool_integer_vector_actions_are_multidiscrete() -> None:
    world = EnvPoolWorld("RubiksCube-v0", SEEDS, ENVS)
    np.testing.assert_array_equal(world.spec.action.nvec, [6, 1, 3])
    actions = np.zeros((3, len(SEEDS), ENVS, 3), np.int32)
    np.testing.assert_array_equal(compiled(world, actions)[1].obs["step_count"][:, 0, 0], [1, 2, 3])


def test_envpool_atari_scores_whole_games_while_lives_end_episodes() -> None:
    world = make("Breakout-v5", SEEDS, ENVS)
    actions = random_actions(world, 400)
    step = compiled(world, actions)[1]
    options = {"episodic_life": True, "stack_num": 1, "noop_max": 30}
    rows = own_interface("Breakout-v5", actions, **options)
    raw, done, over = (
        np.stack(parts[1:]).reshape(400, len(SEEDS), ENVS)
        for parts in (
            [row[1] for row in rows],
            [row[2] for row in rows],
            [row[5]["terminated"] for row in rows],
        )
    )
    np.testing.assert_array_equal(step.score.reward, raw)
    np.testing.assert_array_equal(step.reward, np.sign(raw))
    np.testing.assert_array_equal(step.last, done.astype(bool))
    np.testing.assert_array_equal(step.score.last, over.astype(bool))
    assert 0 < step.score.last.sum() < step.last.sum()
    assert (step.discount[step.last] == 0.0).all()


def test_envpool_atari_evaluation_uses_whole_games_and_raw_rewards() -> None:
    world = make("Breakout-v5", SEEDS, ENVS, purpose="evaluate")
    actions = random_actions(world, 400)
    step = compiled(world, actions)[1]
    rows = own_interface("Breakout-v5", actions, "evaluate", episodic_life=True, stack_num=1)
    over = np.stack([row[5]["terminated"] for row in rows[1:]]).reshape(400, len(SEEDS), ENVS)
    raw = np.stack([row[1] for row in rows[1:]]).reshape(400, len(SEEDS), ENVS)
    np.testing.assert_array_equal(step.last, over.astype(bool))
    np.testing.assert_array_equal(step.reward, raw)
    assert step.score is None
    assert step.last.any()


@pytest.mark.parametrize("clip", [True, False])
def test_envpool_reward_clipping_does_not_clip_scores(
    monkeypatch: pytest.MonkeyPatch, clip: bool
) -> None:
    """EnvPool is told not to clip, whatever was asked for: it would clip the scores as well."""
    told = []

    class Told(EnvPoolWorld):
        def __init__(self, *given: Any, **options: Any):
            told.append(options.get("reward_clip", False))
            super().__init__(*given, **options)

    monkeypatch.setattr("sterling.envs.compiled.envpool_env.EnvPoolWorld", Told)
    for purpose in ("train", "evaluate"):
        world = make("MsPacman-v5", (0,), 1, purpose=purpose, reward_clip=clip)
        assert isinstance(world, ClipReward) == (clip and purpose == "train")
        world.close()
    assert told == [False, False]
    assert clips_rewards("MsPacman-v5", {"reward_clip": clip}) == clip
    with pytest.raises(Mistake, match=r"reward_clip='no' is not possible\. Give true or false"):
        make("MsPacman-v5", (0,), 1, reward_clip="no")


def test_envpool_atari_frame_stack_equals_envpools_own() -> None:
    world = make("Pong-v5", SEEDS, ENVS)
    actions = random_actions(world, 30)
    _, step = compiled(world, actions)
    rows = own_interface("Pong-v5", actions, episodic_life=True)
    obs = np.stack([row[0] for row in rows]).reshape(31, len(SEEDS), ENVS, 4, 84, 84)
    np.testing.assert_array_equal(step.obs[3:], obs[4:])  # EnvPool fills the start with black
    assert world.stack == 4


@pytest.mark.slow
def test_envpool_rollout_tally_counts_games_not_lives() -> None:
    from sterling.experience.rollouts.rollout import Rollout

    class Random:
        def act(self, obs: Any, keys: Any, explore: bool) -> Any:
            draw = partial(jax.random.randint, shape=(ENVS,), minval=0, maxval=4)
            return jax.vmap(draw)(keys), {}

    world = make("Breakout-v5", SEEDS, ENVS)
    seeds = jnp.asarray(SEEDS)
    source = Rollout.create(world, 600, random_keys.for_seeds(seeds, "source", 0))
    source, record = jax.jit(lambda s, k: s.live(Random(), k))(
        source, random_keys.for_seeds(seeds, "draw", 0)
    )
    lives, games = int(record.last.sum()), int(source.tally.episodes.sum())
    assert 0 < games <= lives // 4
    assert int(source.tally.lengths.sum()) > 100 * games  # a life is some 25 steps, a game 5 lives


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"max_step": 5}, "no option 'max_step'; did you mean max_episode_steps"),
        ({"num_envs": 5}, "no option 'num_envs'"),
        ({"num_threads": "two"}, "cannot be made with num_threads='two'"),
    ],
)
def test_envpool_refuses_unknown_options(options: dict[str, Any], said: str) -> None:
    with pytest.raises(Mistake, match=said):
        EnvPoolWorld("CartPole-v1", SEEDS, ENVS, **options)


def test_envpool_refuses_multi_player_tasks() -> None:
    with pytest.raises(Mistake, match="2 simultaneous players"):
        EnvPoolWorld("TicTacToe-v1", SEEDS, ENVS)


def test_envpool_listing_says_why_a_task_is_unusable(capsys):
    assert (
        unusable_reason("Chess-v1")
        == "needs 2 simultaneous players; EnvPool worlds here have one agent"
    )
    assert unusable_reason("Play2048-v1") is None
    assert unusable_reason("Ant-v5") is None
    assert main(["list", "environments", "Chess-v1"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert "envpool    VideoChess-v5" not in lines  # another name
    assert f"envpool    Chess-v1  (does not run here: {unusable_reason('Chess-v1')})" in lines


def test_envpool_names_the_missing_system_package():
    reason = unusable_reason("BigfishEasy-v0")
    if reason is None:  # Qt 5 is installed here
        make("envpool:BigfishEasy-v0", (0,), 1).close()
        return
    assert "qtbase5-dev" in reason
    with pytest.raises(Mistake, match="qtbase5-dev") as told:
        make("envpool:BigfishEasy-v0", (0,), 1)
    assert "\n" not in str(told.value)
