"""Planners act without planning where a plan is not needed: `prior`, and an empty memory."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium import spaces

import sterling
from sterling import random_keys
from sterling.checking.needed_batches import first_subjects
from sterling.checking.planner_checks import planner_checks
from sterling.checking.problems.checked_problem import Problem
from sterling.checking.review_findings import CheckFailed
from sterling.checking.training_checks import state_values
from sterling.deploy.graph.policy_trace import trace_policy
from sterling.experience.replay.ring_buffer import Place
from sterling.training.api import settings_from_arguments
from sterling.training.assembly.build_run import build_first_phase
from sterling.training.config.run_arguments import train_arguments
from sterling.training.evaluation import evaluator
from sterling.types import Feed, Mistake, Needs, Signals, config

WARMUP, EPISODE, WIDTH = 12, 5, 3


class Paid:
    """A Task that pays the action."""

    obs, action = spaces.Box(-1.0, 1.0, (WIDTH,), np.float32), spaces.Discrete(2)

    def reset(self, key):
        return jnp.zeros((), jnp.int32), jnp.zeros(WIDTH)

    def step(self, state, action, key):
        ended = state + 1 == EPISODE
        return state + 1, jnp.zeros(WIDTH), action.astype(jnp.float32), ended, jnp.zeros((), bool)


class State(eqx.Module):
    weight: jax.Array
    config: object


class Planner:
    """Plans to do 1, for as many steps as it remembers; without planning it does 0."""

    forgetful = True

    @config
    class Config:
        rate: float = 0.1

    @staticmethod
    def needs(config):
        return Needs(1, (Feed(batch=4),), 1_000, WARMUP, ("planned",))

    @staticmethod
    def init(key, spec, config):
        return State(jnp.zeros(()), config)

    @staticmethod
    def memory(state, envs, key):
        return jnp.zeros(envs, jnp.int32)

    @staticmethod
    def recall(state, past, obs, key, explore):
        action = (past.memory < 2).astype(jnp.int32)  # its plan reaches two steps
        return action, past.memory + 1, {"planned": jnp.ones(action.shape)}

    @staticmethod
    def prior(state, past, obs, key, explore):
        none = jnp.zeros_like(past.memory)
        return none, none, {"planned": jnp.zeros(none.shape)}

    @staticmethod
    def learn(state, batch, key):
        weight = state.weight + state.config.rate * batch.extras["planned"].mean()
        return State(weight, state.config), Signals({"loss/weight": weight})


class Remembering(Planner):
    forgetful = False


class Searching:
    """Without a memory: its search ends with the step."""

    Config, needs, init, learn = Planner.Config, Planner.needs, Planner.init, Planner.learn

    @staticmethod
    def act(state, obs, key, explore):
        some = jnp.ones(len(obs), jnp.int32)
        return some, {"planned": some.astype(jnp.float32)}

    @staticmethod
    def prior(state, obs, key, explore):
        none = jnp.zeros(len(obs), jnp.int32)
        return none, {"planned": none.astype(jnp.float32)}


HOW = {"environment": Paid(), "steps": 40, "seeds": 2, "evaluate_episodes": 2, "quiet": True}


@pytest.mark.parametrize("algorithm", [Planner, Searching])
def test_random_warm_up_acts_by_the_prior_and_training_plans(algorithm):
    how = {"algorithm": algorithm, "environment": Paid(), "steps": 40, "seeds": 2}
    run = build_first_phase(settings_from_arguments(train_arguments(None, how)))
    row = jnp.arange(WARMUP)
    place = Place(jnp.asarray(1), row, jnp.zeros_like(row))
    assert not run.source.ring.kept(place, ["planned"])["planned"].any()
    assert np.unique(run.source.ring.action(place)).size == 2  # still random
    _, draws = run.source.collect(run.agent, random_keys.for_seeds(run.seeds, "collect", 0))
    now = Place(jnp.asarray(1), jnp.asarray([WARMUP]), jnp.zeros(1, jnp.int32))
    assert draws.ring.kept(now, ["planned"])["planned"] == 1.0


def test_planner_is_evaluated_with_and_without_planning():
    run = sterling.train(Planner, **HOW)
    assert run.result["final"]["return"]["per_seed"] == [2.0, 2.0]  # what its memory plans
    assert run.evaluate(2)["return"]["per_seed"] == [2.0, 2.0]
    assert run.prior.evaluate(2)["return"]["per_seed"] == [0.0, 0.0]
    assert sterling.evaluate(run, episodes=2, policy="prior").per_seed == {0: 0.0, 1: 0.0}

    class Plain:
        Config, needs, init, learn = Planner.Config, Planner.needs, Planner.init, Planner.learn
        act = Searching.act

    other = sterling.train(Plain, **HOW)
    with pytest.raises(Mistake, match="has no prior: it does not plan"):
        other.prior  # noqa: B018


def test_prior_is_not_evaluated_by_the_stored_program_of_its_planner(monkeypatch):
    run, names = sterling.train(Planner, **{**HOW, "evaluate_episodes": 0}), []
    found = {"return": np.zeros((2, 1)), "ended": np.ones((2, 1), bool)}

    def played(*_, stored_as, **how):
        names.append(stored_as)
        return found

    monkeypatch.setattr(evaluator, "evaluate", played)
    monkeypatch.setattr(evaluator.program_store, "is_open_for", lambda settings: True)
    run.evaluate(1)
    run.prior.evaluate(1)
    assert names == ["evaluate", ""]


def test_policy_of_a_planner_begins_every_action_with_an_empty_plan():
    run, obs = sterling.train(Planner, **HOW), np.zeros(WIDTH, np.float32)
    assert [run.policy(obs) for _ in range(4)] == [1, 1, 1, 1]
    assert run.policy(np.zeros((3, WIDTH), np.float32)).tolist() == [1, 1, 1]
    assert run.prior.policy(obs) == 0
    player, done = run.player(), []
    for _ in range(4):
        done.append(int(player(obs)))
        player.notice(0.0, False)
    assert done == [1, 1, 0, 0]
    other = sterling.train(Remembering, **HOW)
    with pytest.raises(Mistake, match=r"acts with a memory of its episode.*use run\.player"):
        other.policy(obs)


def checked(algorithm):
    """What the checks of a planner find: nothing, or what is wrong."""
    problem = Problem(algorithm, {}, {"environment": Paid()}, "")
    said = []
    for what, check, _ in planner_checks(first_subjects(problem)[0], ""):
        try:
            check()
        except CheckFailed as failure:
            said.append(f"{what}: {failure}")
    return said


def test_check_of_a_planner_names_what_its_prior_lacks():
    class Bare(Planner):
        @staticmethod
        def prior(state, past, obs, key, explore):
            return (*Planner.prior(state, past, obs, key, explore)[:2], {})

    class Narrow(Planner):
        @staticmethod
        def prior(state, past, obs, key, explore):
            action, memory, extras = Planner.prior(state, past, obs, key, explore)
            return action, memory, {"planned": extras["planned"].astype(jnp.int32)}

    class Growing(Planner):
        @staticmethod
        def needs(config):
            return Needs(4, (Feed(batch=4),), 1_000)

        @staticmethod
        def prior(state, past, obs, key, explore):
            action, memory, extras = Planner.prior(state, past, obs, key, explore)
            return action, memory.astype(jnp.float32), extras

    class Empty(Searching):
        forgetful = True

    assert checked(Planner) == checked(Searching) == []
    with pytest.raises(Mistake, match="prior does not return the extra 'planned' that keep names"):
        checked(Bare)
    said = f"{checked(Narrow)[0]}"
    assert "prior returns what recall returns: recall returns" in said
    assert "'planned'" in said
    assert "the memory was" in checked(Growing)[0]
    assert checked(Empty) == ["run.policy acts with an empty memory (forgetful): it has no memory"]


def test_export_refuses_keys_of_each_env_and_drawn_memories():
    class Splitting(Planner):
        @staticmethod
        def recall(state, past, obs, key, explore):
            drawn = jax.vmap(jax.random.bernoulli)(jax.random.split(key, len(obs)))
            return drawn.astype(jnp.int32), past.memory, {"planned": drawn.astype(jnp.float32)}

    class Drawing(Planner):
        @staticmethod
        def memory(state, envs, key):
            return jax.random.randint(key, (envs,), 0, 2)

    short = {**HOW, "steps": 14, "evaluate_episodes": 0, "seeds": 1}
    run = sterling.train(Splitting, **short)
    with pytest.raises(Mistake, match=r"the number of rows as a plain number.*sterling serve RUN"):
        trace_policy(run)
    run = sterling.train(Drawing, **short)
    with pytest.raises(Mistake, match=r"draws a memory for each episode.*sterling serve RUN"):
        trace_policy(run)


def test_value_that_is_drawn_is_asked_with_a_key():
    class Plain:
        @staticmethod
        def value(state, obs):
            return state + obs

    class Drawn:
        @staticmethod
        def value(state, obs, key):
            return state + obs + jax.random.uniform(key)

    assert state_values(Plain, 1.0, 2.0) == 3.0
    assert 3.0 < state_values(Drawn, 1.0, 2.0) < 4.0
