"""A closed terminal costs nothing: SIGHUP saves and leaves, and nobody need read what is printed.

Every run here has a pseudo-terminal of its own, whose other end is closed while it works.
"""

import contextlib
import os
import pty
import signal
import subprocess
import sys
import threading
import time

import pytest

from sterling.training.saving import checkpoint

SMALL = ["--length", "16", "--minibatch", "64", "--epochs", "1", "--width", "8", "--no-preset"]
ENDLESS = {  # the command, and the file that shows that it works
    "train": ("train ppo probe:both --steps 50_000_000 --log-every 128 --out OUT", "metrics.jsonl"),
    "processes": (
        "train ppo probe:both --steps 50_000_000 --log-every 128 --seeds 2 --strategy processes "
        "--out OUT",
        "metrics.jsonl",
    ),
    "replay": (
        "train dqn probe:both --steps 50_000_000 --log-every 128 --warmup 64 --out OUT",
        "metrics.jsonl",
    ),
    "language": (
        "train grpo reverse-text --updates 50_000 --prompts 2 --group 2 --slots 4 --log-every 1 "
        "--out OUT",
        "metrics.jsonl",
    ),
    "compare": (
        "compare --until-decided a=ppo:minibatch=64,width=8 b=ppo:minibatch=32,width=8 "
        "--environment probe:both --steps 2_000_000 --out OUT",
        "a/00/metrics.jsonl",
    ),
    "tune": (
        "tune ppo probe:both --steps 8192 --trials 500 --workers 2 --out OUT",
        "trials.jsonl",
    ),
}


ADOPTED = """
import fcntl, signal, sys, termios
fcntl.ioctl(0, termios.TIOCSCTTY, 0)
if {ignored}:  # as nohup does
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
from sterling.__main__ import main
sys.exit(main())
"""


@pytest.fixture(autouse=True)
def _hangups_are_not_ignored():
    """Processes inherit from this one what they ignore: tests may themselves run under nohup."""
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGHUP, before)


class Terminal:
    """A process on a terminal that this one can close."""

    def __init__(self, words, ignored=False):
        self._master, slave = pty.openpty()
        self.process = subprocess.Popen(
            [sys.executable, "-c", ADOPTED.format(ignored=ignored), *words],
            stdin=slave, stdout=slave, stderr=slave, start_new_session=True,
        )  # fmt: skip
        os.close(slave)
        self.said, self._closing = b"", False
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def close(self):
        """Close the window."""
        self._closing = True
        self._reader.join()
        os.close(self._master)

    def _read(self):
        os.set_blocking(self._master, False)
        while not self._closing:
            with contextlib.suppress(OSError):
                self.said += os.read(self._master, 65536)
            time.sleep(0.01)


def await_file(path, terminal, limit=120):
    deadline = time.monotonic() + limit
    while not (path.exists() and path.stat().st_size):
        assert terminal.process.poll() is None, terminal.said.decode()
        assert time.monotonic() < deadline, terminal.said.decode()
        time.sleep(0.05)


def words(kind, path):
    command, file = ENDLESS[kind]
    small = SMALL if kind in ("train", "processes") else []
    return [*command.replace("OUT", str(path)).split(), *small], path / file


slow = pytest.mark.slow


@pytest.mark.parametrize(
    "kind", ["train", *(pytest.param(each, marks=slow) for each in ENDLESS if each != "train")]
)
def test_sighup_of_a_closed_terminal_saves_and_exits_with_code_75(kind, tmp_path):
    command, file = words(kind, tmp_path / "out")
    terminal = Terminal(command)
    try:
        await_file(file, terminal)
        terminal.close()
        assert terminal.process.wait(120) == 75
    finally:
        terminal.process.kill()
    if kind == "tune":  # its state is the history, which was there
        return
    roots = [file.parent / "checkpoints", *file.parent.glob("parts/*/checkpoints")]
    saved = [checkpoint.latest_checkpoint(root) for root in roots if root.is_dir()]
    assert len(saved) == (2 if kind == "processes" else 1)
    assert all(checkpoint.read_iteration(path) > 0 for path in saved)


@pytest.mark.slow
def test_nohup_run_ignores_sighup_and_finishes(tmp_path):
    path = tmp_path / "out"
    command = "train ppo probe:both --steps 2560 --log-every 128 --evaluate-episodes 2 --out"
    terminal = Terminal([*command.split(), str(path), *SMALL], ignored=True)
    try:
        await_file(path / "config.json", terminal)
        terminal.close()
        assert terminal.process.wait(120) == 0
    finally:
        terminal.process.kill()
    assert (path / "result.json").exists()


def test_repeated_sighup_is_one_request(tmp_path):
    program = (
        "import sys, time\n"
        "from sterling.training.runtime import signals\n"
        "signals.DEBOUNCE_SECONDS = 0.0\n"  # the next signal would be the second, however soon
        "with signals.Interrupt() as interrupt:\n"
        "    print('go', flush=True)\n"
        "    while not interrupt.requested:\n        time.sleep(0.01)\n"
        "    print('asked', flush=True)\n"
        "    sys.stdin.read()\n"  # as a checkpoint that takes its time
        "raise SystemExit(75)\n"
    )
    pipe = subprocess.PIPE
    with subprocess.Popen([sys.executable, "-c", program], stdin=pipe, stdout=pipe) as process:
        assert process.stdout.readline() == b"go\n"
        process.send_signal(signal.SIGHUP)
        assert process.stdout.readline() == b"asked\n"
        process.send_signal(signal.SIGHUP)
        process.stdin.close()
        assert process.wait(120) == 75
