"""What is said of answers and of models side by side, on cases made by hand."""

import dataclasses
import itertools
import math

import equinox as eqx
import jax
import numpy as np
import pytest

from sterling.evaluation.language import answer_statistics, solve_rates
from sterling.evaluation.language.paired_problems import (
    MAX_EXACT,
    difference_interval,
    paired_change,
)
from sterling.evaluation.language.sampled_answers import (
    Candidate,
    SampledAnswers,
    is_solved,
    sample_answers,
    verdict_reason,
)
from sterling.language.engine.transcript import Transcript
from sterling.language.task import Verdict
from sterling.language.worlds.reward_model_world import JudgedVerdict
from sterling.training.config.resolve_settings import resolve_settings
from sterling.training.config.settings import LanguageSettings
from sterling.training.language.base_model import create_learners
from sterling.types import Mistake


def line(text="abcd", *verdicts, scene=0, **fields):
    """What was said to the model ("?") and what it said."""
    made = Transcript(scene, 0, verdicts=verdicts, **fields)
    made.hear([1])
    made.say([ord(letter) for letter in text], [-1.0] * len(text))
    return made


RIGHT, WRONG = Verdict(1.0, "right"), Verdict(0.0, "wrong")


@pytest.fixture(scope="module")
def said():
    """A model that knows nothing, of two seeds, and what it says to 6 problems of 2 levels."""
    settings = resolve_settings(
        *("grpo", "reverse-text"),
        **{"updates": 1, "seeds": 2, "speech": LanguageSettings("nano", levels="0-1")},
        fields={"limit": 8, "temperature": 0.7},
    )
    return sample_answers(Candidate("nothing", create_learners(settings), settings), 6, 5)


@pytest.fixture
def spoken(said):
    """Lines made by hand, [problem][answer], as those of one seed."""

    def made(lines, levels=None):
        greedy = [own[0] for own in lines]
        return SampledAnswers(said.candidate, (0,), levels or (0,) * len(lines), [lines], [greedy])

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
def test_solve_rate_notes_different_sampling_settings(said, name, value, note):
    own = said.candidate
    config = dataclasses.replace(own.settings.config, **{name: value})
    settings = dataclasses.replace(own.settings, config=config)
    other = dataclasses.replace(own, label="other", settings=settings)
    assert solve_rates._comparability_notes([other, own]) == [note]
    assert solve_rates._comparability_notes([dataclasses.replace(own, label="other"), own]) == []


def test_paired_problems_count_gained_and_lost():
    first = np.array([[True, True, False, False, False]])
    second = np.array([[True, False, True, True, False]])
    made = paired_change(("sft", "rl"), first, second)
    assert (made.both, made.gained, made.lost, made.neither) == (1, 2, 1, 1)
    assert made.difference.value == pytest.approx(0.2)
    assert made.difference.low < 0.2 < made.difference.high
    assert "exact" in made.difference.method
    turned = paired_change(("rl", "sft"), second, first)
    assert (turned.gained, turned.lost) == (1, 2)
    assert turned.difference.low == pytest.approx(-made.difference.high, abs=1e-6)


def test_paired_difference_interval_covers_at_every_rate():
    n = 12
    outcomes = [(win, loss) for win in range(n + 1) for loss in range(n + 1 - win)]
    ends = {each: difference_interval(*each, n) for each in outcomes}
    for gain, lose in itertools.product((0.0, 0.05, 0.2, 0.45), (0.0, 0.1, 0.3, 0.5)):
        held = 0.0
        for win, loss in outcomes:
            ways = math.comb(n, win) * math.comb(n - win, loss)
            chance = ways * gain**win * lose**loss * (1 - gain - lose) ** (n - win - loss)
            held += chance * (ends[win, loss][0] - 1e-6 <= gain - lose <= ends[win, loss][1] + 1e-6)
        assert held >= 0.95 - 1e-9


def test_paired_difference_exact_and_score_intervals_agree():
    assert difference_interval(40, 10, MAX_EXACT) == pytest.approx(
        difference_interval(40, 10, MAX_EXACT + 1), abs=0.01
    )


def test_paired_problems_are_shared_by_several_seeds():
    rng = np.random.default_rng(0)
    first = rng.random((5, 40)) < 0.3
    made = paired_change(("a", "b"), first, first | (rng.random((5, 40)) < 0.5))
    assert made.lost == 0
    assert made.difference.low > 0.1
    assert "5 seeds and 40 problems" in made.difference.method


def test_solved_answer_is_right_or_has_the_full_reward():
    assert is_solved(line("x", RIGHT))
    assert is_solved(line("x", WRONG, Verdict(0.64, "right")))  # tried again, for less
    assert is_solved(line("x", Verdict(1.0, "won")))
    assert not is_solved(line("x", Verdict(0.9, "partly")))
    assert not is_solved(line("x", RIGHT, failed="TimeoutError: took longer than 1 s"))
    assert not is_solved(Transcript(0, 0))


