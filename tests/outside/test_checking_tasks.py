"""`sterling check` finds what is wrong with language tasks, and nothing in Sterling's own."""

import json

import pytest

from sterling.checking import check_tasks
from sterling.cli import main
from sterling.language.task import RIGHT, WRONG, Task

RIGHT_CHECK, WRONG_CHECK = "right answers get reward 1", "wrong answers do not get reward 1"
VERDICTS, ANSWERS = "every response gets a verdict", "every task has an answer"
LINES, SAME = "every line is a task", "the same response gets the same verdict"


class Sums:
    """Additions, judged by the last word of a response."""

    name, levels = "sums", range(2)

    def sample(self, seed, level):
        return Task(self.name, seed, level, f"{seed}+{level}=", str(seed + level))

    def verify(self, task, response):
        return RIGHT if response == task.answer else WRONG


def posed(prompt, answer):
    return Task("sums", 0, 0, prompt, answer)


def planted(**parts):
    return type("Planted", (Sums,), parts)()


def wrong(findings):
    return [one.what for one in findings if one.failed]


@pytest.mark.parametrize(
    "name", ["reverse-text", "instructions", "knights-and-knaves", "chain*2+sql"]
)
def test_check_finds_nothing_in_sterlings_own_tasks(name):
    found = list(check_tasks(name, quick=True))
    assert wrong(found) == []
    assert "verdicts/s" in found[-1].said


@pytest.mark.parametrize(
    ("parts", "whats", "said"),
    [
        ({}, [], ""),
        ({"verify": lambda self, task, response: RIGHT}, [WRONG_CHECK], "an empty response gets 1"),
        ({"verify": lambda self, task, response: RIGHT if response else WRONG}, [WRONG_CHECK],
         "'I do not know.' gets 1 in every task"),
        ({"verify": lambda self, task, response: RIGHT if task.answer in response else WRONG},
         [WRONG_CHECK], "lists the answers of 5 tasks gets 1"),
        ({"verify": lambda self, task, response: WRONG}, [RIGHT_CHECK], "20 of 20 right answers"),
        ({"verify": lambda self, task, response: 5.0}, [RIGHT_CHECK, VERDICTS], "gets no verdict"),
        ({"verify": lambda self, task, response: RIGHT if float(response) == 1 else WRONG},
         [RIGHT_CHECK, WRONG_CHECK, VERDICTS], "18 of 20 right"),
        ({"sample": lambda self, seed, level: posed(f"{seed}=", "")},
         [ANSWERS, WRONG_CHECK], "20 of 20 tasks have no answer"),
        ({"sample": lambda self, seed, level: posed(f"{seed % 3}=", "4" if seed != 7 else 1 / 0)},
         ["tasks can be made"], "2 of 20 tasks cannot be made; seed 7"),
    ],
    ids=["right", "accepts all", "accepts any text", "accepts a list", "accepts nothing",
         "out of range", "raises", "no answer", "sample raises"],
)  # fmt: skip
def test_check_names_a_planted_fault_of_tasks_and_goes_on(parts, whats, said):
    found = list(check_tasks(planted(**parts), quick=True))
    assert wrong(found) == whats
    assert len(found) == 8
    assert not whats or said in next(one.said for one in found if one.failed)


def test_check_finds_tasks_that_depend_on_earlier_calls():
    calls = iter(range(10_000))
    other = planted(sample=lambda self, seed, level: posed(f"{next(calls)}", "1"))
    assert "the same seed gives the same task" in wrong(check_tasks(other, quick=True))
    unsteady = planted(verify=lambda self, task, response:
                       RIGHT if response == task.answer and next(calls) % 2 else WRONG)  # fmt: skip
    assert SAME in wrong(check_tasks(unsteady, quick=True))


def test_check_goes_on_with_the_good_lines_of_a_file(tmp_path):
    lines = [{"prompt": "1+1=", "answer": "2"}, {"prompt": "2+1="},
             {"prompt": "3+1=", "answer": ""}, {"prompt": "4+1=", "answer": 5},
             {"prompt": "4+1=", "answer": "6"}]  # fmt: skip
    file = tmp_path / "sums.jsonl"
    file.write_text("\n".join(map(json.dumps, lines)))
    found = list(check_tasks(str(file)))
    assert wrong(found) == [LINES, "a question has one answer"]
    assert found[0].said == "sums.jsonl, line 2 has no 'answer' (the first of 2 faults)"
    file.write_text("\n")
    empty = list(check_tasks(f"{file}:math"))
    assert wrong(empty) == [LINES]
    assert "holds no records" in empty[0].said
    assert empty[-1].verdict == "not checked"


def test_check_command_takes_the_users_tasks_and_names_what_was_not_checked(tmp_path, capsys):
    file = tmp_path / "five.py"
    file.write_text(
        "def sample(seed, level):\n    return {'prompt': f'{seed}+1=', 'answer': seed + 1}\n\n"
        "def verify(task, response):\n    return [5.0] if response == str(task.answer) else 0\n"
    )
    assert main(["check", str(file), "--quick"]) == 1
    shown = capsys.readouterr().out
    assert "five.py:1: " not in shown
    assert "five.py:4: " in shown
    assert "verifier nonsense: verify returned [5.0]" in shown
    assert f"five: 5 hold, 2 fail, 1 not checked\nnot checked: {WRONG_CHECK}\n" in shown
    assert main(["check", f"{tmp_path}/gone.jsonl"]) == 2
    assert main(["check", "tools:arithmetic"]) == 2
