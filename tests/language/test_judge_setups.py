"""What a judge's setup does to the process that others are forked from."""

from concurrent.futures import ThreadPoolExecutor

import pytest

from sterling.language import tasks
from sterling.language.adapters.answer_worker import WorkerFault


def ask_at_once(worker, questions):
    """Return the answers to questions that as many threads ask."""
    with ThreadPoolExecutor(len(questions)) as pool:
        return [*pool.map(worker.ask, questions)]


def test_setup_that_leaves_threads_running_is_not_forked(start):
    worker = start(8, target="judges:with_a_thread")
    assert {*ask_at_once(worker, [None] * 8)} == {worker._server.process.pid}


def test_answer_worker_goes_on_when_no_more_processes_can_be_forked(start):
    worker = start(8, target="judges:forked_twice")
    found = {*ask_at_once(worker, [0.05] * 8)}
    assert len(found) == 2
    assert {*ask_at_once(worker, [0.0] * 8)} <= found


def test_answer_worker_answers_in_one_process_when_none_can_be_forked(start):
    worker = start(8, target="judges:never_forked")
    assert {*ask_at_once(worker, [0.01] * 8)} == {worker._server.process.pid}
    assert worker.ask(0.0) == worker._server.process.pid


def test_what_a_judge_prints_is_seen_at_once_whatever_ends_its_process(start, monkeypatch, capfd):
    monkeypatch.delenv("PYTHONUNBUFFERED", raising=False)
    worker = start(2)
    worker.ask(["print", "first words"])
    assert capfd.readouterr() == ("", "first words\n")
    with pytest.raises(WorkerFault, match="hung"):
        worker.ask(["print and sleep", "last words"], 3.0)
    assert capfd.readouterr() == ("", "last words\n")


def test_setup_that_closes_its_output_does_not_end_the_server(start):
    worker = start(3, target="judges:with_closed_output")
    assert len({*ask_at_once(worker, [0.5] * 3)}) > 1


JAX_TASKS = """
import os
import jax.numpy as jnp
from pathlib import Path

def sample(seed, level):
    return {"prompt": f"{seed}=", "answer": FOLDER}

def verify(task, response):
    Path(task.answer, str(os.getpid())).touch()
    while len(os.listdir(task.answer)) < 2:
        pass
    return float(jnp.arange(4).sum())
"""


def test_file_that_uses_jax_judges_in_several_processes(tmp_path, capfd):
    folder, file = tmp_path / "processes", tmp_path / "with_jax.py"
    folder.mkdir()
    file.write_text(JAX_TASKS.replace("FOLDER", repr(str(folder))))
    family = tasks.find_family(str(file))
    with ThreadPoolExecutor(2) as pool:
        found = [*pool.map(family.verify, [family.sample(0, 0)] * 2, [""] * 2)]
    family.close()
    assert [verdict.reward for verdict in found] == [6.0, 6.0]
    assert capfd.readouterr().err == ""
