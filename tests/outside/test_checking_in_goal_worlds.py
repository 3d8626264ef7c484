"""`sterling check` reviews learners of goals in a world of goals."""

import copy
import dataclasses

import jax
import jax.numpy as jnp
import pytest

from sterling.checking.needed_batches import first_subjects
from sterling.checking.problems.checked_problem import Problem
from sterling.checking.problems.made_problems import complete_problem, made_problems
from sterling.checking.review_findings import run_checks
from sterling.checking.update_checks import update_checks
from sterling.equations.goal_rewards import wanting
from sterling.equations.masked_average import masked_mean
from sterling.needs.goal_rows import drawn_goal
from sterling.problem.goal_obs import ACHIEVED
from sterling.types import Beside, Feed, Needs, Signals, config

FEED = Feed(batch=16, beside=(Beside("goal", drawn_goal(0.0, 1.0)),))


@config
class Settings:
    """Nothing to set."""


class Counts:
    """Acts at random, and learns how often goals are reached."""

    Config = Settings
    needs = staticmethod(lambda settings: Needs(1, (FEED,), 1_000, 80))
    init = staticmethod(lambda key, spec, settings: jnp.zeros(()))

    @staticmethod
    def act(state, obs, key, explore):
        return jax.random.bernoulli(key, 0.5, obs[ACHIEVED].shape[:1]).astype(jnp.int32), {}

    @staticmethod
    def learn(state, batch, key):
        rows = wanting(batch, batch.beside["goal"].obs[ACHIEVED])
        return state + masked_mean(rows.reward, rows.mask), Signals({})


def unmasked(state, batch, key):
    return Counts.learn(state, dataclasses.replace(batch, mask=jnp.ones_like(batch.mask)), key)


def paid_by_goals(state, batch, key):
    """Takes the goal's row for experience, also where it is a final observation."""
    made, signals = Counts.learn(state, batch, key)
    return made + masked_mean(batch.beside["goal"].reward, batch.mask), signals


@pytest.fixture(name="subject", scope="module")
def _subject(tmp_path_factory):
    """The first batch in the world that the check makes for such a learner."""
    needs = Counts.needs(Settings())
    made = made_problems(Counts, needs, False)["discrete"]
    assert made["environment"] == "probe:goals"
    place = complete_problem(made, needs, tmp_path_factory.mktemp("goals"))
    return first_subjects(Problem(Counts, {}, place, ""))[0]


@pytest.mark.parametrize(
    ("learn", "wrong"),
    [
        (Counts.learn, []),
        (unmasked, ["learn ignores masked rows"]),
        (paid_by_goals, ["learn ignores masked rows"]),
    ],
    ids=["right", "unmasked", "final observations"],
)
def test_check_reviews_learners_of_goals_in_a_goal_world(subject, learn, wrong):
    planted = copy.copy(subject)
    planted.learn = jax.jit(learn)
    found = list(run_checks(update_checks([planted], "")))
    assert [one.what for one in found if one.failed] == wrong
    assert {one.verdict for one in found} <= {"holds", "fails"}
