"""`sterling check` reviews learners of teams and of logs, and algorithms in a named world."""

import dataclasses
import itertools
import types

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from sterling.algorithms.multi_agent import ippo
from sterling.algorithms.offline import cql, iql, td3bc
from sterling.algorithms.online import sac
from sterling.checking import check_algorithm
from sterling.checking.needed_batches import first_subjects
from sterling.checking.problems.checked_problem import (
    Problem,
    asks_random_log,
    declared_problem,
    declared_settings,
    problem_label,
)
from sterling.checking.problems.made_problems import has_known_answers, made_problems
from sterling.checking.problems.random_log import write_random_log
from sterling.checking.update_checks import may_learn_from_rewards
from sterling.cli import main
from sterling.data.dataset import Dataset
from sterling.types import Feed, Mistake, Needs, Record, Rollouts, Signals, config

LOG = {"environment": "probe:limits-continuous", "data": "random"}


def of_updates(made, **where):
    """The findings up to the first run."""
    findings = check_algorithm(made, **where)
    return list(itertools.takewhile(lambda one: "seed alone" not in one.what, findings))


def mutant(module, **parts):
    """The algorithm with some functions replaced."""
    names = ("Config", "needs", "init", "act", "learn", "value", "several_agents")
    own = {name: getattr(module, name) for name in names if hasattr(module, name)} | parts
    return type(
        "Mutant",
        (),
        {k: staticmethod(v) if isinstance(v, types.FunctionType) else v for k, v in own.items()},
    )


def unmasked(module):
    def learn(state, batch, key):
        mask = jnp.ones_like(batch.mask)
        return module.learn(state, dataclasses.replace(batch, mask=mask), key)

    return mutant(module, learn=learn)


def endless(module):
    def learn(state, batch, key):
        discount = jnp.ones_like(batch.discount)
        return module.learn(state, dataclasses.replace(batch, discount=discount), key)

    return mutant(module, learn=learn)


def one_key(module):
    def learn(state, batch, key):
        mean = jnp.mean(jax.random.normal(jax.random.key(0)))
        return module.learn(
            state, dataclasses.replace(batch, reward=batch.reward + mean), jax.random.key(0)
        )

    return mutant(module, learn=learn)


@pytest.mark.slow
@pytest.mark.parametrize(("module", "where"), [(ippo, {}), (iql, LOG)], ids=["team", "log"])
@pytest.mark.parametrize(
    ("plant", "what"),
    [
        (unmasked, "learn ignores masked rows"),
        (endless, "learn separates ends from truncations"),
        (one_key, "learn draws from its key"),
    ],
    ids=["mask", "discount", "key"],
)
def test_check_names_a_fault_planted_in_a_learner_of_teams_or_logs(module, where, plant, what):
    found = of_updates(plant(module), **where)
    assert [one.what.partition(" (")[0] for one in found if one.failed] == [what]


@pytest.mark.slow
@pytest.mark.parametrize("name", ["ippo", "mappo", "dt", "gcbc", "gciql", "qrl", "pebble"])
def test_check_leaves_no_update_of_teams_logs_and_labels_unchecked(name):
    assert [one for one in of_updates(name) if one.verdict != "holds"] == []


@pytest.mark.parametrize(
    ("module", "logged"), [(cql, True), (td3bc, True), (iql, False), (sac, False)]
)
def test_known_answers_are_asked_of_algorithms_that_are_not_checked_on_logs(module, logged):
    random_log = asks_random_log(declared_problem(module, {}))
    made = made_problems(module, module.needs(module.Config()), random_log)
    assert [has_known_answers(each) for each in made.values()] == [not logged, not logged]


@pytest.mark.parametrize(
    ("read", "learns"),
    [
        (lambda batch: batch.reward, True),
        (lambda batch: batch.extras["episode/return"], True),
        (lambda batch: batch.obs, False),
    ],
    ids=["reward", "return so far", "observation"],
)
def test_learners_of_returns_learn_from_rewards(read, learns):
    """Else no known answers would be asked of them."""
    one = np.ones(3, np.float32)
    batch = Record(one, one, 3 * one, one, one, one > 2, one > 0, {"episode/return": 5 * one})
    subject = types.SimpleNamespace(batch=lambda: batch, update=read)
    assert may_learn_from_rewards([subject]) == learns


