"""What is said of answers and of models side by side, on cases made by hand."""

import dataclasses
import itertools
import math

import equinox as eqx
import jax
import numpy as np
import pytest

from sterling.judging import answers, language
from sterling.judging.paired import MANY, change, interval
from sterling.judging.spoken import Candidate, Spoken, ask, reason, solved
from sterling.language.talk import Line
from sterling.language.task import Verdict
from sterling.language.worlds.scored import Judged
from sterling.training import speech
from sterling.training.settings import Speech, resolve
from sterling.types import Mistake


def line(text="abcd", *verdicts, scene=0, **fields):
    """What was said to the model ("?") and what it said."""
    made = Line(scene, 0, verdicts=verdicts, **fields)
    made.hear([1])
    made.say([ord(letter) for letter in text], [-1.0] * len(text))
    return made


RIGHT, WRONG = Verdict(1.0, "right"), Verdict(0.0, "wrong")


@pytest.fixture(scope="module")
def said():
    """A model that knows nothing, of two seeds, and what it says to 6 problems of 2 levels."""
    settings = resolve(
        *("grpo", "reverse-text"),
        **{"updates": 1, "seeds": 2, "speech": Speech("nano", levels="0-1")},
        fields={"limit": 8, "temperature": 0.7},
    )
    return ask(Candidate("nothing", speech.agents(settings), settings), 6, 5)


@pytest.fixture
def spoken(said):
    """Lines made by hand, [problem][answer], as those of one seed."""

    def made(lines, levels=None):
        greedy = [own[0] for own in lines]
        return Spoken(said.candidate, (0,), levels or (0,) * len(lines), [lines], [greedy])

    return made


@pytest.mark.parametrize(
    ("name", "value", "note"),
    [
        ("temperature", 0.5, "other: temperature 0.5, nothing: 0.7"),
        ("top_k", 5, "other: top_k 5, nothing: 0"),
        ("top_p", 0.25, "other: top_p 0.25, nothing: 1"),
        ("limit", 6, "other: limit 6 tokens, nothing: 8 tokens"),
    ],
)
def test_answers_that_are_sampled_otherwise_are_noted(said, name, value, note):
    own = said.candidate
    config = dataclasses.replace(own.settings.config, **{name: value})
    settings = dataclasses.replace(own.settings, config=config)
    other = dataclasses.replace(own, label="other", settings=settings)
    assert language._notes([other, own]) == [note]
    assert language._notes([dataclasses.replace(own, label="other"), own]) == []


def test_gained_and_lost_are_counted():
    first = np.array([[True, True, False, False, False]])
    second = np.array([[True, False, True, True, False]])
    made = change(("sft", "rl"), first, second)
    assert (made.both, made.gained, made.lost, made.neither) == (1, 2, 1, 1)
    assert made.difference.value == pytest.approx(0.2)
    assert made.difference.low < 0.2 < made.difference.high
    assert "exact" in made.difference.method
    turned = change(("rl", "sft"), second, first)
    assert (turned.gained, turned.lost) == (1, 2)
    assert turned.difference.low == pytest.approx(-made.difference.high, abs=1e-6)


def test_the_interval_of_a_difference_holds_whatever_the_rates_are():
    n = 12
    outcomes = [(win, loss) for win in range(n + 1) for loss in range(n + 1 - win)]
    ends = {each: interval(*each, n) for each in outcomes}
    for gain, lose in itertools.product((0.0, 0.05, 0.2, 0.45), (0.0, 0.1, 0.3, 0.5)):
        held = 0.0
        for win, loss in outcomes:
            ways = math.comb(n, win) * math.comb(n - win, loss)
            chance = ways * gain**win * lose**loss * (1 - gain - lose) ** (n - win - loss)
            held += chance * (ends[win, loss][0] - 1e-6 <= gain - lose <= ends[win, loss][1] + 1e-6)
        assert held >= 0.95 - 1e-9


def test_exact_and_score_intervals_agree_on_many_problems():
    assert interval(40, 10, MANY) == pytest.approx(interval(40, 10, MANY + 1), abs=0.01)


def test_several_seeds_share_their_problems():
    rng = np.random.default_rng(0)
    first = rng.random((5, 40)) < 0.3
    made = change(("a", "b"), first, first | (rng.random((5, 40)) < 0.5))
    assert made.lost == 0
    assert made.difference.low > 0.1
    assert "5 seeds and 40 problems" in made.difference.method


def test_solved_is_right_at_last_or_all_the_reward_there_is():
    assert solved(line("x", RIGHT))
    assert solved(line("x", WRONG, Verdict(0.64, "right")))  # tried again, for less
    assert solved(line("x", Verdict(1.0, "won")))
    assert not solved(line("x", Verdict(0.9, "partly")))
    assert not solved(line("x", RIGHT, failed="TimeoutError: took longer than 1 s"))
    assert not solved(Line(0, 0))


