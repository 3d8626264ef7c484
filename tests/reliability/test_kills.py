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
def test_run_killed_by_sigkill_at_a_write_resumes_identically(kind, tmp_path, log):
    whole, broken = tmp_path / "whole", tmp_path / "broken"
    kills.go_on(kind, whole, log)
    code, _ = kills.finish(kills.start(kind, broken, log, "9"))
    assert code == -signal.SIGKILL
    kills.go_on(kind, broken, log)
    assert outcome(kind, broken) == outcome(kind, whole)


def test_kill_at_the_first_write_leaves_no_config_json(tmp_path, log):
    code, _ = kills.finish(kills.start("ppo", tmp_path / "run", log, "1"))
    assert code == -signal.SIGKILL
    assert not (tmp_path / "run" / "config.json").exists()
