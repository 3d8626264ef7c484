"""Compiled worlds whose masks leave a choice without an option are named in one line."""

from types import SimpleNamespace
from typing import ClassVar

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium import spaces

import sterling
from sterling.envs import make
from sterling.experience.rollouts.adaptation_rollout import Adaptation
from sterling.experience.rollouts.empty_choices import empty_choice_notice, find_empty_choice
from sterling.experience.rollouts.population_episodes import Population
from sterling.problem.agent_axis import Agents
from sterling.types import Rollouts, Spec

PAIR = spaces.MultiDiscrete([2, 3])
FREE, STUCK = [1, 0, 1, 0, 1], [1, 1, 0, 0, 0]


class Masked:
    """A Task of three steps; ``masks`` are those of its first and later observations."""

    action = PAIR
    obs = spaces.Dict({"action_mask": spaces.MultiBinary(5), "x": spaces.Box(0.0, 9.0, (1,))})
    channels: ClassVar = {}

    def __init__(self, *masks):
        self.masks = jnp.asarray(masks, jnp.int8)

    def _seen(self, time):
        return {"action_mask": self.masks[time], "x": time.astype(jnp.float32)[None]}

    def reset(self, key):
        time = jnp.zeros((), jnp.int32)
        return time, self._seen(time)

    def step(self, state, action, key):
        time, never = state + 1, jnp.zeros((), bool)
        return time, self._seen(time), jnp.ones(()), time == 3, never


def test_choice_without_an_option_is_found_where_the_episode_goes_on():
    spec = Spec(spaces.Dict({"action_mask": spaces.MultiBinary(5)}), PAIR, 2)
    rows = np.array([[FREE, FREE], [FREE, STUCK], [STUCK, [0, 0, 1, 1, 1]]])  # (seed, env, option)
    last = jnp.zeros((3, 2), bool)
    obs = {"action_mask": jnp.asarray(rows)}
    np.testing.assert_array_equal(find_empty_choice(spec, obs, last), [0, 2, 2])
    np.testing.assert_array_equal(find_empty_choice(spec, obs, last.at[1:, 1].set(True)), [0, 0, 2])
    np.testing.assert_array_equal(find_empty_choice(spec, obs, ~last), [0, 0, 0])


def test_choice_without_an_option_of_an_agent_that_left_is_not_found():
    parts = {"action_mask": spaces.MultiBinary((2, 3)), "alive": spaces.MultiBinary(2)}
    team = spaces.MultiDiscrete([3, 3])
    spec = Spec(spaces.Dict(parts), team, 1, agents=Agents(("left", "right")))
    mask, last = jnp.array([[[[1, 0, 0], [0, 0, 0]]]]), jnp.zeros((1, 1), bool)
    for alive, found in (([1, 1], 1), ([1, 0], 0)):
        obs = {"action_mask": mask, "alive": jnp.array([[alive]])}
        np.testing.assert_array_equal(find_empty_choice(spec, obs, last), [found])


@pytest.mark.slow
@pytest.mark.parametrize(("later", "lines"), [(STUCK, 1), (FREE, 0)])
def test_training_in_a_compiled_world_says_once_that_a_choice_has_no_option(later, lines, capsys):
    run = sterling.train(
        "dqn", Masked(FREE, FREE, later, STUCK), steps=600, envs=2, preset=False, width=8,
        warmup=20, batch=8, log_every=100, evaluate_episodes=0,
    )  # fmt: skip
    said = [line for line in capsys.readouterr().err.splitlines() if "action mask" in line]
    assert len(said) == lines
    for line in said:
        assert line.startswith("Environment Masked: before step ")
        assert "the action mask leaves choice 2 of 2 without an option where an action must" in line
    seen = {"action_mask": jnp.array([[STUCK]]), "x": jnp.zeros((1, 1, 1))}
    value = jax.vmap(run.agent.algorithm.value)(run.agent.state, seen)
    assert np.abs(value).max() < 1e3


class Pair:
    """Takes the first option of each choice; adapts to nothing."""

    @staticmethod
    def act(state, obs, key, explore):
        return jnp.zeros((len(obs["x"]), 2), jnp.int32), {}

    @staticmethod
    def member(state, key, env):
        return state

    @staticmethod
    def adapt(state, rows, key):
        return state


@pytest.mark.parametrize(
    ("masks", "found"),
    [((FREE, FREE, STUCK), 2), ((STUCK, FREE, FREE), 2), ((FREE, FREE, FREE), 0)],
)
def test_population_tallies_a_choice_without_an_option(masks, found):
    world = make(Masked(*masks, STUCK), [0], 2, purpose="train")
    source = Population.create(world, 4)
    keys = jax.random.split(jax.random.key(0), 1)
    agent = SimpleNamespace(state=jnp.zeros((1, 1)), algorithm=Pair, strategy="map")
    with jax.disable_jit():
        source, _ = source.collect(agent, keys)
    np.testing.assert_array_equal(source.tally.empty_choice, [found])
    assert ("the action mask leaves choice 2 of 2" in empty_choice_notice(
        source, source.tally, "Masked", 8
    )) == (found > 0)  # fmt: skip
    np.testing.assert_array_equal(source.reset_statistics().tally.empty_choice, [0])


def test_adaptation_tallies_choices_without_an_option():
    world = make(Masked(FREE, FREE, FREE, FREE), [0], 2, purpose="train")
    source = Adaptation.create(world, Rollouts(4, adapt=2))
    np.testing.assert_array_equal(source.tally.empty_choice, [0])


@pytest.mark.slow
@pytest.mark.parametrize("algorithm", ["openes", "maml"])
def test_whole_episodes_and_adaptation_say_once_that_a_choice_has_no_option(algorithm, capsys):
    sterling.train(
        algorithm, Masked(FREE, FREE, STUCK, STUCK), steps=8000, envs=4, preset=False, width=8,
        log_every=4000, evaluate_episodes=0,
    )  # fmt: skip
    said = [line for line in capsys.readouterr().err.splitlines() if "action mask" in line]
    assert len(said) == 1
    assert said[0].startswith("Environment Masked: before step ")
