"""Named rewards: how a rule combines them, what a verifier may return, and what a run reports."""

import dataclasses
import json

import numpy as np
import pytest

import sterling
from sterling.experience.language.answer_tally import AnswerTally
from sterling.experience.language.conversation_host import ConversationHost
from sterling.language.adapters.user_tasks import UserTasks
from sterling.language.engine.ask import Said
from sterling.language.engine.transcript import Transcript
from sterling.language.named_rewards import RewardRule, read_rewards
from sterling.language.scene import BaseScene, Message
from sterling.language.scene_dialogue import ChatSettings, SceneBatch
from sterling.language.task import Task, Verdict
from sterling.language.tokenizer import Tokenizer
from sterling.training.api import settings_from_arguments as settings_of
from sterling.training.evaluation.metric_rows import answer_columns, episode_means
from sterling.training.language.resolve_language_settings import resolve_language_settings
from sterling.training.trained_run import run_return_bounds
from sterling.types import Generations, Mistake

TOKENIZER = Tokenizer.characters("abc ")
GIVEN = {"right": 1.0, "format": 0.5, "length": -2.0, "zero": 0.0}


@pytest.mark.parametrize(
    ("rule", "expected"),
    [
        ("", -0.5),  # all added up
        ("right", 1.0),
        ("right + 0.2*format - 0.1*length", 1.3),
        ("-length", 2.0),
        ("right*gate(format)", 1.0),
        ("right*gate(zero) + format", 0.5),
        ("right*gate(length)", 0.0),
        ("2*(right + format)*gate(right - zero)", 3.0),
        ("1 - right", 0.0),
        ("right + other", 1.0),  # a name that the answer lacks is left out of the sum
        ("right - 3*other", 1.0),
        ("other - right", -1.0),
        ("right*other + format", 0.5),
        ("right*gate(other)", 0.0),
        ("other", 0.0),
    ],
)
def test_rule_of_rewards_is_a_sum_of_products_and_gates(rule, expected):
    assert RewardRule(rule)(GIVEN) == pytest.approx(expected)


@pytest.mark.parametrize(
    "text", ["right+", "right/2", "gate", "gate(a, b)", "max(a, b)", "'a'", "a.b", "True", "a if b",
             "a**2", "1e999*a", "__import__('os')", "a; b", "a = 1", "right format"]
)  # fmt: skip
def test_what_is_no_rule_of_rewards_is_refused_with_the_form(text):
    with pytest.raises(Mistake, match=r"Cannot read rewards=.*as in right\+0.2\*format"):
        RewardRule(text)


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        (True, 1.0),
        (np.float32(0.5), 0.5),
        (-7, -7.0),
        ({"right": np.bool_(True), "format": np.int64(2)}, {"right": 1.0, "format": 2.0}),
        ({"right": 1, "format": None}, {"right": 1.0}),
    ],
)
def test_verifier_returns_a_number_or_named_ones(found, expected):
    assert read_rewards(found) == expected


@pytest.mark.parametrize(
    ("found", "said"),
    [
        (None, "None, not a finite number"),
        ("1", "'1', not a finite number"),
        (float("nan"), "nan, not a finite number"),
        (np.zeros(2), "not a finite number"),
        ({}, "not a name"),
        ({"right": None}, "not a name"),
        ({"right": "yes"}, "whose 'right' is not a name"),
        ({"a b": 1.0}, "whose 'a b' is not a name"),
        ({"gate": 1.0}, "whose 'gate' is not a name"),
        ({3: 1.0}, "whose 3 is not a name"),
        ({"a": float("inf")}, "whose 'a' is not a name"),
    ],
)
def test_what_is_no_reward_is_said(found, said):
    with pytest.raises(ValueError, match=said):
        read_rewards(found)


