"""`sterling check` reviews learners of teams and of logs, and algorithms in a named world."""

import dataclasses
import itertools
import types

import jax
import jax.numpy as jnp
import pytest

from sterling.algorithms.goals import gciql
from sterling.algorithms.multi_agent import ippo
from sterling.checking import check_algorithm
from sterling.checking.problems.checked_problem import declared_problem, problem_label
from sterling.cli import main
from sterling.types import Mistake


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
@pytest.mark.parametrize("module", [ippo, gciql], ids=["team", "log"])
@pytest.mark.parametrize(
    ("plant", "what"),
    [
        (unmasked, "learn ignores masked rows"),
        (endless, "learn separates ends from truncations"),
        (one_key, "learn draws from its key"),
    ],
    ids=["mask", "discount", "key"],
)
def test_check_names_a_fault_planted_in_a_learner_of_teams_or_logs(module, plant, what):
    failed = [one.what.partition(" (")[0] for one in of_updates(plant(module)) if one.failed]
    assert failed == [what]


@pytest.mark.slow
@pytest.mark.parametrize("name", ["ippo", "mappo", "dt", "gcbc", "gciql", "qrl"])
def test_check_leaves_no_update_of_teams_and_logs_unchecked(name):
    assert [one for one in of_updates(name) if one.verdict != "holds"] == []


def test_arguments_given_for_checking_replace_those_that_the_file_declares(tmp_path):
    made = types.SimpleNamespace(checked_in={"environment": "CartPole-v1", "data": "random"})
    given = {"environment": "Acrobot-v1", "data": None}
    found = declared_problem(made, given)
    assert found == {"environment": "Acrobot-v1", "data": "random"}
    assert problem_label({"environment": "Acrobot-v1", "data": tmp_path / "log.npz"}) == (
        "in Acrobot-v1 on log.npz"
    )
    with pytest.raises(Mistake, match="checked_in is a dict of arguments"):
        declared_problem(types.SimpleNamespace(checked_in="CartPole-v1"), given)


def test_check_of_an_environment_refuses_a_second_word(capsys):
    assert main(["check", "probe:both", "CartPole-v1"]) == 2
    assert "probe:both is no algorithm, so it is checked alone" in capsys.readouterr().err
