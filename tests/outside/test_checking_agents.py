"""`sterling check` reviews worlds of several agents: each fault is named in its own line."""

import dataclasses

import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium import spaces

from sterling import envs
from sterling.checking import check_environment
from sterling.checking.agent_rules import agent_checks
from sterling.checking.environments.random_play import play_randomly
from sterling.checking.review_findings import run_checks
from sterling.cli import main
from sterling.problem.agent_axis import joint


def wrong(findings):
    """What is named as wrong."""
    return [finding.what for finding in findings if finding.failed]


class Together:
    """A correct world of two agents with masks and a state; the first leaves after one step.
    ``fault`` breaks one rule."""

    agents = ("left", "right")
    action = joint(spaces.Discrete(3), 2)
    unseen = ("state",)

    def __init__(self, fault=""):
        self.fault = fault
        parts = {"seen": joint(spaces.Box(0.0, 9.0, (1,), np.float32), 2)}
        parts |= {"alive": spaces.MultiBinary(2), "action_mask": spaces.MultiBinary((2, 3))}
        self.obs = spaces.Dict({**parts, "state": spaces.Box(0.0, 9.0, (2,), np.float32)})

    def _seen(self, time):
        alive = jnp.stack([time < 1, time < 3])
        if self.fault == "back":
            alive = alive.at[0].set(time != 1)
        if self.fault == "empty":
            alive = alive & (time < 2)
        allowed = jnp.array([[0, 1, 1], [1, 0, 0]], jnp.int8) * alive[:, None].astype(jnp.int8)
        if self.fault == "idle":
            allowed = allowed.at[1].set(0)
        seen = time.astype(jnp.float32)
        return {
            "seen": jnp.full((2, 1), seen), "alive": alive.astype(jnp.int8),
            "action_mask": allowed, "state": jnp.full(2, seen),
        }  # fmt: skip

    def reset(self, key):
        return jnp.zeros((), jnp.int32), self._seen(jnp.zeros((), jnp.int32))

    def step(self, state, action, key):
        seen = self._seen(state)
        there = seen["alive"] > 0
        reward = jnp.where(there | (self.fault == "paid"), 1.0, 0.0)
        allowed = seen["action_mask"][jnp.arange(2), action] > 0
        reward = jnp.where(there & ~allowed & (self.fault != "idle"), jnp.nan, reward)
        moved = state + 1
        return moved, self._seen(moved), reward, moved >= 3, jnp.zeros((), bool)


@pytest.mark.parametrize(
    ("fault", "whats"),
    [
        ("", []),
        ("back", ["an agent that left stays away until the episode is over"]),
        ("empty", ["an agent that left stays away until the episode is over"]),
        ("paid", ["an agent that left gets no reward"]),
        ("idle", ["every agent that is there has an allowed action"]),
    ],
)
def test_check_reviews_a_multi_agent_environment(fault, whats):
    findings = list(check_environment(Together(fault), quick=True))
    assert wrong(findings) == whats
    said = {finding.what: finding.said for finding in findings}
    rows = said["the spaces have a row for each agent"]
    assert rows.startswith("left, right, each with ")
    assert rows.endswith("; critics also see state")
    assert "the reward is the sum of the agents' rewards" in said


def test_check_finds_a_team_reward_that_is_not_the_sum():
    world = envs.make(Together(), (0,), 2)
    played = play_randomly(world, (0,), 6, 0)
    more = dataclasses.replace(played, reward=played.reward + 1.0)
    found = wrong(run_checks(agent_checks(world.spec, more, None)))
    assert found == ["the reward is the sum of the agents' rewards"]
    none = dataclasses.replace(played, channels={})
    assert "the reward is the sum of the agents' rewards" in wrong(
        run_checks(agent_checks(world.spec, none, None))
    )


@pytest.mark.parametrize(
    "name", ["spread:2-agents-3x3", "probe:limits-team", "probe:hidden-team", "probe:parting-team"]
)
def test_check_finds_nothing_in_native_multi_agent_environments(name):
    findings = list(check_environment(name, quick=True))
    assert wrong(findings) == []
    assert any(each.what == "the reward is the sum of the agents' rewards" for each in findings)


@pytest.mark.slow
def test_check_command_reviews_pettingzoo_environments(capsys):
    words = ["check", "pettingzoo:mpe2/simple_spread_v3", "--quick", "--env", "state=true"]
    assert main([*words, "--env", "max_cycles=5"]) == 0
    shown = capsys.readouterr().out
    assert " 0 fail" in shown
    assert "critics also see state" in shown
    assert "nothing is random" not in shown