NAMED = """
within = (-1, 2)

def sample(seed, level):
    return {"prompt": "abc"[seed % 3], "answer": ""}

async def verify(task, response):
    short = -0.1 * len(response)
    b = 1.0 if "b" in response else None
    return {"right": task.prompt in response, "short": short, "b": b}
"""
LISTS = NAMED.replace(
    "async def verify(task, response):", "def verify(task, response):\n    return [1]"
)


def written(folder, text=NAMED):
    path = folder / "named.py"
    path.write_text(text)
    return str(path)


def test_async_verify_of_a_users_file_gives_named_rewards(tmp_path):
    tasks = UserTasks(tmp_path / written(tmp_path))
    verdict = tasks.verify(Task("named", 0, 0, "a", ""), "ab")
    tasks.close()
    assert verdict == Verdict(1.8, "right", rewards={"right": 1.0, "short": -0.2, "b": 1.0})


class Twice(BaseScene):
    """Judged twice: with names, and then by one number."""

    def __init__(self):
        super().__init__()
        self.ask(0, Message("user", "a"))

    def hear(self, seat, text):
        if self.verdicts[0]:
            return self.judge(seat, -3.0)
        self.judge(seat, {"right": 1.0, "format": 0.5})
        self.ask(0, Message("user", "b"))


def played(rule):
    voice = ChatSettings(TOKENIZER, limit=4, context=200, rule=RewardRule(rule))
    batch = SceneBatch([Twice()], voice)
    while waiting := batch.waiting():
        batch.add_answer(
            waiting[0], Said([*TOKENIZER.encode("a"), TOKENIZER.end], [0.0, 0.0], True)
        )
    (line,) = batch.finish()
    return line


def test_scene_combines_the_named_rewards_of_each_turn_and_keeps_them():
    line = played("2*right*gate(format)")
    assert [verdict.reward for verdict in line.verdicts] == [2.0, -3.0]
    assert (line.reward, line.rewards, line.right) == (-1.0, {"right": 1.0, "format": 0.5}, False)
    with pytest.raises(Mistake, match="names no reward that answers get; did you mean right"):
        played("rihgt")


def test_name_that_no_answer_of_a_batch_has_is_told_once(capsys):
    rule = RewardRule("right + 0.2*fromat + 0.1*length")
    for _ in range(2):
        rule.report_missing({"right", "format", "length"})
    rule.report_missing({"right", "format"})
    told = "--rewards: no answer of this batch has the reward"
    assert capsys.readouterr().err.splitlines() == [
        f"{told} fromat; did you mean format?",
        f"{told} length; they have format, right",
    ]


def of_rewards(**rewards):
    return Transcript(0, 0, turns=1, verdicts=(Verdict.of_rewards(rewards),))


def test_columns_of_named_rewards_are_means_over_the_answers_that_have_them():
    def host():
        return ConversationHost(Twice, ChatSettings(TOKENIZER, 4, 64), Generations(1, 1), (0,))

    first, restored = host(), host()
    first.tally.add(0, [of_rewards(a=1.0, b=2.0), of_rewards(a=3.0), of_rewards(a=2.0)])
    first.tally.add(1, [of_rewards(a=5.0)])
    restored.restore_counts(json.loads(json.dumps(first.counts_to_json())))
    returns = {"data/return": [2.5, 5.0, None]}
    for each in (first, restored):
        found = answer_columns([each, object()], returns, np.array([True, True, True]))
        assert found == {
            "data/cut": [0.0, 0.0, None],
            "data/reward/a": [2.0, 5.0, None],
            "data/reward/b": [2.0, None, None],
        }
    found = answer_columns([first], returns, np.array([True, False, True]))
    assert found["data/reward/a"] == [2.0, None, None]
    first.tally.clear()
    assert answer_columns([first], returns, np.array([True, True, True])) == {}


