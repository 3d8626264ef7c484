"""One observation takes the short way through a player, and gets the action of the long one."""

import dataclasses

import jax
import numpy as np
import pytest

import sterling
from sterling.types import Mistake


@pytest.fixture(name="run", scope="module")
def _run():
    return sterling.train("ppo", "Pendulum-v1", steps=512, envs=2, length=64, seeds=2, width=8,
                          minibatch=64, epochs=1, evaluate_episodes=0)  # fmt: skip


def test_player_fast_path_for_arrays_equals_the_checked_path(run, monkeypatch):
    player, rng = run.player(1), np.random.default_rng(0)
    obs = rng.normal(size=(20, 3)).astype(np.float32)
    quick = [player(each) for each in obs]
    assert player._quickly_checked(obs[0]) is not None
    monkeypatch.setattr(type(player), "_quickly_checked", lambda self, obs: None)
    np.testing.assert_array_equal(quick, [player(each) for each in obs])
    np.testing.assert_array_equal(quick, [run.policy(each, 1) for each in obs.tolist()])
    assert len({float(action[0]) for action in quick}) == 20


def test_player_checks_unusual_observations_in_full(run):
    player = run.player()
    for wrong in (np.zeros(4, np.float32), np.full(3, np.nan, np.float32)):
        assert player._quickly_checked(wrong) is None
        with pytest.raises(Mistake):
            player(wrong)
    assert player._quickly_checked(np.zeros((2, 3), np.float32)) is None
    np.testing.assert_array_equal(player(np.zeros(3)), player(np.zeros(3, np.float32)))


def test_policy_keeps_one_player_for_each_seed_until_the_agent_changes(run):
    obs = np.ones(3, np.float32)
    first, second = run.policy(obs, 0), run.policy(obs, 1)
    assert first != second
    kept = run._players[0, False][1]
    assert run.policy(obs, 0) == first
    assert run._players[0, False][1] is kept
    whole = run.agent
    try:
        swapped = jax.tree.map(lambda x: x[::-1], whole.state)
        run.agent = dataclasses.replace(whole, state=swapped)
        assert run.policy(obs, 0) == second
    finally:
        run.agent = whole
