"""Questions whose answers a user's function judges: its forms, its rewards, what is refused."""

import json

import numpy as np
import pytest

from sterling.language.worlds import find_world, judged_questions
from sterling.language.worlds.judged_questions import find_judged, judge_reference, probe_judge
from sterling.training.config.resolve_settings import resolve_settings
from sterling.training.config.run_options import LanguageSettings
from sterling.training.language.resolve_language_settings import resolve_language_settings
from sterling.types import Mistake

FUNCTIONS = """
import numpy as np

def simple(question, answer):
    return len(question) - 10.0 * len(answer)

def columns(question, said, *, answer, shelf="none"):
    return (answer == 3) + 2 * (shelf == "b") + (said == "tea")

def lists(prompts, completions, **columns):
    assert sorted(columns) == ["answer", "question", "shelf"]
    return [len(each) for each in completions]

def without_prompts(completions, answer):
    return np.array([each == str(right) for each, right in zip(completions, answer)])

async def later(question, answer):
    return np.float32(0.5)

def raises(question, answer):
    return float(answer)

def two(prompts, completions):
    return [1.0, 0.0]

def other(question, answer):
    values = {"None": None, "nan": float("nan"), "text": "1", "True": True, "array": np.ones(2)}
    return values[answer]

def misnamed(question, said, truth, *, weight=1.0, unit):
    return float(said == truth)

def misnamed_lists(prompts, completions, truth, **columns):
    return [0.0]
"""


