"""A world's channels come out of a run: rows, result, evaluation, comparison; and limit PPO."""

import json

import pytest

import sterling
from sterling.cli_options import parse_command_line
from sterling.commands import evaluate as command
from sterling.envs.native.hazard_grid import make
from sterling.types import Mistake

SMALL = {"length": 16, "minibatch": 64, "epochs": 1, "width": 8, "preset": False}


@pytest.mark.parametrize(  # what processes find is put together in test_processes.py
    "strategy", ["map", pytest.param("processes", marks=pytest.mark.slow)]
)
def test_a_channel_is_in_rows_result_and_evaluation(strategy, tmp_path, capsys):
    folder = tmp_path / "run"
    sterling.train(
        "ppo", "hazards:2x3", steps=1024, envs=8, seeds=2, strategy=strategy, out=folder,
        evaluate_episodes=4, **SMALL,
    )  # fmt: skip
    row = json.loads((folder / "metrics.jsonl").read_text().splitlines()[-1])
    assert len(row["data/cost"]) == 2
    result = json.loads((folder / "result.json").read_text())
    assert result["channels"]["cost"] == {"reduce": "sum", "better": -1, "within": [0.0, 100.0]}
    final = result["final"]["cost"]
    assert (len(final["per_seed"]), final["better"], final["within"]) == (2, -1, [0.0, 100.0])
    capsys.readouterr()
    command.carry_out(parse_command_line(["evaluate", str(folder), "--episodes", "4"]))
    told = [line for line in capsys.readouterr().out.splitlines() if line.startswith("cost")]
    assert len(told) == 1
    assert "interval over 2 seeds" in told[0]


def test_ppo_lagrangian_refuses_a_missing_cost_channel():
    with pytest.raises(Mistake, match=r"no channel 'cost' of one number.*it reports none"):
        sterling.train("ppo-lagrangian", "probe:both", steps=4096, preset=False)


def test_hazard_grid_linear_program_equals_value_iteration_without_a_cost_limit():
    grid = make("3x6")[0]
    best = grid.optimal(1.0 - 1e-9)
    free = float(grid.start @ best.max(1))
    reward, cost = grid.best(100.0)
    assert reward == pytest.approx(free, abs=1e-5)
    greedy = grid.greedy(best)
    visits = grid.visits(greedy, 1.0)
    assert cost == pytest.approx(float((visits * grid.cost).sum()), abs=1e-5)
    limited = grid.best(0.5)
    assert limited[1] == pytest.approx(0.5)
    assert limited[0] < reward
    with pytest.raises(Mistake, match="No policy costs at most 0 here"):
        grid.best(0.0)
