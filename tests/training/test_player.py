"""Agents at play outside of training: what they remember of an episode, and who needs no memory."""

import functools
import shutil

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium import spaces

import sterling
from sterling import envs, random_keys
from sterling.cli import main
from sterling.data import Dataset
from sterling.data.episode_columns import Block
from sterling.evaluation import TrainedPolicy
from sterling.problem.action_choices import ACTION_MASK
from sterling.training.config.run_options import Guidance
from sterling.training.evaluation.evaluate_policy import evaluate
from sterling.training.policy_player import check_observation
from sterling.types import Mistake

WORLD = "CartPole-v1"
SMALL = {"width": 8, "layers": 1, "length": 6, "rise": 1, "lr": 0.01, "normalise_obs": False}


@pytest.fixture(name="log", scope="module")
def _log(tmp_path_factory):
    """Thirty episodes of chance."""
    env, rng = gymnasium.make(WORLD), np.random.default_rng(0)
    obs, action, lengths = [], [], []
    for seed in range(30):
        seen, over = [env.reset(seed=seed)[0]], False
        while not over:
            action.append(rng.integers(2))
            now, _, over, _, _ = env.step(action[-1])
            seen.append(now)
        obs.append(np.stack(seen))
        lengths.append(len(seen) - 1)
    ends = np.cumsum(lengths) - 1
    columns = {
        "obs": np.concatenate(obs),
        "action": np.array(action, np.int32),
        "reward": np.ones(len(action), np.float32),
        "discount": (~np.isin(np.arange(len(action)), ends)).astype(np.float32),
    }
    block = Block(columns, np.array(lengths), np.zeros(30, np.int32))
    return Dataset.from_block(block, env.observation_space, env.action_space).save(
        tmp_path_factory.mktemp("logs") / "log"
    )


@pytest.fixture(name="run", scope="module")
def _run(log, tmp_path_factory):
    out = tmp_path_factory.mktemp("runs") / "dt"
    sterling.train(
        "dt", WORLD, data=log, updates=20, seeds=2, out=out, evaluate_episodes=0, **SMALL
    )
    return sterling.load(out)


@functools.cache
def evaluated(seeds):
    """A world of evaluation, and its compiled step."""
    world = envs.make(WORLD, seeds, 1, purpose="evaluate")
    return world, jax.jit(world.step)


def played(player, seeds, at):
    """The return of the first evaluation episode of the run's seed ``at``, by ``player``."""
    world, step = evaluated(seeds)
    asked = jnp.asarray(seeds, jnp.int32)
    state, obs = world.reset(random_keys.for_seeds(asked, "evaluate", 0))
    total = 0.0
    for clock in range(600):
        action = np.full((len(seeds), 1), player.act(np.asarray(obs)[at, 0]), np.int32)
        state, answer = step(state, action, random_keys.for_seeds(asked, "evaluate-world", clock))
        obs, reward, last = answer.obs, float(answer.reward[at, 0]), bool(answer.last[at, 0])
        player.notice(reward, last)
        total += reward
        if last:
            return total
    raise AssertionError("the episode does not end")


@pytest.mark.slow
def test_player_of_a_memory_policy_matches_evaluation(run):
    world = envs.make(WORLD, (0, 1), 1, purpose="evaluate")
    expected = evaluate(run.agent, world, jnp.asarray([0, 1], jnp.int32), 1)["return"][:, 0]
    assert [played(run.player(seed), (0, 1), seed) for seed in (0, 1)] == list(expected)


def test_player_notice_updates_the_memory_until_the_episode_ends(run):
    player, obs = run.player(), np.array([0.01, 0.02, 0.03, 0.04], np.float32)
    first = jax.tree.map(np.asarray, player._past)
    action = player(obs)
    player.notice(1.0, False)
    told = player._past
    assert not told.first.any()
    assert (int(told.action[0, 0]), float(told.reward[0, 0])) == (action, 1.0)
    assert int(told.memory.context.mask[0].sum()) == 1
    player(obs)
    assert float(player._memory.wanted[0, 0]) < float(first.memory.wanted[0, 0])
    player.notice(1.0, True)
    for one, other in zip(jax.tree.leaves(player._past), jax.tree.leaves(first), strict=True):
        np.testing.assert_array_equal(one, other)


def test_player_of_a_memory_policy_takes_one_observation(run):
    with pytest.raises(Mistake, match=r"must have the shape \(4,\); got \(2, 4\)"):
        run.player()(np.zeros((2, 4), np.float32))


