"""What goes wrong around a run costs it as little as can be: sinks, evaluations, full disks."""

import contextlib
import errno
import json
import re
import subprocess
import sys

import pytest

import sterling
from sterling.envs.hosted.worker_pool import WorldFailed
from sterling.training.evaluation.evaluator import Evaluator
from sterling.training.processes import process_launcher
from sterling.training.runtime.log_interval import LogInterval
from sterling.training.saving import checkpoint

ROUND = 128  # steps
SMALL = {"length": 16, "minibatch": 64, "epochs": 1, "width": 8, "preset": False}


def train(path, rounds=6, **options):
    """A row of the log each round."""
    fields = {"seeds": 1, "evaluate_episodes": 0, "log_every": ROUND, **SMALL, **options}
    return sterling.train("ppo", "probe:both", steps=rounds * ROUND, out=path, **fields)


def rounds(path):
    """The rounds of which there are rows."""
    lines = (path / "metrics.jsonl").read_text().splitlines()
    return [json.loads(line)["step"] // ROUND for line in lines]


def saved(path):
    """The round of the newest checkpoint."""
    return int(checkpoint.latest_checkpoint(path / "checkpoints").name.partition(".")[0]) // ROUND


class Taker:
    """A sink that takes some rows, then raises."""

    def __init__(self, rows=99, error=None):
        self.rows, self.error, self.seen = rows, error, []

    def write(self, row):
        if len(self.seen) == self.rows:
            raise self.error
        self.seen.append(row["step"] // ROUND)

    def close(self):
        """Nothing to release."""


def test_metric_sink_that_raises_is_dropped(tmp_path, capsys):
    sinks = [Taker(2, ConnectionError("503")), Taker(3, SystemExit(1)), Taker()]
    train(tmp_path / "run", sinks=sinks)
    every = [1, 2, 3, 4, 5, 6]
    assert [sink.seen for sink in sinks] == [every[:2], every[:3], every]
    assert rounds(tmp_path / "run") == every
    assert (tmp_path / "run" / "result.json").exists()
    said = capsys.readouterr().err
    assert re.findall(r"Taker was dropped after an error \((.+)\)", said) == [
        "ConnectionError: 503",
        "SystemExit: 1",
    ]


@pytest.mark.parametrize("error", [WorldFailed("gone"), MemoryError("no memory")])
def test_failed_periodic_evaluation_leaves_a_resumable_run(error, tmp_path, monkeypatch):
    def fail(judge, agent):
        raise error

    path = tmp_path / "run"
    with monkeypatch.context() as patched:
        patched.setattr(Evaluator, "__call__", fail)
        with pytest.raises(type(error), match=str(error)):
            train(path, evaluate_every=3 * ROUND, evaluate_episodes=2)
    assert saved(path) == 3
    assert rounds(path) == [1, 2, 3]
    sterling.resume(path)
    assert rounds(path) == [1, 2, 3, 4, 5, 6]


def test_training_error_still_saves_a_checkpoint(tmp_path, monkeypatch):
    done, go = [], LogInterval.go

    def fail_late(lap, run, left):
        if len(done) == 4:
            raise RuntimeError("an error of ours")
        done.append(left)
        return go(lap, run, left)

    path = tmp_path / "run"
    with monkeypatch.context() as patched:
        patched.setattr(LogInterval, "go", fail_late)
        with pytest.raises(RuntimeError, match="an error of ours"):
            train(path)
    assert saved(path) == 4
    sterling.resume(path)
    assert rounds(path) == [1, 2, 3, 4, 5, 6]


def test_failed_checkpoint_does_not_hide_the_training_error(tmp_path, monkeypatch, capsys):
    def fail(text):
        def raising(*_, **__):
            raise RuntimeError(text)

        return raising

    monkeypatch.setattr(LogInterval, "go", fail("an error of ours"))
    monkeypatch.setattr(checkpoint, "save", fail("arrays are gone"))
    with pytest.raises(RuntimeError, match="an error of ours"):
        train(tmp_path / "run")
    said = capsys.readouterr().err
    assert "could not be saved either (RuntimeError: arrays are gone" in said


def full(*_, **__):
    raise OSError(errno.ENOSPC, "No space left on device")


@pytest.mark.parametrize("write", ["checkpoint._write", "run_folder.write_result"])
def test_full_disk_at_the_end_leaves_a_resumable_run(write, tmp_path, monkeypatch, capsys):
    path = tmp_path / "run"
    with monkeypatch.context() as patched:
        patched.setattr(f"sterling.training.saving.{write}", full)
        run = train(path, evaluate_episodes=2)
    assert run.result["final"]["return"]["per_seed"]
    assert not (path / "result.json").exists()
    assert f"free disk space, then: sterling resume {path}" in capsys.readouterr().err
    assert sterling.resume(path).result["final"] == run.result["final"]
    assert saved(path) == 6
    assert (path / "curve.png").exists()


def test_full_disk_for_curve_png_gives_one_warning(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("sterling.report.pictures.learning_curve.draw_run_curve", full)
    assert train(tmp_path / "run", 2).result["steps"] == 2 * ROUND
    assert "curve.png was not drawn" in capsys.readouterr().err
    assert (tmp_path / "run" / "result.json").exists()


@pytest.mark.slow
@pytest.mark.parametrize("lacking", ["of a part", "of all"])
def test_full_disk_in_seed_processes_leaves_a_resumable_run(lacking, tmp_path, monkeypatch, capsys):
    path, how = tmp_path / "run", {"strategy": "processes", "seeds": 2}
    with monkeypatch.context() as patched:
        if lacking == "of a part":
            patched.setattr(
                process_launcher, "_run_all", lambda *_: False
            )  # they have ended unsaved
        else:
            patched.setattr(checkpoint, "_write", full)
        with contextlib.suppress(SystemExit):
            train(path, 2, **how)
    assert not (path / "result.json").exists()
    said = capsys.readouterr().err
    assert (
        f"the final policies were not saved: free disk space, then: sterling resume {path}" in said
    )
    assert sterling.resume(path).result["steps"] == 2 * ROUND


LEAVING = """
import sys
from sterling.system.terminal_messages import print_notice, print_progress
sys.stdin.read()  # until the readers have gone
print_progress("saved")
print_notice("saved")
sys.exit(75)
"""


def test_print_progress_and_print_notice_ignore_closed_streams():
    process = subprocess.Popen(
        [sys.executable, "-c", LEAVING],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    for stream in (process.stdout, process.stderr, process.stdin):
        stream.close()
    assert process.wait(60) == 75
