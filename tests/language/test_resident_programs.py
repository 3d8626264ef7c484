"""A function of a file that is imported once runs as a program that is started each time."""

import asyncio
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest
from played_programs import PROGRAM, Counting, Late, Letters, is_running, last_lines, played, texts

from sterling.language.agent_programs.program_session import ProgramSession
from sterling.language.agent_programs.session_folders import (
    PREFIX,
    SessionFolders,
    remove_dead_folders,
)
from sterling.language.agent_programs.session_server import _take_reward
from sterling.system.http_server import HttpError

FUNCTION = f"{PROGRAM}:run"


@pytest.mark.parametrize("function", ["run", "run_later"])
def test_function_asks_as_the_program_does(tmp_path, function):
    records = [dict(do="twice", prompt="1" * n, answer="a") for n in range(1, 6)]
    by_command, _ = played(tmp_path, *records, agent=Counting())
    found, _ = played(tmp_path, *records, agent=Counting(), command=f"{PROGRAM}:{function}")
    told = [[(line.ids, line.reward, line.failed) for line in each] for each in (by_command, found)]
    assert told[0] == told[1]


def test_function_has_its_task_its_input_and_a_folder_of_its_own(tmp_path):
    record = dict(do="places", prompt="1", answer="x")
    _, scenes = played(tmp_path, record, record | {"prompt": "2"}, command=FUNCTION)
    for (same, _, files), scene in zip(last_lines(scenes), scenes, strict=True):
        assert (same, sorted(files)) == (True, ["left.txt", "task.json"])
        assert not Path(scene.left.folder).exists()
    assert "STERLING_TASK" not in os.environ


def test_function_that_fails_is_judged(tmp_path):
    (line,), (scene,) = played(tmp_path, dict(do="crash", prompt="1", answer="a"), command=FUNCTION)
    assert (line.reward, scene.left.exit_code) == (1.0, 3)
    (raised,), (scene,) = played(tmp_path, dict(do="many", answer="a"), command=FUNCTION)
    assert "asked for no answer: exit code 1, KeyError: 'calls'" in raised.failed


def test_function_that_hangs_is_killed_alone(tmp_path):
    records = [dict(do=each, prompt="1", answer="a") for each in ("hang", "twice")]
    lines, scenes = played(tmp_path, *records, command=FUNCTION, seconds=3.0)
    assert [line.reward for line in lines] == [1.0, 1.0]
    assert [scene.left.exit_code for scene in scenes] == [None, 0]
    assert not is_running(scenes[0])


def test_runs_of_a_function_draw_random_numbers_of_their_own(tmp_path):
    (tmp_path / "chance.py").write_text(f"""
import random, sys
import numpy
sys.path.append({str(PROGRAM.parent)!r})
import agent_program

random.random(), numpy.random.random()

def run(task):
    agent_program.chat(agent_program.user("1"))
    return [random.random(), numpy.random.random()]
""")
    records = [dict(do="x", prompt=f"{n}", answer="a") for n in range(2)]
    _, scenes = played(tmp_path, *records, command=f"{tmp_path / 'chance.py'}:run")
    (first, second), (third, fourth) = last_lines(scenes)
    assert first != third
    assert second != fourth


def test_time_in_which_a_program_waits_for_the_model_is_not_its_own(tmp_path):
    record = dict(do="once", prompt="1", answer="a")
    (line,), (scene,) = played(
        tmp_path, record, agent=Late(seconds=3.0), command=FUNCTION, seconds=2.0
    )
    assert (line.reward, scene.left.exit_code) == (1.0, 0)


def test_reward_that_comes_after_the_end_is_refused():
    session = ProgramSession(["true"], {}, 1.0)
    assert asyncio.run(_take_reward(session, {"right": 1})) == {"ok": True}
    session.over = True
    with pytest.raises(HttpError, match="has ended"):
        asyncio.run(_take_reward(session, {"right": 0}))
    assert session.rewards == {"right": 1.0}


def test_file_that_begins_threads_runs_in_processes_of_its_own(tmp_path):
    (tmp_path / "busy.py").write_text(f"""
import sys, threading, time
sys.path.append({str(PROGRAM.parent)!r})
import agent_program

threading.Thread(target=time.sleep, args=(1000,), daemon=True).start()

def run(task):
    assert any(each.daemon for each in threading.enumerate())
    return agent_program.once(task)
""")
    record = dict(prompt="1", answer="a")
    (line,), _ = played(tmp_path, record, command=f"{tmp_path / 'busy.py'}:run")
    assert (line.reward, texts(line)) == (1.0, ["1a"])


def test_file_that_cannot_be_imported_is_told(tmp_path):
    (tmp_path / "broken.py").write_text("import nothing_of_this_name\n")
    (line,), _ = played(tmp_path, dict(prompt="1"), command=f"{tmp_path / 'broken.py'}:run")
    assert "nothing_of_this_name" in line.failed
    (line,), _ = played(tmp_path, dict(prompt="1"), command=f"{PROGRAM}:rum", agent=Letters())
    assert "has no 'rum'; did you mean run" in line.failed


def test_process_that_forks_may_die_and_is_started_again(tmp_path):
    (tmp_path / "deadly.py").write_text(f"""
import os, signal, sys, time
sys.path.append({str(PROGRAM.parent)!r})
import agent_program

def run(task):
    said = agent_program.once(task)
    if task["prompt"] == "1":
        os.kill(os.getppid(), signal.SIGKILL)
        time.sleep(1000)
    return said
""")
    command = f"{tmp_path / 'deadly.py'}:run"
    (line,), (scene,) = played(tmp_path, dict(prompt="1", answer="a"), command=command)
    assert (line.turns, scene.left.exit_code) == (1, None)
    assert "the process that forks has ended" in line.failed  # neither the model's nor its fault
    assert not is_running(scene)
    (line,), _ = played(tmp_path, dict(prompt="2", answer="a"), command=command)
    assert line.reward == 1.0


def test_programs_end_with_the_process_that_runs_them_and_the_next_removes_their_folders(
    tmp_path, monkeypatch
):
    program = f"""
import os, pathlib, sys, tempfile, threading, time
sys.path.insert(0, {str(PROGRAM.parents[2])!r})
from played_programs import COMMAND, PROGRAM, played
folder = pathlib.Path({str(tmp_path)!r})
tempfile.tempdir = str(folder)
for name, command in (("a", COMMAND), ("b", f"{{PROGRAM}}:run")):
    (folder / name).mkdir()
    record = dict(do="known", prompt="1", folder=str(folder))
    how = dict(command=command)
    threading.Thread(target=played, args=(folder / name, record), kwargs=how, daemon=True).start()
while len([*folder.glob("*.number")]) < 2:
    time.sleep(0.05)
os.kill(os.getpid(), 9)
"""
    subprocess.run([sys.executable, "-c", program], timeout=200, check=False)
    numbers = [int(each.stem) for each in tmp_path.glob("*.number")]
    assert len(numbers) == 2
    end = time.monotonic() + 30.0
    while any(map(is_alive, numbers)) and time.monotonic() < end:
        time.sleep(0.05)
    assert not any(map(is_alive, numbers))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    (left,) = tmp_path.glob(f"{PREFIX}*")
    assert len([*left.glob("session-*/task.json")]) == 2
    folders = SessionFolders()
    assert not left.exists()
    remove_dead_folders()  # not those of a process that runs
    assert folders.new().is_dir()
    folders.close()
    assert not folders.path.exists()


def is_alive(process):
    """Whether a process runs: one that has ended, and nobody waited for, does not."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False