def test_lost_answers_count_as_the_lowest_reward_of_their_batch():
    """-1 and 3, then a batch with 5 and 7: the mean of the four is 3.5; with the lost ones, as -1
    and twice as 5, it is 23/7."""
    tally, lost = AnswerTally(), Transcript(0, 0, turns=1, failed="late")
    cut = dataclasses.replace(of_rewards(a=5.0), cut=True)
    tally.add(0, [of_rewards(a=-1.0), of_rewards(a=3.0), lost])
    tally.add(0, [lost, cut, of_rewards(a=7.0), lost])
    tally.add(1, [of_rewards(a=2.0)])
    found = tally.columns([3.5, 2.0], np.array([True, True]))
    assert found["data/return"] == [pytest.approx(23 / 7), 2.0]
    assert found["data/return_judged"] == [3.5, 2.0]
    assert found["data/cut"] == [0.25, 0.0]


def test_mean_of_an_evaluation_leaves_out_scenes_that_a_named_reward_does_not_apply_to():
    scenes = np.array([[1.0, np.nan, 3.0], [np.nan] * 3])
    assert episode_means("reward/a", scenes).tolist()[0] == 2.0
    assert np.isnan(episode_means("reward/a", scenes)[1])
    assert np.isnan(episode_means("return", scenes)).all()


@pytest.mark.parametrize(
    ("text", "rule", "said"),
    [
        (NAMED, "rihgt", "rewards='rihgt' names no reward that answers get; did you mean right"),
        (LISTS, "", r"named.py: verify gives the answer 'a' no reward \(.* returned \[1\]\)"),
        (NAMED, "right +", "Cannot read rewards"),
    ],
    ids=["name", "verdict", "rule"],
)
def test_one_verdict_of_a_users_file_is_tried_before_a_run(tmp_path, text, rule, said):
    asked = {"algorithm": "grpo", "environment": written(tmp_path, text), "model": "nano"}
    with pytest.raises(Mistake, match=said):
        resolve_language_settings(settings_of({**asked, "updates": 1, "rewards": rule}))


def test_bounds_of_returns_are_those_that_a_users_file_declares(tmp_path):
    def bounds(text, **more):
        where = written(tmp_path, text)
        return run_return_bounds(
            settings_of({"algorithm": "grpo", "environment": where, "updates": 1, **more})
        )

    assert bounds(NAMED) == (-1.0, 2.0)
    assert bounds(NAMED, rewards="right") is None
    assert bounds(NAMED.replace("within", "not_read")) is None
    with pytest.raises(Mistake, match="'within' must be two numbers, the lower first"):
        bounds(NAMED.replace("(-1, 2)", "(2, 1)"))
    arithmetic = {"algorithm": "grpo", "environment": "arithmetic", "updates": 1}
    assert run_return_bounds(settings_of(arithmetic)) == (0.0, 1.0)


@pytest.mark.slow
def test_run_learns_from_the_combined_reward_and_reports_each_name(tmp_path):
    how = {"model": "nano", "prompts": 4, "group": 4, "limit": 3, "seeds": 2, "log_every": 1}
    how |= {"rewards": "right + 0.1*short", "evaluate_episodes": 8}
    path, whole, halves = written(tmp_path), tmp_path / "a", tmp_path / "b"
    run = sterling.train("grpo", path, updates=4, out=whole, **how)
    sterling.train("grpo", path, updates=2, out=halves, **how)
    sterling.resume(halves, updates=4)
    rows = [
        [json.loads(line) for line in (each / "metrics.jsonl").read_text().splitlines()]
        for each in (whole, halves)
    ]
    for one, other in zip(*rows, strict=True):
        assert {k: v for k, v in one.items() if k.startswith("data/")} == {
            k: v for k, v in other.items() if k.startswith("data/")
        }
        combined = np.array(one["data/reward/right"]) + 0.1 * np.array(one["data/reward/short"])
        np.testing.assert_allclose(one["data/return"], combined, rtol=1e-5, atol=1e-6)
    final = {name: np.array(each["per_seed"]) for name, each in run.result["final"].items()}
    assert {"reward/right", "reward/short"} <= set(final)
    combined = final["reward/right"] + 0.1 * final["reward/short"]
    np.testing.assert_allclose(final["return"], combined, rtol=1e-6)
