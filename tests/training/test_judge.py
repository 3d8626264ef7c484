"""Judging the agents of a run by episodes."""

import numpy as np

import sterling
from sterling.training import judge as judging
from sterling.training.judge import Judge


def test_environments_in_processes_play_their_episodes_in_rounds(monkeypatch):
    """So that few are held at once; nobody plays one episode twice."""
    run = sterling.train(
        "ppo", "gymnasium:Pendulum-v1", steps=64, seeds=2, envs=2, length=16, minibatch=32,
        epochs=1, width=8, evaluate_episodes=0, env_options={"workers": 0},
    )  # fmt: skip
    monkeypatch.setattr(judging, "COPIES", 2)
    judge = Judge(run.settings, 5)
    found = judge(run.agent)
    judge.close()
    assert found["return"].shape == (2, 5)
    assert (found["length"] == 200).all()
    assert len(np.unique(found["return"])) == 10
