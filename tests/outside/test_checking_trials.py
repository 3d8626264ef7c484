"""`sterling check` finds faults that show only in trials and in tasks to adapt to."""

import copy
import dataclasses
import types

import jax
import jax.numpy as jnp
import pytest

from sterling.checking import check_algorithm
from sterling.checking.needed_batches import first_subjects
from sterling.checking.problems.checked_problem import Problem
from sterling.checking.review_findings import run_checks
from sterling.checking.trial_checks import adapt_checks, memory_checks
from sterling.types import Mistake, Rollouts, Signals, config

SMALL = {"width": 8, "length": 8, "epochs": 1, "minibatch": 32}
LEARN = "learn forgets what came before a reset of the memory"
RECALL = "recall remembers the earlier episodes of a trial"


def failed(checks):
    found = list(run_checks(checks))
    assert found
    return {one.what: one.said for one in found if one.failed}


@pytest.fixture(name="subject", scope="module")
def _subject():
    """Recurrent PPO's first batch in trials of three episodes."""
    place = {"environment": "trials:3:probe:levels-hidden", "envs": 4}
    return first_subjects(Problem("recurrent-ppo", SMALL, place, ""))[0]


def test_check_holds_of_a_memory_that_is_kept_in_a_trial_and_reset_between_trials(subject):
    found = list(run_checks(memory_checks(subject, "")))
    assert [(one.what, one.verdict, one.said) for one in found] == [
        (LEARN, "holds", "4 rows after a reset"),
        (RECALL, "holds", ""),
    ]


def test_check_finds_a_memory_that_is_reset_between_the_episodes_of_a_trial(subject):
    own = subject.algorithm

    def recall(state, past, obs, key, explore):
        fresh = own.memory(state, len(past.first), key)
        ended = obs["ended"][:, 0] > 0.0
        kept = jax.tree.map(
            lambda new, old: jnp.where(ended.reshape(-1, *(1,) * (old.ndim - 1)), new, old),
            fresh,
            past.memory,
        )
        return own.recall(state, dataclasses.replace(past, memory=kept), obs, key, explore)

    planted = copy.copy(subject)
    parts = {"memory": own.memory, "recall": recall, "learn": own.learn}
    planted.algorithm = types.SimpleNamespace(**parts)
    assert list(failed(memory_checks(planted, ""))) == [RECALL]
    parts["recall"] = lambda state, past, obs, key, explore: (None, past.memory, {})
    planted.algorithm = types.SimpleNamespace(**parts)
    found = list(run_checks(memory_checks(planted, "")))
    assert found[-1].said == "its memory does not depend on what it observes"


def test_check_finds_a_learner_whose_memory_goes_on_into_the_next_trial(subject):
    own = subject.algorithm

    def learn(state, batch, key):
        never = jnp.zeros_like(batch.extras["begins"])
        extras = {**batch.extras, "begins": never}
        return own.learn(state, dataclasses.replace(batch, extras=extras), key)

    planted = copy.copy(subject)
    planted.learn = jax.jit(learn)
    found = failed(memory_checks(planted, ""))
    assert list(found) == [LEARN]
    assert "what was observed before a reset changes what is learned after it" in found[LEARN]


@config
class Settings:
    """Nothing to set."""


class Tries:
    """After a few random steps it takes the action that paid in them."""

    Config = Settings
    needs = staticmethod(lambda settings: Rollouts(16, adapt=9))

    @staticmethod
    def init(key, spec, settings):
        if not hasattr(spec.action, "n"):
            raise Mistake("Tries takes choices.")
        return {"gain": jnp.zeros(()), "seen": jnp.zeros(())}

    @staticmethod
    def act(state, obs, key, explore):
        tried = jax.random.bernoulli(key, 0.5, obs.shape[:1])
        best = jnp.broadcast_to(state["gain"] > 0.0, obs.shape[:1])
        return jnp.where(explore, tried, best).astype(jnp.int32), {}

    @staticmethod
    def adapt(state, batch, key):
        gain = jnp.where(batch.action == 1, batch.reward, -batch.reward)
        return {**state, "gain": gain.sum(where=batch.mask)}

    @staticmethod
    def learn(state, batch, key):
        return {**state, "seen": state["seen"] + batch.mask.sum(dtype=jnp.float32)}, Signals({})


def unmasked(state, batch, key):
    return Tries.adapt(state, dataclasses.replace(batch, mask=jnp.ones_like(batch.mask)), key)


def counted(state, batch, key):
    return {**state, "gain": batch.mask.sum()}


@pytest.mark.parametrize(
    ("adapt", "what"),
    [
        (Tries.adapt, None),
        (unmasked, "adapt ignores masked rows"),
        (lambda state, batch, key: state, "adapt learns from the rows of a task"),
        (counted, "adapt keeps shapes and types"),
    ],
    ids=["right", "unmasked", "deaf", "types"],
)
def test_check_finds_an_adaptation_that_reads_masked_rows_or_no_task(adapt, what):
    made = type("Made", (Tries,), {"adapt": staticmethod(adapt)})
    place = {"environment": "probe:levels-hidden", "envs": 4}
    found = failed(adapt_checks(Problem(made, {}, place, ""), ""))
    assert [each for each in found if each == what] == ([what] if what else list(found))


def test_algorithms_that_adapt_are_checked_in_hidden_levels_without_being_asked():
    deaf = type("Deaf", (Tries,), {"adapt": staticmethod(lambda state, batch, key: state)})
    what = "adapt learns from the rows of a task (discrete actions)"
    found = next(one for one in check_algorithm(deaf, quick=True) if one.what == what)
    assert found.failed
    assert found.said == "the rows of 8 tasks give the same state"
