"""Evaluation takes the policy's mode: how randomly it would explore changes nothing."""

import equinox as eqx
import jax
import jax.numpy as jnp
import logs
import numpy as np
import pytest
from constants import constant_array

import sterling
from sterling import envs
from sterling.report.episodes.episodes_file import (
    MAX_BYTES,
    EvaluatedEpisodes,
    merge_episodes,
    read_episodes,
    write_episodes,
)
from sterling.report.live.metric_sinks import read_metrics
from sterling.training.evaluation.evaluate_policy import evaluate
from sterling.types import Rollouts, Signals, config

SEEDS = constant_array([0, 1], np.int32)
HARDEST = """
from sterling.problem.episode_summaries import Summary

numbers = {"negative": Summary(lambda x: x["return"][x["level/value"] < 0].mean(), better=1)}
"""
PPO = {"steps": 64, "envs": 2, "length": 16, "minibatch": 32, "epochs": 1, "width": 8}


def returns(run, agent, name):
    world = envs.make(name, (0, 1), 4, purpose="evaluate")
    found = evaluate(agent, world, SEEDS, 4)["return"]
    world.close()
    return found


def softer(agent, where, change):
    """The same agent whose policy has the same mode and is far more random."""
    return eqx.tree_at(where, agent, change(where(agent)))


class Same:
    """Takes action 1 and learns nothing."""

    @config
    class Config:
        """Nothing to set."""

    @staticmethod
    def needs(config):
        return Rollouts(4)

    @staticmethod
    def init(key, spec, config):
        return {"right": jnp.ones((), jnp.int32)}

    @staticmethod
    def act(state, obs, key, explore):
        return jnp.broadcast_to(state["right"], obs.shape[:1]), {}

    @staticmethod
    def learn(state, batch, key):
        return state, Signals({})


def test_evaluation_episodes_have_the_level_that_they_began_in(tmp_path, capsys):
    """``begun`` reports the level with every step; a second round begins in other levels. The file
    holds them, and the table of episodes does not show them as if they were channels."""
    env = {"max_episode_steps": 9, "stack": 2, "summaries": f"{tmp_path}/of.py:numbers"}
    (tmp_path / "of.py").write_text(HARDEST)
    how = {"steps": 32, "envs": 4, "seeds": 2, "evaluate_episodes": 12, "evaluate_every": 16}
    run = sterling.train(Same, "probe:levels", out=tmp_path / "run", env=env, quiet=True, **how)
    kept = read_episodes(tmp_path / "run")
    assert len(np.unique(kept.columns["level/value"])) > 12
    np.testing.assert_array_equal(kept.columns["level/value"], kept.columns["begun"])
    assert kept.channels == ["begun"]
    level, gain = kept.columns["level/value"], kept.columns["return"]
    expected = [gain[at][level[at] < 0].mean() for at in (0, 1)]
    np.testing.assert_allclose(run.result["final"]["negative"]["per_seed"], expected)
    few = envs.make("probe:levels", (0, 1), 4, purpose="evaluate", max_episode_steps=9)
    again = evaluate(run.agent, few, SEEDS, 12, 32)  # three rounds
    np.testing.assert_array_equal(again["level/value"], again["begun"])
    names = {name for row in read_metrics(tmp_path / "run" / "metrics.jsonl") for name in row}
    assert {"evaluation/begun", "evaluation/negative"} < names
    assert not [name for name in names if "level" in name]


def test_levels_too_large_for_the_file_of_episodes_are_left_out(tmp_path):
    facts = {"seeds": [0], "envs": 1, "failed_seeds": []}
    small, large = (np.zeros((1, 1, size), np.int8) for size in (MAX_BYTES, MAX_BYTES + 1))
    columns = {"return": np.ones((1, 1)), "level/map": large}
    write_episodes(tmp_path, EvaluatedEpisodes(facts, columns))
    assert list(read_episodes(tmp_path).columns) == ["return"]
    fitting = EvaluatedEpisodes(facts, columns | {"level/map": small})
    write_episodes(tmp_path, fitting)
    assert list(read_episodes(tmp_path).columns) == ["return", "level/map"]
    other = EvaluatedEpisodes({**facts, "seeds": [1]}, {"return": np.ones((1, 1))})
    assert list(merge_episodes([fitting, other], [0, 1]).columns) == ["return"]


@pytest.fixture(scope="module")
def pendulum():
    return sterling.train("ppo", "Pendulum-v1", seeds=2, evaluate_episodes=0, **PPO)


@pytest.mark.slow
def test_evaluation_return_is_independent_of_the_gaussian_log_std(pendulum):
    run = pendulum
    wild = softer(run.agent, lambda a: a.state.nets.log_std, lambda x: x + 2.0)
    one, other, again = (returns(run, a, "Pendulum-v1") for a in (run.agent, wild, run.agent))
    np.testing.assert_array_equal(one, other)
    np.testing.assert_array_equal(one, again)
    assert len(np.unique(one)) == 8  # eight starts


@pytest.mark.slow
def test_exploration_actions_differ_from_mode_actions(pendulum):
    """The actions of both kinds differ, so the test above can fail."""
    obs, keys = jnp.ones((2, 5, 3)), jax.random.split(jax.random.key(0))
    calm, _ = pendulum.agent.act(obs, keys, False)
    wild, _ = pendulum.agent.act(obs, keys, True)
    assert jnp.abs(calm - wild).min() > 0.0
    np.testing.assert_array_equal(calm, pendulum.agent.act(obs, keys[::-1], False)[0])


@pytest.mark.parametrize("name", ["ppo", pytest.param("dt", marks=pytest.mark.slow)])
def test_evaluation_return_is_independent_of_the_categorical_entropy(name, tmp_path):
    """Logits divided by a hundred have the same mode; drawn from them, half of all choices would
    be others. An agent with a memory chooses in a place of its own (dt)."""
    if name == "ppo":
        run = sterling.train("ppo", "CartPole-v1", seeds=2, evaluate_episodes=0, **PPO)
        flat = softer(run.agent, lambda a: a.state.nets.policy.layers[-1], _divided)
        world = "CartPole-v1"
    else:
        logs.write("both", True, tmp_path)
        few = {"updates": 300, "lr": 3e-3, "rise": 10, "batch": 32, "width": 16, "layers": 1}
        sizes = {"length": 4, "target": 1.0, "horizon": 4, "evaluate_episodes": 0}
        run = sterling.train("dt", data=str(tmp_path / "both"), seeds=2, **few, **sizes)
        flat = softer(run.agent, lambda a: a.state.nets.head.layers[-1], _divided)
        world = "probe:both"
    np.testing.assert_array_equal(returns(run, run.agent, world), returns(run, flat, world))


def _divided(layer):
    return jax.tree.map(lambda x: x / 100.0, layer)