def test_solved_answer_ignores_the_reward_model_judge(spoken):
    pleased = JudgedVerdict(0.9, "wrong", WRONG)
    assert not is_solved(line("x", pleased))
    rows = [[line("x", pleased), line("y", JudgedVerdict(0.6, "right", RIGHT))]]
    found = answer_statistics.compare_with_gold(spoken(rows * 2))
    assert found["proxy"]["value"] == pytest.approx(0.75)
    assert found["gold"]["value"] == pytest.approx(0.5)
    assert found["gap"]["value"] == pytest.approx(0.25)
    assert found["correlation"] == pytest.approx(-1.0)
    assert answer_statistics.compare_with_gold(spoken([[line("x", RIGHT)]])) is None


def test_answer_verdict_reasons_count_failures_and_truncations(spoken):
    rows = [
        [line("x", RIGHT), line("y", WRONG)],
        [line("z", failed="TimeoutError: took longer"), Transcript(3, 0, cut=True)],
        [line("z", RIGHT), Transcript(5, 0)],
    ]
    assert verdict_reason(rows[1][0]) == "failed (TimeoutError)"
    counted = answer_statistics.count_reasons(spoken(rows))
    assert counted == {
        **{"right": 2, "wrong": 1, "failed (TimeoutError)": 1, "cut": 1, "silent": 1}
    }
    assert next(iter(counted)) == "right"


def test_answer_statistics_of_length_repetition_and_variety(spoken):
    assert answer_statistics.repeated_share(line("abcdefgh")) == 0.0
    assert answer_statistics.repeated_share(line("aaaaaaaa")) == pytest.approx(
        0.8
    )  # five 4-grams, one kind
    assert answer_statistics.repeated_share(line("abc")) is None
    rows = [[line("aaaaaaaa", WRONG), line("abc", RIGHT), line("abc", RIGHT)]]
    found = answer_statistics.answer_statistics(spoken(rows * 3))
    assert found["repeated"].value == pytest.approx(0.8)
    assert found["different"].value == pytest.approx(2 / 3)
    assert found["length"].value == pytest.approx(14 / 3)
    assert found["length"].low is None  # three prompts of one mean: no spread was seen
    other = [[line("abc", RIGHT), line("abc", WRONG), line("abcdefghijkl" * 9, RIGHT)]]
    assert answer_statistics.answer_statistics(spoken(rows * 3 + other))["length"].low == 0.0
    assert found["reward"].value == pytest.approx(2 / 3)
    assert found["greedy"].value == 0.0


def test_solve_rate_by_level_separates_levels(spoken):
    rows = [[line("x", RIGHT)], [line("x", WRONG)], [line("x", RIGHT)], [line("x", WRONG)]]
    found = answer_statistics.solve_rate_by_level(spoken(rows, levels=(1, 2, 1, 2)))
    assert {level: made.value for level, made in found.items()} == {1: 1.0, 2: 0.0}


def test_answer_log_prob_mismatch_effective_sample_size():
    away = [np.array([0.1, -0.1]), np.array([0.0]), np.array([math.log(3.0)])]
    found = answer_statistics.log_prob_mismatch(away)
    assert found.effective == pytest.approx((1 + 1 + 3) ** 2 / (3 * (1 + 1 + 9)))
    assert found.largest == pytest.approx(math.log(3.0))
    assert found.mean == pytest.approx((0.2 + math.log(3.0)) / 4)
    assert found.tokens == 4
    assert math.isnan(answer_statistics.log_prob_mismatch([]).mean)


def test_sampled_answers_ask_all_seeds_the_same_problems(said):
    assert [len(own) for seed in said.lines for own in seed] == [5] * 12
    assert said.levels == (0, 1) * 3
    asked = [[tuple(own[0].ids[: own[0].own.index(True)]) for own in seed] for seed in said.lines]
    assert asked[0] == asked[1]
    assert len(set(asked[0])) == 6
    assert all(
        own[0].ids[: len(p)] == list(p) for own, p in zip(said.lines[0], asked[0], strict=True)
    )
    assert answer_statistics.answer_statistics(said)["different"].value > 0.5
    assert said.solved.shape == (2, 6, 5)


def test_sampled_answers_log_probs_equal_the_models(said):
    entropy, mismatch = answer_statistics.entropy_and_mismatch(said)
    assert mismatch.mean < 2e-6
    assert mismatch.largest < 1e-4
    assert mismatch.effective == pytest.approx(1.0, abs=1e-6)
    assert mismatch.tokens == sum(sum(one.own) for one in said.every())
    assert 0.0 < entropy.value < math.log(103)


def test_answer_log_prob_mismatch_detects_another_model(said):
    single = jax.tree.map(lambda x: x[0], said.candidate.agent.state.model)
    louder = eqx.tree_at(lambda model: model.embedding, single, single.embedding * 1.5)
    lines = [one for own in said.lines[0] for one in own]
    recorded = [np.array(one.log_prob)[np.array(one.own)] for one in lines]
    read = answer_statistics.token_log_probs(louder, lines, 0.7)
    away = [np.asarray(log_p - old) for (log_p, _), old in zip(read, recorded, strict=True)]
    assert answer_statistics.log_prob_mismatch(away).mean > 1e-3
    assert answer_statistics.log_prob_mismatch(away).effective < 1.0


@pytest.mark.parametrize(("problems", "samples"), [(0, 4), (4, 0)])
def test_sampled_answers_refuse_zero_problems_or_samples(said, problems, samples):
    with pytest.raises(Mistake, match="it must be at least 1"):
        sample_answers(said.candidate, problems, samples)
