"""A study of a channel of which less is better looks for less of it, and says so."""

import json
from pathlib import Path

import pytest

import sterling.tuning
from sterling.cli import main
from sterling.tuning import trial_objective
from sterling.types import Mistake

CHOICE = f"{Path(__file__).parents[1] / 'contract' / 'choice.py'}:Choice"
HOW = ["--steps", "640", "--trials", "6", "--seeds", "2", "--test-seeds", "3", "--workers", "1"]
HOW += ["--space", "lr=1e-7..0.05:log", "--envs", "4", "--quiet"]
FIXED = {"length": 16, "minibatch": 64, "epochs": 4, "anneal": False, "width": 8}
HOW += [f"--set={name}={value}" for name, value in FIXED.items()]


@pytest.mark.parametrize("aim", ["last", pytest.param("final", marks=pytest.mark.slow)])
def test_study_metric_minimises_a_cost_channel(aim, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    words = ["tune", "ppo", CHOICE, *HOW, "--objective", aim, "--out", "study"]
    assert main([*words, "--metric", "cost", "--failed", "worst"]) == 0
    made = json.loads((tmp_path / "study" / "report.json").read_text())
    lines = [json.loads(line) for line in (tmp_path / "study" / "trials.jsonl").open()]
    costs = {line["trial"]: -sum(line["scores"]) / 2 for line in lines}
    assert all(0.0 <= cost <= 1.0 for cost in costs.values())
    best = made["incumbent"]
    assert best["tuning"]["score"] == pytest.approx(min(costs.values()))
    assert aim == "final" or min(costs.values()) < max(costs.values())
    assert made["metric"] == "cost"
    assert (best["test"]["better"], best["test"]["within"]) == (-1, [0.0, 1.0])
    assert best["test"]["estimate"] < 0.3
    assert made["optimism"] == pytest.approx(best["test"]["estimate"] - best["tuning"]["score"])
    assert "of cost" in (tmp_path / "study" / "report.md").read_text()


def test_study_metric_that_cannot_be_scored_is_refused_before_training(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for metric, said in (("cots", "reports cost, seen. Use return"), ("seen", "does not declare")):
        with pytest.raises(Mistake, match=said):
            sterling.tuning.tune("ppo", CHOICE, steps=8_192, metric=metric)


def test_study_metric_scores_a_diverged_seed_at_the_worst_cost():
    assert trial_objective.worst_return([3.0, None, 1.0, 2.0], better=-1) == 3.0
    assert trial_objective.worst_return([3.0, None, 1.0, 2.0]) == 1.0
    assert trial_objective.worst_return([None]) is None
