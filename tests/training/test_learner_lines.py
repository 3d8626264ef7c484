"""What a learner of one's own is told in one line: extras that its batches lack, feeds that never
give it any."""

import types

import jax.numpy as jnp
import pytest
from feed_learner import FeedLearner

import sterling
from sterling.training.api import settings_from_arguments
from sterling.training.updates import FeedUpdates
from sterling.types import Feed, Mistake, Needs, config

NUMBERS = {"loss": 0.0}


def lacking_return(state, batch, key):
    return batch.extras["episode/return"]


def lacking_loss(state, batch, key):
    return NUMBERS["los"]


@pytest.mark.parametrize(
    ("kind", "learn", "error", "line"),
    [
        (
            "fresh",
            lacking_return,
            Mistake,
            r"learn reads extras\['episode/return'\], but .* its batch are cost, log_prob. Name it",
        ),
        ("dream", lacking_return, Mistake, "Rows of a model have what imagine returns"),
        ("fresh", lacking_loss, KeyError, "los"),
    ],
    ids=["extra", "extra of a model's rows", "other name"],
)
def test_an_extra_that_a_batch_lacks_is_one_line(kind, learn, error, line):
    """Other KeyErrors of a learner stay what they are."""
    batch = types.SimpleNamespace(extras={"log_prob": 0.0, "cost": 1.0})
    draws = types.SimpleNamespace(draw=lambda *given: batch)
    updates = FeedUpdates(types.SimpleNamespace(learn=learn), Feed(kind), draws, jnp.int32(0))
    with pytest.raises(error, match=line):
        updates._update((None, None), (None, None))


class ReturnLearner(FeedLearner):
    """A learner that reads the episode's return so far."""

    def learn(self, state, batch, key):
        """Read it."""
        assert batch.extras["episode/return"].shape == batch.reward.shape
        return super().learn(state, batch, key)


def test_rollouts_have_the_totals_of_the_episode_that_keep_names():
    learner = ReturnLearner(Feed("fresh"), keep=("episode/return",))
    how = {"steps": 16, "envs": 4, "evaluate_episodes": 0, "quiet": True}
    assert sterling.train(learner, "probe:both", **how).result["steps"] == 16


@config
class Waiting:
    """How long a model is fitted first."""

    wait: int = 3_000


def model_first(settings):
    model = Feed(name="model", batch=8, until=settings.wait)
    return Needs(1, (model, Feed(batch=8, after=settings.wait)), 1_000, 40)


PARTS = {name: staticmethod(print) for name in ("init", "act", "learn", "learn_model")}
MADE = type("Made", (), {"Config": Waiting, "needs": staticmethod(model_first), **PARTS})


@pytest.mark.parametrize(("steps", "told"), [(4_000, True), (24_048, False)])
def test_a_feed_that_begins_after_the_run_is_told_with_the_budget_that_it_needs(
    capsys, steps, told
):
    """40 steps of warm-up, and 3,001 iterations of 8 envs, one step each."""
    settings_from_arguments(
        {"algorithm": MADE, "environment": "probe:action", "steps": steps, "envs": 8}
    )
    line = (
        "Made: learn gets no batch in this run, which has 495 iterations: its feed begins after "
        "3,000. Use --steps 24048 or more.\n"
    )
    assert capsys.readouterr().err == (line if told else "")


@pytest.mark.parametrize(
    ("asked", "line"),
    [
        (
            {"steps": 12_000},
            "ppo: 10,240 of 12,000 steps are made, since an iteration takes 2,048 (256 in each "
            "of 8 environments). The next budget is --steps 12288.\n",
        ),
        ({"steps": 12_288}, ""),
        ({"steps": 12_500}, ""),  # 1.7 % less
        (
            {"steps": 4_096, "then": ["steps=700 length=64"]},
            "ppo: 512 of 700 steps are made, since an iteration takes 512 (64 in each of 8 "
            "environments). The next budget is --steps 1024.\n",
        ),
    ],
)
def test_a_budget_that_is_rounded_down_much_is_told_with_the_next_one(capsys, asked, line):
    asked = {"algorithm": "ppo", "environment": "probe:action", "envs": 8, "length": 256, **asked}
    settings_from_arguments(asked)
    assert capsys.readouterr().err == line
