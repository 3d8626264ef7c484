"""Runs on trials: the return of each inner episode in their results, and runs of an older form."""

import json

import numpy as np
import pytest

import sterling
from sterling.training.config.resolve_settings import resolve_settings
from sterling.training.config.settings import Settings
from sterling.training.phases.phase_options import parse_phases

SMALL = {"length": 16, "minibatch": 32, "epochs": 1, "width": 8, "preset": False}
COLUMNS = ("inner_return.1", "inner_return.2")


def stored(**options):
    then = parse_phases("steps=1024 environment=trials:3:tabular:chain-8")
    made = resolve_settings(
        "recurrent-ppo", "trials:2:tabular:chain-8", steps=1024, phases=then, env_options=options
    )
    return json.loads(json.dumps(made.to_json()))


def test_new_runs_store_that_trials_show_final_observations():
    plain = stored()
    assert plain["env_options"] == plain["phases"][0]["env_options"] == {"final": True}
    assert Settings.from_json(plain).env_options == {"final": True}
    assert stored(final=False)["env_options"] == {"final": False}


def test_runs_that_do_not_store_it_keep_the_older_trials():
    plain = stored()
    del plain["env_options"], plain["phases"][0]["env_options"]
    settings = Settings.from_json(plain)
    assert settings.env_options == settings.phases[0].env_options == {"final": False}
    elsewhere = Settings.from_json(plain | {"environment": "tabular:chain-8"})
    assert elsewhere.env_options == {}


@pytest.mark.slow
def test_inner_returns_are_in_rows_evaluation_and_result(tmp_path):
    folder = tmp_path / "run"
    sterling.train("recurrent-ppo", "trials:2:tabular:chain-8", steps=2048, envs=4, out=folder,
                   evaluate_episodes=4, **SMALL)  # fmt: skip
    row = json.loads((folder / "metrics.jsonl").read_text().splitlines()[-1])
    result = json.loads((folder / "result.json").read_text())
    for made in (
        [row[f"data/{name}"] for name in (*COLUMNS, "return")],
        [result["final"][name]["per_seed"] for name in (*COLUMNS, "return")],
    ):
        first, second, whole = np.asarray(made, np.float64)
        np.testing.assert_allclose(first + second, whole, rtol=1e-5)
    assert result["channels"][COLUMNS[1]] == {"reduce": "sum", "better": 1, "within": None}
    again = sterling.load(folder).evaluate(4)
    assert set(COLUMNS) <= set(again)


@pytest.mark.slow
def test_older_run_on_trials_is_loaded_evaluated_and_continued(tmp_path):
    folder = tmp_path / "run"
    sterling.train("recurrent-ppo", "trials:2:tabular:chain-8", steps=512, envs=4, out=folder,
                   evaluate_episodes=4, env_options={"final": False}, **SMALL)  # fmt: skip
    path = folder / "config.json"
    plain = json.loads(path.read_text())
    assert plain["env_options"].pop("final") is False
    path.write_text(json.dumps(plain))
    run = sterling.load(folder)
    assert run.evaluate(4)["return"] == run.result["final"]["return"]
    assert sterling.resume(folder, steps=1024).result["steps"] == 1024