def test_missing_action_mask_in_an_observation_is_asked_for():
    hand = spaces.Box(0.0, 1.0, (3,), np.float32)
    space = spaces.Dict({"hand": hand, ACTION_MASK: spaces.MultiBinary(2)})
    with pytest.raises(Mistake, match=r'; give \{\*\*obs, "action_mask": mask\}$'):
        check_observation(space, {"hand": np.zeros(3, np.float32)})
    with pytest.raises(Mistake, match=r"got \(3,\)$"):  # there is nothing to add a mask to
        check_observation(space, np.zeros(3, np.float32))


def test_memory_policy_refuses_run_policy_and_asks_for_a_player(run, log, tmp_path):
    with pytest.raises(Mistake, match=r"dt acts with a memory.*run\.player\(\)"):
        run.policy(np.zeros(4, np.float32))
    with pytest.raises(Mistake, match="evaluate it in the world"):
        TrainedPolicy.from_run(run, Dataset(log).spec)


@pytest.mark.slow
def test_memory_policy_can_be_a_guide(run):
    guided = sterling.train(
        "dqn", WORLD, steps=400, guide=Guidance(str(run.path), steps=10), evaluate_episodes=0,
        warmup=100, batch=16, width=8,
    )  # fmt: skip
    assert guided.settings.guide.steps == 10


def test_play_command_films_a_memory_policy(run, tmp_path):
    film = tmp_path / "film.gif"
    assert main(["play", str(run.path), "--video", str(film), "--steps", "12"]) == 0
    assert film.stat().st_size > 1000


def test_player_acts_without_an_environment(tmp_path, capsys):
    """Actions come in the log's own numbers; there is no world to be judged in."""
    rng = np.random.default_rng(0)
    columns = {
        "obs": rng.normal(size=(22, 3)),
        "action": np.tile(np.array([[2.0, 6.0]]), (20, 1)),
        "reward": np.zeros(20, np.float32),
        "discount": np.ones(20, np.float32),
    }
    block = Block(columns, np.array([10, 10]), np.zeros(2, np.int32))
    obs = spaces.Box(-np.inf, np.inf, (3,), np.float64)
    log = Dataset.from_block(block, obs, spaces.Box(0.0, 8.0, (2,), np.float64)).save(
        tmp_path / "log"
    )
    few = {"updates": 300, "lr": 0.01, "batch": 16, "width": 8, "evaluate_episodes": 0}
    sterling.train("bc", data=log, out=tmp_path / "run", quiet=True, **few)
    shutil.rmtree(log)
    run = sterling.load(tmp_path / "run")
    np.testing.assert_allclose(run.policy(np.zeros(3)), [2.0, 6.0], atol=0.5)
    assert run.policy(np.zeros(3)).dtype == np.float64
    np.testing.assert_array_equal(run.policy([0.0, 0.0, 0.0]), run.policy(np.zeros(3)))
    for wrong in (np.zeros(4), [0.0] * 4):
        with pytest.raises(Mistake, match=r"must have the shape \(3,\); got \(4,\)"):
            run.policy(wrong)
    several = np.random.default_rng(0).normal(size=(5, 3))
    found = run.policy(several)
    assert found.shape == (5, 2)
    np.testing.assert_allclose(found, [run.policy(one) for one in several], rtol=1e-5)
    with pytest.raises(Mistake, match="an observation contains NaN"):
        run.policy(np.full(3, np.nan))
    for command in ("evaluate", "play"):
        assert main([command, str(run.path)]) == 2
        said = capsys.readouterr().err
        assert "names no environment, so its agents cannot act. Train with --environment" in said
        assert said.count("\n") == 1


def test_player_uses_a_new_random_key_for_every_action(tmp_path):
    """FQL samples also without ``explore``: its actions spread in play as in evaluation."""
    rng = np.random.default_rng(0)
    columns = {
        "obs": rng.normal(size=(22, 3)),
        "action": rng.uniform(-1, 1, (20, 1)),
        "reward": np.zeros(20, np.float32),
        "discount": np.ones(20, np.float32),
    }
    block = Block(columns, np.array([10, 10]), np.zeros(2, np.int32))
    obs = spaces.Box(-np.inf, np.inf, (3,), np.float64)
    log = Dataset.from_block(block, obs, spaces.Box(-1.0, 1.0, (1,), np.float64)).save(
        tmp_path / "log"
    )
    few = {"updates": 2, "batch": 4, "width": 8, "depth": 1, "flow_steps": 1}
    sterling.train("fql", data=log, out=tmp_path / "run", evaluate_episodes=0, **few)

    def acted():
        run = sterling.load(tmp_path / "run")
        players = run.player(), run.policy, run.player()
        return [float(act(np.zeros(3))[0]) for act in players for _ in range(3)]

    assert len({*acted()}) == 9
    assert acted() == acted()
    wild = sterling.load(tmp_path / "run").player(explore=True)
    assert len({float(wild(np.zeros(3))[0]) for _ in range(9)}) == 9
