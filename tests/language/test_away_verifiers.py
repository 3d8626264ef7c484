"""Verifiers whose service is away for a while: what counts as away, how they are asked again."""

import types
import urllib.error

import pytest

import sterling
from sterling.language import away_verifiers
from sterling.language.adapters.answer_worker import WorkerFault
from sterling.language.adapters.user_tasks import UserTasks
from sterling.language.task import Task, Verdict
from sterling.language.tasks import find_family
from sterling.language.worlds.judged_questions import InMemoryJudge, JudgedQuestions
from sterling.system.away_errors import is_away


def http(code):
    return urllib.error.HTTPError("http://judge", code, "no", {}, None)


def with_response(code):
    error = RuntimeError("no")
    error.response = types.SimpleNamespace(status_code=code)
    return error


def caused_by(cause):
    error = RuntimeError("the client's own error")
    error.__cause__ = cause
    return error


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (sterling.Away("the server restarts"), True),
        (ConnectionRefusedError(), True),
        (TimeoutError(), True),
        (OSError("network is unreachable"), True),
        (http(429), True),
        (http(503), True),
        (with_response(500), True),
        (caused_by(ConnectionResetError()), True),
        (http(404), False),
        (http(400), False),
        (with_response(401), False),
        (caused_by(http(404)), False),
        (FileNotFoundError(), False),
        (PermissionError(), False),
        (ValueError("odd"), False),
        (caused_by(ValueError()), False),
    ],
)
def test_error_of_a_service_that_is_away_for_a_while(error, expected):
    assert is_away(error) == expected


@pytest.fixture(name="waits")
def _waits(monkeypatch):
    """The seconds that were waited, without waiting."""
    found = []
    monkeypatch.setattr(away_verifiers.time, "sleep", found.append)
    return found


def test_verifier_is_asked_again_with_longer_waits_and_two_lines_say_so(waits, capsys):
    left = ["away"] * 8

    def ask():
        if left:
            raise WorkerFault(left.pop(), "ConnectionRefusedError")
        return 0.5

    assert away_verifiers.ask_until_answered(ask, "the judge mine.py:score") == 0.5
    assert waits == [1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 60.0, 60.0]
    first, last = capsys.readouterr().err.splitlines()
    assert first.startswith("the judge mine.py:score is away (ConnectionRefusedError): it is asked")
    assert last == "the judge mine.py:score answers again, after 183 s"


@pytest.mark.parametrize(("kind", "least", "most"), [("away", 3_600, 3_660), ("raised", 0, 0)])
def test_other_faults_pass_at_once_and_an_answer_is_given_up_after_an_hour(
    waits, kind, least, most
):
    def ask():
        raise WorkerFault(kind, "no")

    with pytest.raises(WorkerFault, match="no"):
        away_verifiers.ask_until_answered(ask, "it")
    assert least <= sum(waits) <= most


AWAY_TWICE = """
from pathlib import Path
import sterling

def sample(seed, level):
    return {"prompt": "a", "answer": ""}

def verify(task, response):
    asked = Path(__file__).with_suffix(".asked")
    count = len(asked.read_text()) if asked.exists() else 0
    asked.write_text("x" * (count + 1))
    if response == "odd":
        raise ValueError("odd")
    if count == 0:
        raise sterling.Away("restarting")
    if count == 1:
        raise ConnectionRefusedError
    return 1.0
"""


def test_verify_of_a_users_file_is_asked_again_in_its_process(waits, tmp_path, capsys):
    path = tmp_path / "remote.py"
    path.write_text(AWAY_TWICE)
    tasks, task = UserTasks(path), Task("remote", 0, 0, "a", "")
    assert tasks.verify(task, "b") == Verdict(1.0, "right")
    assert waits == [1.0, 2.0]
    assert "remote.py: verify is away (Away: restarting)" in capsys.readouterr().err
    assert tasks.verify(task, "odd").reason == "verifier raised: ValueError: odd"
    assert waits == [1.0, 2.0]
    tasks.close()


def test_judge_in_this_process_is_asked_again(waits):
    errors = [TimeoutError("late"), sterling.Away("restarting")]

    def score(question, answer):
        if errors:
            raise errors.pop()
        return {"right": 1.0, "format": 0.5}

    judged = JudgedQuestions(find_family("arithmetic"), InMemoryJudge("score", score))
    verdict = judged.verify(judged.sample(0, 0), "3")
    assert (verdict.reward, verdict.reason, len(waits)) == (1.5, "right", 2)
