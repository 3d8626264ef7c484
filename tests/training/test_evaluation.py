"""Evaluation takes the policy's mode: how randomly it would explore changes nothing."""

import sys
from pathlib import Path

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from constants import constant_array

import sterling
from sterling import envs
from sterling.training.evaluation.evaluate_policy import evaluate

sys.path.insert(0, str(Path(__file__).parents[1] / "contract"))
import logs

SEEDS = constant_array([0, 1], np.int32)
PPO = {"steps": 64, "envs": 2, "length": 16, "minibatch": 32, "epochs": 1, "width": 8}


def returns(run, agent, name):
    world = envs.make(name, (0, 1), 4, purpose="evaluate")
    found = evaluate(agent, world, SEEDS, 4)["return"]
    world.close()
    return found


def softer(agent, where, change):
    """The same agent whose policy has the same mode and is far more random."""
    return eqx.tree_at(where, agent, change(where(agent)))


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