def test_a_judge_that_is_pleased_is_not_the_world(spoken):
    pleased = Judged(0.9, "wrong", WRONG)
    assert not solved(line("x", pleased))
    rows = [[line("x", pleased), line("y", Judged(0.6, "right", RIGHT))]]
    found = answers.beside_gold(spoken(rows * 2))
    assert found["proxy"]["value"] == pytest.approx(0.75)
    assert found["gold"]["value"] == pytest.approx(0.5)
    assert found["gap"]["value"] == pytest.approx(0.25)
    assert found["correlation"] == pytest.approx(-1.0)
    assert answers.beside_gold(spoken([[line("x", RIGHT)]])) is None


def test_reasons_are_counted_failures_and_cuts_too(spoken):
    rows = [
        [line("x", RIGHT), line("y", WRONG)],
        [line("z", failed="TimeoutError: took longer"), Line(3, 0, cut=True)],
        [line("z", RIGHT), Line(5, 0)],
    ]
    assert reason(rows[1][0]) == "failed (TimeoutError)"
    counted = answers.reasons(spoken(rows))
    assert counted == {
        **{"right": 2, "wrong": 1, "failed (TimeoutError)": 1, "cut": 1, "silent": 1}
    }
    assert next(iter(counted)) == "right"


def test_length_repetition_and_variety(spoken):
    assert answers.repeated(line("abcdefgh")) == 0.0
    assert answers.repeated(line("aaaaaaaa")) == pytest.approx(0.8)  # five 4-grams, one kind
    assert answers.repeated(line("abc")) is None
    rows = [[line("aaaaaaaa", WRONG), line("abc", RIGHT), line("abc", RIGHT)]]
    found = answers.described(spoken(rows * 3))
    assert found["repeated"].value == pytest.approx(0.8)
    assert found["different"].value == pytest.approx(2 / 3)
    assert found["length"].value == pytest.approx(14 / 3)
    assert found["length"].low is None  # three prompts of one mean: no spread was seen
    other = [[line("abc", RIGHT), line("abc", WRONG), line("abcdefghijkl" * 9, RIGHT)]]
    assert answers.described(spoken(rows * 3 + other))["length"].low == 0.0
    assert found["reward"].value == pytest.approx(2 / 3)
    assert found["greedy"].value == 0.0


def test_every_level_has_its_own_rate(spoken):
    rows = [[line("x", RIGHT)], [line("x", WRONG)], [line("x", RIGHT)], [line("x", WRONG)]]
    found = answers.by_level(spoken(rows, levels=(1, 2, 1, 2)))
    assert {level: made.value for level, made in found.items()} == {1: 1.0, 2: 0.0}


def test_effective_sample_size_of_weights():
    away = [np.array([0.1, -0.1]), np.array([0.0]), np.array([math.log(3.0)])]
    found = answers.mismatch(away)
    assert found.effective == pytest.approx((1 + 1 + 3) ** 2 / (3 * (1 + 1 + 9)))
    assert found.largest == pytest.approx(math.log(3.0))
    assert found.mean == pytest.approx((0.2 + math.log(3.0)) / 4)
    assert found.tokens == 4
    assert math.isnan(answers.mismatch([]).mean)


def test_everybody_is_asked_the_same_and_differs_by_chance(said):
    assert [len(own) for seed in said.lines for own in seed] == [5] * 12
    assert said.levels == (0, 1) * 3
    asked = [[tuple(own[0].ids[: own[0].own.index(True)]) for own in seed] for seed in said.lines]
    assert asked[0] == asked[1]
    assert len(set(asked[0])) == 6
    assert all(
        own[0].ids[: len(p)] == list(p) for own, p in zip(said.lines[0], asked[0], strict=True)
    )
    assert answers.described(said)["different"].value > 0.5
    assert said.solved.shape == (2, 6, 5)


def test_a_fresh_model_samples_what_it_computes(said):
    entropy, mismatch = answers.certainty(said)
    assert mismatch.mean < 2e-6
    assert mismatch.largest < 1e-4
    assert mismatch.effective == pytest.approx(1.0, abs=1e-6)
    assert mismatch.tokens == sum(sum(one.own) for one in said.every())
    assert 0.0 < entropy.value < math.log(103)


def test_another_models_log_probs_are_noticed(said):
    single = jax.tree.map(lambda x: x[0], said.candidate.agent.state.model)
    louder = eqx.tree_at(lambda model: model.embedding, single, single.embedding * 1.5)
    lines = [one for own in said.lines[0] for one in own]
    recorded = [np.array(one.log_prob)[np.array(one.own)] for one in lines]
    read = answers.likelihoods(louder, lines, 0.7)
    away = [np.asarray(log_p - old) for (log_p, _), old in zip(read, recorded, strict=True)]
    assert answers.mismatch(away).mean > 1e-3
    assert answers.mismatch(away).effective < 1.0


@pytest.mark.parametrize(("problems", "samples"), [(0, 4), (4, 0)])
def test_nothing_asked_is_refused(said, problems, samples):
    with pytest.raises(Mistake, match="at least one"):
        ask(said.candidate, problems, samples)
