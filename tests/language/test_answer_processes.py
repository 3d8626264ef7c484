"""A worker's processes answer several threads at once, and one that fails fails alone."""

import os
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import pytest

from sterling.language import tasks
from sterling.language.adapters import answer_channel
from sterling.language.adapters.answer_worker import WorkerFault

HERE = Path(__file__).parent


def ask_at_once(worker, questions):
    """Return the answers to questions that as many threads ask."""
    with ThreadPoolExecutor(len(questions)) as pool:
        return [*pool.map(worker.ask, questions)]


def is_alive(process):
    """Whether a process runs: one that has ended, and nobody waited for, does not."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def comes_true(condition, seconds=30.0):
    end = time.monotonic() + seconds
    while not condition() and time.monotonic() < end:
        time.sleep(0.01)
    return condition()


@pytest.fixture
def interrupts():
    """Interrupts raise KeyboardInterrupt, also where tests run in the background."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def test_answer_worker_answers_threads_at_the_same_time(start):
    worker = start(8)
    found = ask_at_once(worker, [["meet", 8]] * 8)  # none answers before all eight have come
    assert len(set(found)) == 8
    assert ask_at_once(worker, [["echo", n] for n in range(64)]) == [*range(64)]
    assert {channel.process for channel in worker._channels} == set(found)


def test_answer_worker_waits_for_a_free_process_without_using_up_time(start):
    """Questions wait in turn for two processes, longer than each may take."""
    worker = start(2, limit=4.0)
    assert worker.ask(["echo", 1]) == 1
    assert ask_at_once(worker, [["sleep", 0.4]] * 24) == [None] * 24
    assert len(worker._channels) == 2


def test_answer_worker_with_one_process_answers_one_at_a_time(start):
    """The counter is one for all, and the process is the one that ran the setup."""
    worker = start(1)
    assert sorted(ask_at_once(worker, [["count", 0]] * 16)) == [*range(1, 17)]
    assert worker.ask(["process", 0]) == worker._server.process.pid
    with pytest.raises(WorkerFault, match="hung"):
        ThreadPoolExecutor(2).submit(worker.ask, ["meet", 2], 0.3).result()
    assert worker.ask(["count", 0]) == 1  # a new process


def test_questions_one_after_the_other_need_one_process(start):
    worker = start(32)
    assert [worker.ask(["count", 0]) for _ in range(20)] == [*range(1, 21)]
    assert len(worker._channels) == 1


def test_hung_question_is_killed_alone_and_delays_no_other(start):
    worker = start(4)
    with ThreadPoolExecutor(1) as pool:
        hung = pool.submit(worker.ask, ["leave a sleeper", 600.0], 6.0)
        sleeper = start.folder / "sleeper"
        assert comes_true(lambda: sleeper.is_file() and sleeper.read_text())
        process = worker._channels[0].process
        assert ask_at_once(worker, [["echo", n] for n in range(20)]) == [*range(20)]
        assert not hung.done()
        with pytest.raises(WorkerFault, match=r"hung: no answer after 6 seconds"):
            hung.result()
    assert comes_true(lambda: not is_alive(process) and not is_alive(int(sleeper.read_text())))
    assert process not in [channel.process for channel in worker._channels]
    assert worker.ask(["echo", 1]) == 1


@pytest.mark.parametrize("what", ["exit", "kill"])
def test_question_that_ends_its_process_fails_alone(start, what):
    worker = start(4)
    with ThreadPoolExecutor(2) as pool:
        others = [pool.submit(worker.ask, ["meet", 2]) for _ in range(2)]
        with pytest.raises(WorkerFault, match="died: its process ended"):
            worker.ask([what, 0])
        assert len({other.result() for other in others}) == 2
    assert worker.ask(["echo", 1]) == 1


def test_answer_worker_begins_again_when_its_first_process_is_killed(start):
    """Those that were forked from it answer on; more are forked from a new one."""
    worker = start(3)
    process, server = worker.ask(["process", 0]), worker.ask(["server", 0])
    os.kill(server, signal.SIGKILL)
    assert worker.ask(["process", 0]) == process
    assert process in ask_at_once(worker, [["meet", 3]] * 3)
    assert worker._server.process.pid != server
    worker.close()
    assert comes_true(lambda: not is_alive(process))


def test_no_process_is_left_after_close(start):
    worker = start(4)
    found = ask_at_once(worker, [["meet", 4]] * 4)
    server = worker._server.process
    with suppress(WorkerFault):
        worker.ask(["leave a sleeper", 600.0], 3.0)
    late = ThreadPoolExecutor(1).submit(worker.ask, ["sleep", 600.0])
    assert comes_true(lambda: any(channel.busy for channel in worker._channels))
    worker.close()
    with pytest.raises(WorkerFault, match="died"):
        late.result(30.0)
    assert server.returncode is not None
    sleeper = int((start.folder / "sleeper").read_text())
    assert comes_true(lambda: not any(map(is_alive, [*found, sleeper])))
    assert not any(Path(f"/proc/{process}").exists() for process in found)  # nor as zombies
    assert worker.ask(["echo", 1]) == 1


