"""Evaluation against a plain NumPy simulation of the same episodes."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium import spaces

from sterling import random_keys
from sterling.algorithms.online import ppo
from sterling.envs.traced_world import TracedWorld
from sterling.experience.rollouts.whole_episodes import EpisodeState, _choose_actions, _count_step
from sterling.training.agent import Agent
from sterling.training.evaluation.evaluate_policy import evaluate
from sterling.types import Step

SEEDS = (3, 8)
ENVS = 3


class Stairs(eqx.Module):
    """Where one begins, and the steps climbed."""

    start: jax.Array
    time: jax.Array


class Climb:
    """An episode of 2, 3 or 4 steps by where it begins; every step pays action times step."""

    obs = spaces.Box(-np.inf, np.inf, (2,), np.float32)
    action = spaces.Box(-1.0, 1.0, (1,), np.float32)

    def reset(self, key):
        state = Stairs(jax.random.uniform(key), jnp.zeros((), jnp.int32))
        return state, self._seen(state)

    def step(self, state, action, key):
        moved = Stairs(state.start, state.time + 1)
        over = moved.time >= 2 + jnp.floor(3.0 * state.start).astype(jnp.int32)
        reward = action[0] * moved.time.astype(jnp.float32)
        return moved, self._seen(moved), reward, over, jnp.asarray(False)

    def _seen(self, state):
        return jnp.stack([state.start, state.time.astype(jnp.float32)])


@pytest.fixture(scope="module")
def world():
    return TracedWorld(Climb(), SEEDS, ENVS, strategy="map")


@pytest.fixture(scope="module")
def agent(world):
    """Its random actions are far from its deterministic ones."""
    config = ppo.Config(width=8, depth=1, length=8, minibatch=8, log_std=1.0, normalise_obs=False)
    seeds = jnp.asarray(SEEDS, jnp.int32)
    made = Agent.create(ppo, random_keys.for_seeds(seeds, "agent", 0), world.spec, config, "map")
    wide = jax.tree.map(lambda x: 60.0 * x, made.state.nets.policy.layers[-1])
    return eqx.tree_at(lambda a: a.state.nets.policy.layers[-1], made, wide)


def climbed(agent, seed, start):
    """The return and the length of one episode: a tanh network of one hidden layer, in NumPy."""
    first, last = (
        [np.asarray(x[seed], np.float64) for x in (layer.weight, layer.bias)]
        for layer in agent.state.nets.policy.layers
    )
    total, length = 0.0, 2 + int(3.0 * start)
    for time in range(length):
        hidden = np.tanh(np.array([start, time]) @ first[0] + first[1])
        total += (hidden @ last[0] + last[1])[0] * (time + 1)
    return total, length


def test_evaluation_plays_whole_episodes_and_matches_a_numpy_simulation(agent, world):
    found = evaluate(agent, world, jnp.asarray(SEEDS, jnp.int32), 5)
    assert found["return"].shape == found["length"].shape == (2, 5)
    starts = [
        np.asarray(
            world.reset(random_keys.for_seeds(jnp.asarray(SEEDS, jnp.int32), "evaluate", round_))[1]
        )
        for round_ in range(2)
    ]
    starts = np.concatenate(starts, 1)[:, :5, 0]
    assert len(np.unique(starts)) == 10  # no episode is played twice
    wanted = [[climbed(agent, s, x) for x in row] for s, row in enumerate(starts)]
    np.testing.assert_allclose(found["return"], np.array(wanted)[..., 0], rtol=1e-4, atol=1e-5)
    np.testing.assert_array_equal(found["length"], np.array(wanted)[..., 1])
    assert len(np.unique(found["length"])) > 1


def test_evaluation_episode_count_defaults_to_the_number_of_envs(agent, world):
    found = evaluate(agent, world, jnp.asarray(SEEDS, jnp.int32))
    assert found["return"].shape == (2, ENVS)


class Dice:
    """Every episode is one throw, paid by the world's own chance."""

    obs = spaces.Box(-np.inf, np.inf, (2,), np.float32)
    action = spaces.Box(-1.0, 1.0, (1,), np.float32)

    def reset(self, key):
        return jnp.zeros((), jnp.int32), jnp.zeros(2)

    def step(self, state, action, key):
        over = state >= 2
        return state + 1, jnp.zeros(2), jax.random.uniform(key), over, jnp.asarray(False)


@pytest.mark.parametrize("traced", [True, False])
def test_evaluation_uses_a_new_random_key_at_every_environment_step(agent, traced):
    """Three throws an episode: were one key used for all steps, returns were three times one."""
    world = TracedWorld(Dice(), SEEDS, ENVS, strategy="map")
    world.traced = traced
    found = evaluate(agent, world, jnp.asarray(SEEDS, jnp.int32), 4 * ENVS)
    assert (found["length"] == 3).all()
    assert len(np.unique(found["return"])) == 2 * 4 * ENVS
    again = evaluate(agent, world, jnp.asarray(SEEDS, jnp.int32), 4 * ENVS)
    np.testing.assert_array_equal(found["return"], again["return"])
    assert found["return"].std() < 0.7  # sqrt(3 / 12) = 0.5; of one throw three times: 0.87


def test_evaluation_step_counts_returns_lengths_ends_and_crashes():
    """Five copies: running, ending, over, restarting after a crash, and a row of no experience."""
    row = [False, False, True, False, False]
    before = EpisodeState(
        None,
        jnp.zeros((1, 5)),
        {
            "return": jnp.asarray([[1.0, 2.0, 3.0, 4.0, 5.0]]),
            "length": jnp.asarray([[1, 2, 3, 4, 5]], jnp.int32),
        },
        jnp.asarray([row]),
        None,
        jnp.zeros((1, 5), jnp.int32),
    )
    step = Step(
        jnp.ones((1, 5)),
        jnp.full((1, 5), 10.0),
        jnp.ones((1, 5)),
        jnp.asarray([[False, True, True, True, False]]),
        jnp.asarray([[True, True, True, False, False]]),
    )
    after = _count_step(before, {}, step)
    np.testing.assert_array_equal(after.totals["return"], [[11.0, 12.0, 3.0, 0.0, 5.0]])
    np.testing.assert_array_equal(after.totals["length"], [[2, 3, 3, 0, 5]])
    np.testing.assert_array_equal(after.over, [[False, True, True, False, False]])
    np.testing.assert_array_equal(after.crashes, [[0, 0, 0, 1, 0]])


class Drawn:
    """An algorithm that draws its actions, also those that do not explore, as FQL does."""

    Config = None

    def init(self, key, spec, config):
        raise AssertionError("it has nothing to begin with")

    def needs(self, config):
        raise AssertionError("it asks for no experience")

    def act(self, state, obs, key, explore):
        return jax.random.uniform(key, (len(obs), 1)), {}

    def learn(self, state, batch, key):
        raise AssertionError("it does not learn")


def test_evaluation_uses_a_new_random_key_for_every_sampled_action():
    drawn, own = Agent(jnp.zeros(2), Drawn(), None, "map"), jax.random.split(jax.random.key(3), 2)
    obs = jnp.zeros((2, ENVS, 2))
    times = [jnp.asarray(time, jnp.int32) for time in range(4)]
    found = [_choose_actions(drawn, obs, None, own, time, recorded=False)[0] for time in times]
    assert len(np.unique(found)) == 4 * 2 * ENVS
