"""Runs of every kind are killed by SIGKILL, resumed, and end as if nobody had killed them.

One kill at a write of a file that is always the same, and one case of the campaign's, of each kind;
benchmarks/reliability/kills.py tries more.
"""

import signal
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks" / "reliability"))
import kills
from kinds import KINDS, outcome

slow = pytest.mark.slow


@pytest.fixture(scope="module")
def log(tmp_path_factory):
    return kills.write_log(tmp_path_factory.mktemp("log") / "log")


@pytest.mark.parametrize(
    "kind", [kind if kind == "ppo" else pytest.param(kind, marks=slow) for kind in KINDS]
)
def test_killed_at_writes_and_resumed_a_run_ends_the_same(kind, tmp_path, log):
    whole, broken = tmp_path / "whole", tmp_path / "broken"
    kills.go_on(kind, whole, log)
    code, _ = kills.finish(kills.start(kind, broken, log, "9"))
    assert code == -signal.SIGKILL
    kills.go_on(kind, broken, log)
    assert outcome(kind, broken) == outcome(kind, whole)


def test_a_write_that_is_counted_is_the_last(tmp_path, log):
    code, _ = kills.finish(kills.start("ppo", tmp_path / "run", log, "1"))
    assert code == -signal.SIGKILL
    assert not (tmp_path / "run" / "config.json").exists()