def test_processes_end_with_the_process_that_asks(start):
    program = f"""
import os, sys, threading, time
sys.path.insert(0, {str(HERE)!r})
from sterling.language.adapters.answer_worker import Worker
worker = Worker("judges:obedient", {str(start.folder)!r}, 600.0, processes=2)
print(worker.ask(["process", 0]), worker.ask(["server", 0]), flush=True)
threading.Thread(target=worker.ask, args=(["sleep", 600.0],)).start()
time.sleep(0.2)
os.kill(os.getpid(), 9)
"""
    said = subprocess.run([sys.executable, "-c", program], stdout=subprocess.PIPE, check=False)
    processes = [int(each) for each in said.stdout.split()]
    assert len(processes) == 2
    assert comes_true(lambda: not any(map(is_alive, processes)))


@pytest.mark.usefixtures("interrupts")
def test_interrupted_question_leaves_no_answer_for_the_next(start):
    for processes in (2, 1):
        worker = start(processes)
        assert worker.ask(["echo", 1]) == 1
        main = threading.main_thread().ident
        interrupt = threading.Timer(0.2, signal.pthread_kill, (main, signal.SIGINT))
        interrupt.start()
        with pytest.raises(KeyboardInterrupt):
            worker.ask(["sleep", 600.0])
        interrupt.join()
        assert [worker.ask(["echo", n]) for n in range(5)] == [*range(5)]


@pytest.mark.usefixtures("interrupts")
def test_interrupts_at_any_time_lose_no_process(start):
    """A lost one would stay busy, and in the end be waited for without end."""
    worker = start(2)
    main, answered, number = threading.main_thread().ident, 0, 0
    worker.ask(["echo", 0])
    while number < 40 or not answered:  # later and later: some come after an answer
        number += 1
        interrupt = threading.Timer(0.0005 * number, signal.pthread_kill, (main, signal.SIGINT))
        with suppress(KeyboardInterrupt):
            interrupt.start()
            while interrupt.is_alive():
                assert worker.ask(["echo", answered]) == answered
                answered += 1
            time.sleep(1.0)  # if the interrupt is yet to come
    ask_at_once(worker, [["echo", n] for n in range(4)])
    assert not any(channel.busy for channel in worker._channels)


def test_random_numbers_of_processes_differ_and_are_repeated(start):
    drawn = []
    for _ in range(2):
        worker = start(3)
        ask_at_once(worker, [["meet", 3]] * 3)
        for path in start.folder.iterdir():
            path.unlink()
        channels = sorted(worker._channels, key=lambda channel: channel._number)
        drawn.append([channel.ask(["draw", 0], 60.0) for channel in channels])
        worker.close()
    assert drawn[0] == drawn[1]
    assert len(set(drawn[0])) == 3


@pytest.mark.parametrize("processes", [1, 2])
def test_random_numbers_of_numpy_are_repeated(start, processes):
    """Whether the process is the first one or was forked."""
    workers = [start(processes, target="judges:with_numpy") for _ in range(2)]
    one, other = (worker.ask(0) for worker in workers)
    assert one == other


def test_memory_limit_holds_for_each_process(start):
    limit = 2**28
    worker = start(3, memory=limit)
    half = ["use", limit // 2]
    assert ask_at_once(worker, [half] * 3) == [limit // 2] * 3
    with pytest.raises(WorkerFault, match="raised: MemoryError"):
        worker.ask(["use", limit])


def test_interrupt_while_a_process_is_opened_is_made_up_for(start, monkeypatch):
    worker = start(3)
    process = worker.ask(["process", 0])
    server, files = worker._server, len(os.listdir("/proc/self/fd"))

    class Interrupt:
        __hash__ = None

        def __eq__(self, reply):  # compared with the server's reply
            raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(answer_channel, "TAKEN", Interrupt())
        with ThreadPoolExecutor(1) as pool:
            busy = pool.submit(worker.ask, ["meet", 2])
            assert comes_true(lambda: worker._channels[0].busy)
            with pytest.raises(KeyboardInterrupt):
                worker.ask(["echo", 0])
            (start.folder / "enough").touch()
            busy.result()
    found = ask_at_once(worker, [["meet", 4]] * 3)
    assert len({process, *found}) == 3
    assert worker._server is server
    numbers = [channel._number for channel in worker._channels]
    assert len({*numbers}) == 3
    assert len(os.listdir("/proc/self/fd")) == files + 2
    children = Path(f"/proc/{server.process.pid}/task/{server.process.pid}/children")
    assert comes_true(lambda: len([*filter(is_alive, children.read_text().split())]) == 3)


TASKS = """
import os, time
from pathlib import Path

def sample(seed, level):
    return {"prompt": f"{seed}=", "answer": FOLDER}

def verify(task, response):
    Path(task.answer, str(os.getpid())).touch()
    while len(os.listdir(task.answer)) < 8:
        time.sleep(0.005)
    return 1.0
"""


def test_verdicts_of_a_users_file_are_given_at_the_same_time(tmp_path, capfd):
    folder, file = tmp_path / "processes", tmp_path / "mine.py"
    folder.mkdir()
    file.write_text(TASKS.replace("FOLDER", repr(str(folder))))
    family = tasks.find_family(str(file))
    with ThreadPoolExecutor(8) as pool:
        found = [*pool.map(family.verify, [family.sample(0, 0)] * 8, [""] * 8)]
    assert [verdict.reward for verdict in found] == [1.0] * 8
    family.close()
    assert capfd.readouterr().err == ""  # no warning about the fork
    file.write_text(f"processes = 1{file.read_text()}")
    assert tasks.find_family(str(file))._worker._first["processes"] == 1
