"""``sterling data record RUN``: the episodes are those of the run's policies."""

import argparse

import equinox as eqx
import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import sterling
from sterling import envs
from sterling.commands import data as command
from sterling.data import Dataset, check
from sterling.data_generation.policy_rollouts import RandomActor
from sterling.data_generation.run_recording import (
    NoisyActor,
    RunRecording,
    collect_episodes,
    record_run,
)
from sterling.types import Mistake

SMALL = {"steps": 512, "envs": 4, "length": 32, "minibatch": 64, "width": 8, "preset": False}


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    path = tmp_path_factory.mktemp("runs") / "ppo"
    sterling.train("ppo", "CartPole-v1", seeds=2, evaluate_episodes=0, out=path, **SMALL)
    return path


def do(*words):
    parser = argparse.ArgumentParser()
    command.add_options(parser)
    return command.carry_out(parser.parse_args([str(word) for word in words]))


@pytest.mark.slow
def test_actions_are_the_modes_of_each_seeds_policy(run, tmp_path, capsys):
    assert do("record", run, "--episodes", 3, "--out", tmp_path / "a") == 0
    assert "6 episodes" in capsys.readouterr().out
    data, loaded = Dataset(tmp_path / "a"), sterling.load(run)
    assert data.facts.environment == "CartPole-v1"
    assert [one.source.name.split(", seed ")[1][:1] for one in data] == list("000111")
    for at, seed in ((0, 0), (4, 1)):
        one = data[at]
        np.testing.assert_array_equal(loaded.policy(one.obs[:-1], seed), one.action)
        # CartPole gives 1 for every step, and an episode ends when the pole has fallen
        assert one.total == len(one)
        assert one.ended == bool((np.abs(one.obs[-1, [0, 2]]) > [2.4, 0.2095]).any())
    first, other = (source.policy for source in data.facts.sources)
    assert len(first) == 64
    assert first != other
    assert [one for one in check(data) if one.severity == "error"] == []
    assert do("record", run, "--episodes", 3, "--out", tmp_path / "b") == 0
    assert Dataset(tmp_path / "b").hash == data.hash
    assert do("record", run, "--episodes", 3, "--out", tmp_path / "b", "--key", 1) == 0
    assert Dataset(tmp_path / "b").hash != data.hash


def test_recorded_run_noise_replaces_a_share_of_discrete_actions(run, tmp_path):
    asked = RunRecording(run, 40, seed=1, noise=0.5)
    data, loaded = record_run(asked, tmp_path / "a"), sterling.load(run)
    rows = data.transitions()
    modes = loaded.policy(np.asarray(rows.obs), 1)
    # a random choice of two is the mode's half of the time
    assert abs(np.mean(modes != np.asarray(rows.action)) - 0.25) < 4 * np.sqrt(0.19 / data.rows)
    assert "log_prob" not in rows.extras
    assert "with noise 0.5" in data.facts.sources[0].name


def test_recorded_run_with_exploration_stores_log_probs(run, tmp_path):
    data = record_run(RunRecording(run, 4, seed=0, explore=True), tmp_path / "a")
    log_prob = np.asarray(data.transitions().extras["log_prob"])
    assert (log_prob < 0).all()
    assert abs(np.exp(log_prob).mean() - 0.5) < 0.2  # hardly trained: nearly uniform


def test_recorded_run_stores_environment_options(run, tmp_path):
    words = ("--episodes", 2, "--seed", 0, "--env", "max_episode_steps=3")
    assert do("record", run, *words, "--out", tmp_path / "a") == 0
    data = Dataset(tmp_path / "a")
    assert data.lengths.tolist() == [3, 3]
    assert not data.ended.any()
    assert data.facts.options == {"max_episode_steps": 3}


class Constant(eqx.Module):
    """Always pushes with 0.9 in [-1, 1]."""

    def act(self, obs, keys, explore):
        return jnp.full((*obs.shape[:2], 1), 0.9), {}


def test_noise_on_boxes_is_gaussian_and_clipped_to_the_bounds():
    world = envs.make("Pendulum-v1", (0,), 4000, purpose="evaluate", strategy="map")
    noisy = NoisyActor(Constant(), RandomActor(world), 0.2)
    action, _ = noisy.act(jnp.zeros((1, 4000, 3)), jax.random.key(0)[None], False)
    assert float(action.max()) == 1.0
    assert abs(float((action == 1.0).mean()) - 0.3085) < 0.03  # half a deviation away
    below = np.asarray(action)[action < 0.9]
    assert abs(np.sqrt(np.mean((below - 0.9) ** 2)) - 0.2) < 0.01


def test_every_environment_plays_equally_many_episodes():
    """Else short episodes would be preferred: they end first."""
    world = envs.make("CartPole-v1", (3,), 3, purpose="evaluate", strategy="map")
    rows = collect_episodes(world, RandomActor(world), 7, 3)
    assert (rows.last & rows.mask).sum(0).tolist() == [3, 2, 2]
    assert rows.mask[0].all()
    stays = envs.make(Endless, (0,), 2, purpose="evaluate", workers=0)
    with pytest.raises(Mistake, match=r"not ended after 50 steps. .*--env max_episode_steps=N"):
        collect_episodes(stays, RandomActor(stays), 2, 0, limit=50)
    stays.close()


class Endless(gymnasium.Env):
    """Its episodes never end."""

    observation_space = gymnasium.spaces.Box(-1.0, 1.0, (1,))
    action_space = gymnasium.spaces.Discrete(2)

    def reset(self, seed=None, options=None):
        super().reset(seed=seed)
        return np.zeros(1, np.float32), {}

    def step(self, action):
        return np.zeros(1, np.float32), 1.0, False, False, {}


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--episodes", 0), "--episodes must be at least 1"),
        (("--noise", -1), "--noise must be 0 or more"),
        (("--noise", 1.5), "--noise is a probability for choices"),
        (("--noise", 0.1, "--explore"), "Leave out --noise or --explore"),
        (("--seed", 7), "the run has no seed 7"),
        (("--keys", "left=0"), "--keys needs --by keyboard or --by gamepad"),
    ],
)
def test_data_record_run_refuses_invalid_options_in_one_line(run, tmp_path, words, said):
    with pytest.raises(Mistake, match=said):
        do("record", run, *words, "--out", tmp_path / "a")
    assert not (tmp_path / "a").exists()
    with pytest.raises(Mistake, match=r"is no folder of a run\. .* add --by keyboard"):
        do("record", "CartPole-v1", "--out", tmp_path / "a")
