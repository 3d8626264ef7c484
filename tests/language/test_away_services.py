"""Verifiers and tools whose service is away: what counts as away, how they are asked again."""

import errno
import io
import time
import types
import urllib.error

import pytest

import sterling
from sterling.language import away_services
from sterling.language.adapters.answer_worker import WorkerFault
from sterling.language.adapters.user_tasks import UserTasks
from sterling.language.engine.ask import Said
from sterling.language.scene_dialogue import ChatSettings, SceneBatch
from sterling.language.task import Task, Verdict
from sterling.language.tasks import find_family
from sterling.language.time_limits import remaining_time
from sterling.language.tokenizer import Tokenizer
from sterling.language.worlds.judged_questions import InMemoryJudge, JudgedQuestions
from sterling.language.worlds.tool_use import ToolUse
from sterling.system.away_errors import is_away
from sterling.training.language.context_length import world_context_length


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
        (OSError(errno.ENAMETOOLONG, "File name too long"), False),
        (io.UnsupportedOperation("not readable"), False),
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
    monkeypatch.setattr(away_services.time, "sleep", found.append)
    return found


def test_verifier_is_asked_again_with_longer_waits_and_two_lines_say_so(waits, capsys):
    left = ["away"] * 8

    def ask():
        if left:
            raise WorkerFault(left.pop(), "ConnectionRefusedError")
        return 0.5

    assert away_services.ask_until_answered(ask, "the judge mine.py:score") == 0.5
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
        away_services.ask_until_answered(ask, "it")
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


def shop_that_raises(*errors, seconds=0.0):
    """A world whose tool raises these errors first, each after some seconds; and what was left of
    the scene's time at each call."""
    raised, left = list(errors), []

    def price(item: str) -> int:
        """Return a price."""
        left.append(remaining_time()[0])
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            pass
        if raised:
            raise raised.pop(0)
        return 3

    return ToolUse(find_family("arithmetic"), [price]), left


def ask_the_shop(world):
    tokenizer, scene = Tokenizer.characters(), world.begin(0, 0)
    batch = SceneBatch([scene], ChatSettings(tokenizer, limit=64, context=400, patience=5.0))
    (line,) = batch.waiting()
    ids = tokenizer.encode("<price>tea</price>")
    batch.add_answer(line, Said(ids, [0.0] * len(ids), False))
    batch.waiting()  # the tool is called
    return scene, batch.finish()[0]


def test_tool_that_is_away_is_asked_again_and_takes_no_time_of_its_scene(monkeypatch, capsys):
    waits = []
    monkeypatch.setattr(
        away_services.time, "sleep", lambda each: waits.append((each, *remaining_time()))
    )
    world, left = shop_that_raises(
        sterling.Away("restarting"), ConnectionRefusedError(), seconds=0.02
    )
    scene, line = ask_the_shop(world)
    assert scene.turn.messages[-1].content == "3"
    assert [each.reason for each in line.verdicts] == ["call"]
    assert waits == [(1.0, 0.0, 0.0), (2.0, 0.0, 0.0)]  # the scene's clock stands still
    assert left[2] > left[0] - 0.02  # nor do two failed attempts of 0.02 s use it up
    assert remaining_time()[0] == 0.0
    assert "the tool price is away (Away: restarting (test_" in (said := capsys.readouterr().err)
    assert "the tool price answers again, after 3 s" in said


def test_tool_that_stays_away_fails_its_scene_and_other_errors_are_told_to_the_model(waits):
    world, left = shop_that_raises(*[http(503)] * 200)
    _, line = ask_the_shop(world)
    assert line.failed.startswith("Away: the tool price is away: HTTPError: HTTP Error 503: no")
    assert line.verdicts == ()
    assert 3_600 <= sum(waits) <= 3_660
    assert len(left) == len(waits) + 1
    world, left = shop_that_raises(http(404))
    scene, line = ask_the_shop(world)
    assert scene.turn.messages[-1].content == "error: HTTP Error 404: no"
    assert len(left) == 1


def test_context_is_measured_though_a_tool_stays_away(waits):
    world, left = shop_that_raises(*[http(503)] * 10_000)
    assert world_context_length(world, (0,), Tokenizer.characters(), 32, 5.0) > 32
    assert left
    assert sum(waits) <= 3_660  # once, not for every scene