def test_arguments_given_for_checking_replace_those_that_the_file_declares(tmp_path):
    declared = {"environment": "CartPole-v1", "env_options": {"max_episode_steps": 9}}
    made = types.SimpleNamespace(checked_in={**declared, "data": "random", "hindsight": "final"})
    given = {"environment": "Acrobot-v1", "data": None}
    assert declared_problem(made, given) == {"environment": "Acrobot-v1", "hindsight": "final"}
    assert declared_problem(made, {"data": None}) == made.checked_in
    with pytest.raises(Mistake, match="options of an environment are given, but no environment"):
        declared_problem(types.SimpleNamespace(), {"env_options": {"max_episode_steps": 9}})
    assert problem_label({"environment": "Acrobot-v1", "data": tmp_path / "log.npz"}) == (
        "in Acrobot-v1 on log.npz"
    )
    with pytest.raises(Mistake, match="checked_in is a dict of arguments"):
        declared_problem(types.SimpleNamespace(checked_in="CartPole-v1"), given)


@config
class Waiting:
    """How long a model is fitted first."""

    wait: int = 3_000
    fits: int = 1
    unlike: int = 7


def model_first(settings):
    model = Feed(name="model", batch=8, updates=settings.fits, until=settings.wait)
    return Needs(1, (model, Feed(batch=8, after=settings.wait)), 1_000)


def test_short_runs_wait_for_feeds_that_begin_later_or_name_the_setting(tmp_path):
    """The longest wait is 2,000 iterations; a log's budget are the updates of the iterations."""
    parts = {"Config": Waiting, "needs": staticmethod(model_first)}
    parts |= {name: staticmethod(print) for name in ("init", "act", "learn", "learn_model")}
    made = type("Made", (), parts)
    world = {"environment": "probe:action", "envs": 8}
    short = Problem(made, {"wait": 20}, world, "")
    assert (short.short_run(), short.late_feed()) == ((20 + 12) * 8, "")
    long = Problem(made, {}, world, "")
    assert long.short_run() == 12 * 8
    late = ", but without learn, which waits for 3,000 iterations: give checked_in = "
    assert long.late_feed() == late + '{"wait": 20} in its file'
    log = {"environment": "probe:delay", "data": write_random_log("probe:delay", {}, tmp_path)}
    at_once = Problem(made, {"wait": 1, "fits": 500}, log, "")
    assert at_once.short_run() == 500 + 12
    assert at_once.settings().budget > 0


def test_settings_that_a_file_declares_for_checking_hold_unless_they_are_given():
    made = type("Made", (), {"Config": Waiting, "needs": staticmethod(model_first)})
    made.checked_in = {"wait": 20, "unlike": 9}
    assert declared_settings(made, {"unlike": 5}, {}) == ({"wait": 20, "unlike": 5}, {})


class Reading:
    """Acts by what the world reported in the step before, and learns from all that it reports."""

    Config = Waiting
    needs = staticmethod(lambda settings: Rollouts(4))
    init = staticmethod(lambda key, spec, settings: jnp.zeros(2))
    memory = staticmethod(lambda state, envs, key: jnp.zeros(envs))

    @staticmethod
    def recall(state, past, obs, key, explore):
        return (past.channels["objectives"] @ state > 0.0).astype(jnp.int32), past.memory, {}

    @staticmethod
    def learn(state, batch, key):
        return state + batch.extras["objectives"].sum((0, 1)), Signals({})


def test_learners_of_what_a_world_reports_are_checked_in_that_world():
    problem = Problem(Reading, {}, {"environment": "probe:objectives"}, "")
    subject = first_subjects(problem)[0]
    (action, _), rows = subject.act(0, True)
    assert action.shape == (rows,)
    batch = subject.batch()
    np.testing.assert_allclose(subject.update(batch), batch.extras["objectives"].sum((0, 1)))


def test_log_of_random_actions_keeps_successors_ends_and_options(tmp_path):
    path = write_random_log("probe:delay", {}, tmp_path)
    log = Dataset(path)
    first = log[0]
    assert log.metadata.facts.environment == "probe:delay"
    np.testing.assert_array_equal(first.reward[:2], [0.0, 1.0])
    np.testing.assert_array_equal(first.discount[:2], [1.0, 0.0])
    assert len(first.obs) == len(first.reward) + 1 == 3


def test_check_of_an_environment_refuses_a_second_word(capsys):
    assert main(["check", "probe:both", "CartPole-v1"]) == 2
    assert "probe:both is no algorithm, so it is checked alone" in capsys.readouterr().err
