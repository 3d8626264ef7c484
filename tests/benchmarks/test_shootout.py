"""The shoot-out asks for algorithms that there are, and its page says what its runs are worth."""

import json
import sys
from pathlib import Path

import pytest

from sterling.algorithms import ALGORITHMS

sys.path.append(str(Path(__file__).parents[2]))
from benchmarks.shootout import page, run

RETURNS = {"slow": [1.0, 2.0, 3.0, 4.0, 5.0], "fast": [11.0, 12.0, 13.0, 14.0, 15.0]}
CONTEST = {"environment": "Mine-v0", "steps": 100, "seconds": 6, "seeds": 5}
CONTEST["algorithms"] = [*RETURNS, "later"]


@pytest.fixture
def results(tmp_path, monkeypatch):
    monkeypatch.setattr(page, "ROOT", tmp_path)
    monkeypatch.setattr(page, "RESULTS", tmp_path / "results")
    for name, returns in RETURNS.items():
        path = tmp_path / name
        path.mkdir()
        final = {"return": {"per_seed": returns, "estimate": 0.0, "low": None, "high": None}}
        config = {"algorithm": name, "environment": "Mine-v0", "seeds": [0, 1, 2, 3, 4]}
        result = config | {"steps": 100, "final": final, "failed_seeds": []}
        result |= {"wall_seconds": 5.0, "compile_seconds": 2.0, "steps_per_second": 33.0}
        rows = [{"step": at, "data/return": returns, "loss/policy": 0.1} for at in range(1, 301)]
        (path / "config.json").write_text(json.dumps(config))
        (path / "result.json").write_text(json.dumps(result))
        (path / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
        run.keep(path, page.result_file(CONTEST, "steps", name), {}, busy=name == "slow")
    return tmp_path / "results"


def test_shootout_contests_name_listed_algorithms_once():
    for contest in page.contests():
        assert set(contest["algorithms"]) <= set(ALGORITHMS)
        assert len(set(contest["algorithms"])) == len(contest["algorithms"])


def test_shootout_page_ranks_algorithms_and_lists_missing_runs(results):
    made, lacking = page.sections(CONTEST)
    assert len(made) == 1
    rows = [line for line in made[0].splitlines() if line.startswith(("| fast", "| slow"))]
    assert rows[0].startswith("| fast | 13.00")
    assert rows[0].endswith("| 100 | 33 | slow |")
    assert rows[1].endswith("| 100 | busy machine | - |")
    assert (results / "Mine-v0" / "steps" / "curves.png").stat().st_size > 1_000
    assert lacking == [
        "Mine-v0, equal steps, 100 a seed: later",
        "Mine-v0, equal time, 6 seconds for 5 seeds: slow, fast, later",
    ]


def test_shootout_equal_time_excludes_compilation(results):
    assert run.steps_in_time(CONTEST, "fast") == 200  # 100 steps in 3 of the 5 seconds


def test_shootout_metric_logs_are_thinned_keeping_the_last_row(results):
    rows = page.read(results / "Mine-v0" / "steps" / "fast.json")["log"]
    assert len(rows) <= run.ROWS + 1
    assert rows[-1]["step"] == 300
    assert set(rows[0]) == {"step", "data/return"}
