"""Judging the agents of a run by episodes."""

import gymnasium
import jax.numpy as jnp
import numpy as np
import pytest

import sterling
from sterling import envs
from sterling.training import judge as judging
from sterling.training.evaluate import evaluate
from sterling.training.judge import Judge


@pytest.fixture(scope="module")
def run():
    return sterling.train(
        "ppo", "gymnasium:Pendulum-v1", steps=64, seeds=2, envs=2, length=16, minibatch=32,
        epochs=1, width=8, evaluate_episodes=0, env_options={"workers": 0},
    )  # fmt: skip


class Short(gymnasium.Wrapper):
    """Counts all copies' steps."""

    steps = 0

    def step(self, action):
        Short.steps += 1
        return super().step(action)


def test_a_world_is_not_stepped_once_every_episode_is_over(run):
    def build():
        return Short(gymnasium.make("Pendulum-v1", max_episode_steps=7))

    world = envs.make(build, (0, 1), 2, purpose="evaluate", workers=0)
    Short.steps = 0
    found = evaluate(run.agent, world, jnp.asarray([0, 1], jnp.int32), 2)
    world.close()
    assert (found["length"] == 7).all()
    assert Short.steps == 7 * 4


def test_environments_in_processes_play_their_episodes_in_rounds(run, monkeypatch):
    """So that few are held at once; nobody plays one episode twice."""
    monkeypatch.setattr(judging, "COPIES", 2)
    judge = Judge(run.settings, 5)
    found = judge(run.agent)
    judge.close()
    assert found["return"].shape == (2, 5)
    assert (found["length"] == 200).all()
    assert len(np.unique(found["return"])) == 10
