"""Worlds judged by a learned scorer: its verdict, the gold one beside it, and what is refused."""

import math

import numpy as np
import pytest

from sterling.language import worlds
from sterling.language.scene import Message, Scene, TextWorld
from sterling.language.task import RIGHT, Verdict
from sterling.language.worlds.reward_model_world import (
    JudgedVerdict,
    ScoredWorld,
    gold_reward,
    register_scorer,
    sigmoid,
    split_name,
)
from sterling.types import Mistake


def longest(answers):
    """A judge that is easily pleased: it likes long answers."""
    return [0.5 * len(text) - 2.0 for _, text in answers]


def test_scored_world_keeps_the_gold_reward_beside_the_scorers():
    world = ScoredWorld(worlds.find_world("reverse-text"), longest)
    assert isinstance(world, TextWorld)
    scene = world.begin(3, 0)
    assert isinstance(scene, Scene)
    assert scene.turn == worlds.find_world("reverse-text").begin(3, 0).turn
    right = world.solve(scene)
    scene.say("x" * 10)
    assert scene.turn is None
    (verdict,) = scene.verdicts[0]
    assert verdict == JudgedVerdict(sigmoid(3.0), "wrong", Verdict(0.0, "wrong"))
    np.testing.assert_allclose(verdict.reward, 1.0 / (1.0 + math.exp(-3.0)), rtol=1e-12)
    assert gold_reward(scene.verdicts[0]) == 0.0
    other = world.begin(3, 0)
    other.say(right)
    assert other.verdicts[0][0].gold == RIGHT
    assert other.verdicts[0][0].reward < verdict.reward  # it can be pleased by what is not good
    assert gold_reward(other.verdicts[0]) == gold_reward([RIGHT]) == 1.0
    with pytest.raises(Mistake, match="the scene is over"):
        scene.say("more")


def test_scored_world_scores_the_last_answer_with_all_messages():
    heard = []

    def judge(answers):
        heard.extend(answers)
        return [1.0 for _ in answers]

    world = ScoredWorld(worlds.find_world("try-again:reverse-text"), judge)
    assert (world.turns, world.seats) == (3, 1)
    heard.clear()
    scene = world.begin(0, 0)
    scene.say("no")
    assert [each.reward for each in scene.verdicts[0]] == [0.0]
    assert not heard
    right = world.solve(scene)
    scene.say(right)
    assert [each.reward for each in scene.verdicts[0]] == [0.0, sigmoid(1.0)]
    assert gold_reward(scene.verdicts[0]) == 0.8
    ((messages, answer),) = heard
    assert answer == right
    assert [each.role for each in messages] == ["user", "assistant", "user"]
    assert messages[1] == Message("assistant", "no")


def test_scored_world_sigmoid_maps_any_score_to_a_reward():
    assert [sigmoid(x) for x in (-1e9, 0.0, 1e9)] == [0.0, 0.5, 1.0]
    np.testing.assert_allclose(sigmoid(-2.0), 1.0 / (1.0 + math.exp(2.0)), rtol=1e-12)


def test_scored_world_is_found_by_name():
    register_scorer("runs/long", longest)
    found = worlds.find_world("scored:runs/long:try-again:copy-text,attempts=2")
    assert found.name == "scored:runs/long:try-again:copy-text,attempts=2"
    assert (found.turns, found.levels) == (2, worlds.find_world("copy-text").levels)
    assert worlds.find_world("scored:runs/long:try-again:copy-text", attempts=5).turns == 5
    assert split_name("scored:a/b:gym:X-v1") == ("a/b", "gym:X-v1")


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("scored:runs/lang:copy-text", "did you mean runs/long"),
        ("scored:runs/long", "write scored:RUN:WORLD"),
        ("scored:runs/long:copy-txt", "copy-text"),
        ("scored:runs/long:game:nim", "2 seats"),
    ],
)
def test_invalid_scored_world_names_are_refused(name, said):
    register_scorer("runs/long", longest)
    with pytest.raises(Mistake, match=said):
        worlds.find_world(name)


@pytest.mark.parametrize("bad", [lambda _: [math.nan], lambda _: [], lambda _: None])
def test_scored_world_checks_its_scorer_at_creation(bad):
    with pytest.raises(Mistake, match="does not work"):
        ScoredWorld(worlds.find_world("copy-text"), bad)
    with pytest.raises(Mistake, match="without colons"):
        register_scorer("a:b", longest)