@pytest.fixture(name="shelf")
def _shelf(tmp_path, monkeypatch):
    """A folder with questions and functions that judge their answers."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.py").write_text(FUNCTIONS)
    (tmp_path / "one.py").write_text("def score(question, answer):\n    return 0.25\n")
    lines = [{"question": "tea?", "answer": 3, "shelf": "b"}]
    (tmp_path / "q.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return tmp_path


def judged(function, environment="q.jsonl"):
    return find_judged(judge_reference(function), environment, find_world)


def verdicts_on(world, *answers):
    found = []
    for answer in answers:
        scene = world.begin(0, 0)
        scene.say(answer)
        found += scene.verdicts[0]
    world.family.close()
    return found


@pytest.mark.parametrize(
    ("function", "rewards"),
    [
        ("mine.py:simple", [-26.0, -6.0]),
        ("mine.py:columns", [4.0, 3.0]),
        ("mine.py:lists", [3.0, 1.0]),
        ("mine.py:without_prompts", [0.0, 1.0]),
        ("mine.py:later", [0.5, 0.5]),
        ("one.py", [0.25, 0.25]),
        (lambda question, answer: np.bool_(answer == "3"), [0.0, 1.0]),
    ],
)
def test_function_of_either_form_gives_the_reward_of_an_answer(shelf, function, rewards):
    world = judged(function)
    probe_judge(world, 0)
    assert [verdict.reward for verdict in verdicts_on(world, "tea", "3")] == rewards


def test_answer_without_a_finite_number_has_no_verdict(shelf):
    (none, nan, text, true, array, key) = verdicts_on(
        judged("mine.py:other"), "None", "nan", "text", "True", "array", "tea"
    )
    assert none.reason == "verifier nonsense: it returned None, not a finite number"
    assert nan.reason == "verifier nonsense: it returned nan, not a finite number"
    assert text.reason == "verifier nonsense: it returned '1', not a finite number"
    assert array.reason.startswith("verifier nonsense: it returned array([1., 1.])")
    assert key.reason == "verifier raised: KeyError: 'tea' (mine.py:28)"
    assert all(each.verifier_failed for each in (none, nan, text, array, key))
    assert (true.reward, true.reason, true.verifier_failed) == (1.0, "right", False)
    (late,) = verdicts_on(judged("mine.py:raises"), "tea")
    assert late.reason.startswith("verifier raised: ValueError: could not convert string")


def test_chat_prompts_reach_a_judge_as_messages(shelf):
    talk = [{"role": "system", "content": "short"}, {"role": "user", "content": "tea?"}]
    (shelf / "chat.jsonl").write_text(json.dumps({"prompt": talk}) + "\n")
    heard = []

    def reward(prompts, completions, **columns):
        heard.append((prompts, completions, columns))
        return [1]

    world = judged(reward, "chat.jsonl")
    assert [(each.role, each.content) for each in world.begin(0, 0).turn.messages] == [
        ("system", "short"),
        ("user", "tea?"),
    ]
    verdicts_on(world, "yes")
    said = [[{"role": "assistant", "content": "yes"}]]
    assert heard == [([talk], said, {"system": ["short"]})]
    (shelf / "chat.jsonl").write_text(json.dumps({"prompt": [*talk, *talk]}) + "\n")
    with pytest.raises(Mistake, match=r"line 1: 'prompt' has messages of system, user, system"):
        judged(reward, "chat.jsonl")


def test_judge_replaces_the_verifier_of_families_tools_and_mixtures(shelf):
    def score(question, said, answer):
        return 5.0 if said == str(answer) else -1.0

    for name in ("arithmetic", "tools:arithmetic", "arithmetic+q.jsonl", "q.jsonl:math"):
        world = judged(score, name)
        scene = world.begin(1, 0)
        scene.say(str(scene.task.answer))
        (verdict,) = scene.verdicts[0]
        assert (verdict.reward, verdict.reason) == (5.0, "right")
        assert [each.reward for each in verdicts_on(world, "no")] == [-1.0]


@pytest.mark.parametrize(
    ("function", "environment", "said"),
    [
        ("mine.py", "q.jsonl", r"mine.py has several functions \(simple, .*Name the judge, as"),
        ("mine.py:sample", "q.jsonl", "has no 'sample'; did you mean simple"),
        ("mine.py:np", "q.jsonl", "the judge mine:np is a module, not a function"),
        ("score", "q.jsonl", "judge must be a function, the name of one as mine.py:score, or the"),
        (lambda answer: 1.0, "q.jsonl", "takes no question and answer; write it as score"),
        (3, "q.jsonl", "judge must be a function, .*got 3"),
        ("one.py", "game:nim", "game:nim judges its own scenes. A judge is for questions"),
        ("one.py", "try-again:arithmetic", "judges its own scenes"),
    ],
)
def test_wrong_judge_is_refused_with_a_remedy(shelf, function, environment, said):
    with pytest.raises(Mistake, match=said):
        judged(function, environment)


@pytest.mark.parametrize(
    ("function", "said"),
    [
        ("mine.py:two", r"the judge mine:two gives .*returned \[1.0, 0.0\] for a list of 1 comp"),
        (
            "mine.py:misnamed",
            r"no reward \(it takes truth, unit; columns of the question: question, answer, shelf\)",
        ),
        ("mine.py:misnamed_lists", r"no reward \(it takes truth; columns of the"),
        ("mine.py:other", r"the answer '3' no reward \(KeyError: '3' \(mine.py:28\)\)"),
    ],
)
def test_one_verdict_is_tried_before_a_run(shelf, function, said):
    speech = LanguageSettings(model="nano", judge=function)
    settings = resolve_settings("grpo", "q.jsonl", updates=2, speech=speech)
    assert settings.speech.judge == f"{shelf}/{function}"
    assert f"{shelf}/mine.py" in settings.to_json()["code"]
    with pytest.raises(Mistake, match=said):
        resolve_language_settings(settings)


def test_judge_that_cannot_be_imported_is_not_stored(shelf):
    speech = LanguageSettings(model="nano", judge=lambda question, answer: 1.0)
    settings = resolve_settings("grpo", "q.jsonl", updates=2, speech=speech)
    settings = resolve_language_settings(settings)  # it is called in this process
    with pytest.raises(Mistake, match="could not be opened again without the judge"):
        judged_questions.check_can_be_stored(settings.speech.judge)
