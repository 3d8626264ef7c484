"""The reward functions and commands of docs/judges.md work as they stand."""

import json
import re
import shlex
from pathlib import Path

import pytest
from counting_judge import save_counting_judge, score_of

from sterling.cli import main
from sterling.language.worlds import find_world
from sterling.language.worlds.judged_questions import find_judged, judge_reference, probe_judge
from sterling.training.config.run_options import LanguageSettings
from sterling.training.language.judge_models import judge_of

PAGE = (Path(__file__).parents[1] / "docs" / "judges.md").read_text()
FILES = dict(re.findall(r"```python\n# (\S+\.py)\n(.*?)```", PAGE, re.DOTALL))
QUESTIONS, RUBRIC, PAIRS = re.findall(r"```text\n(.*?)```", PAGE, re.DOTALL)
FACTOR = 3.0


@pytest.fixture(name="folder")
def _folder(tmp_path, monkeypatch):
    """A folder with the page's questions and functions."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "questions.jsonl").write_text(QUESTIONS)
    (tmp_path / "rubric.txt").write_text(RUBRIC)
    (tmp_path / "pairs.txt").write_text(PAIRS)
    save_counting_judge(tmp_path / "models" / "judge", FACTOR)  # it writes 1, a score and a choice
    for name, code in FILES.items():
        (tmp_path / name).write_text(code)
    return tmp_path


@pytest.mark.parametrize(
    ("judge", "rewards"),
    [
        ("mine.py:score", [1.0 - 0.01, -0.01, -0.05]),
        ("trl_rewards.py:format_and_truth", [1.2, 0.2, 0.0]),
        ("parts.py", [1.0, 0.0, -5.0]),
    ],
)
def test_judges_page_functions_give_the_rewards_they_say(folder, judge, rewards):
    world = find_judged(judge_reference(judge), "questions.jsonl", find_world)
    probe_judge(world, 0)
    found, truths = (
        [],
        {each["question"]: each["truth"] for each in map(json.loads, QUESTIONS.splitlines())},
    )
    scene = world.begin(0, 0)
    truth = truths[scene.turn.messages[-1].content]
    for answer in (str(truth), str(truth - 1), "seven"):
        found.append(world.family.verify(scene.task, answer).reward)
    world.family.close()
    assert found == pytest.approx(rewards, abs=1e-12)


def test_judges_page_verifier_of_batches_compares_the_answers_to_a_question(folder):
    family = find_world("shortest.py").family
    one, other = family.sample(0, 0), family.sample(1, 0)
    verdicts = family.verify_batch([one, one, one, other], ["1", " 1", "0", "seven"])
    family.close()
    assert [verdict.reward for verdict in verdicts] == pytest.approx([1.0, 0.99, 0.0, 0.0])


def test_judges_page_rubric_is_what_the_judge_is_asked(folder):
    speech = LanguageSettings(judge=str(folder / "models" / "judge"), rubric=RUBRIC, judge_limit=8)
    family = find_judged(judge_of(speech), "questions.jsonl", find_world).family
    task = next(each for each in map(family.sample, range(2), [0, 0]) if each.prompt == "3+4=")
    verdict = family.verify(task, "<think>half</think> maybe 8")
    fields = {
        "{prompt}": "3+4=",
        "{response}": "maybe 8",
        "{truth}": "7",
        "{score:0-10}": "0 to 10",
    }
    asked = RUBRIC
    for field, value in fields.items():
        asked = asked.replace(field, value)
    assert verdict.rewards == {"judge": score_of(asked, FACTOR) / 10}


@pytest.mark.slow
def test_judges_page_commands_run_with_fewer_updates(folder):
    lines = re.findall(r"^(sterling .*)$", PAGE, re.MULTILINE)
    assert len(lines) == 11
    for line in lines:
        asked = re.sub(r"--updates \d+", "--updates 1 --prompts 2 --evaluate-episodes 2", line)
        assert main(shlex.split(asked)[1:]) == 0
