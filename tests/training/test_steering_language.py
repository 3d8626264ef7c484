"""Language models are steered like all runs; the option for slow scenes has a name of its own."""

from __future__ import annotations

import json

import jax
import numpy as np
import pytest
from letters import Letters

import sterling
from sterling import cli
from sterling.report.runs.read_runs import read_results
from sterling.report.runs.setting_differences import flat_settings
from sterling.training.config.stored_settings import read_settings
from sterling.types import Mistake

SFT = {"model": "nano", "context": 12, "slots": 32, "examples": 64, "limit": 5, "batch": 16}
SFT |= {"lr": 3e-3, "rise": 2, "seeds": 2, "evaluate_episodes": 8}


@pytest.fixture(name="run", scope="module")
def _run(tmp_path_factory):
    from sterling.language.models.causal_lm import MODEL_SIZES

    whole, MODEL_SIZES["nano"] = MODEL_SIZES["nano"], (16, 1, 2, 1)  # one layer compiles sooner
    path, returns = tmp_path_factory.mktemp("steered") / "run", []

    class Watch:
        def on_evaluation(self, event):
            event.log({"my/update": event.update})
            returns.append((event.update, event.scores["return"]))

    how = {"keep": "best", "patience": 2, "evaluate_every": 2, "log_every": 2}
    yield (
        sterling.train("sft", Letters, updates=20, out=path, callbacks=[Watch()], **SFT, **how),
        path,
        returns,
    )
    MODEL_SIZES["nano"] = whole


def test_language_run_supports_callbacks_patience_and_keep_best(run):
    run, path, returns = run
    means = [np.mean(scores) for _, scores in returns]
    ends = run.result["updates"]
    assert [update for update, _ in returns] == list(range(2, ends + 1, 2))
    if ends < 20:
        assert run.result["stopped"]["by"] == "patience"
        assert max(means[-2:]) <= max(means[:-2])
    lines = (path / "metrics.jsonl").read_text().splitlines()
    assert json.loads(lines[0])["my/update"] == [2.0, 2.0]
    chosen = np.array([scores for _, scores in returns]).max(0)
    assert run.result["best"]["chosen_return"] == chosen.tolist()
    loaded = sterling.load(path, environment=Letters)
    for one, other in zip(
        jax.tree.leaves(run.best.agent.state),
        jax.tree.leaves(loaded.best.agent.state),
        strict=True,
    ):
        np.testing.assert_array_equal(one, other)
    assert loaded.best.language_model(1)[0] is not None


def test_language_run_config_with_old_patience_field_still_loads(run, tmp_path):
    _, path, _ = run
    config = json.loads((path / "config.json").read_text())
    assert config["speech"].pop("scene_seconds") == 10.0
    for name in ("stop_at", "patience", "time_budget", "keep", "continued_from"):
        del config[name]
    config["speech"]["patience"] = 7.0
    (tmp_path / "config.json").write_text(json.dumps(config))
    settings = read_settings(tmp_path, environment=Letters)
    assert (settings.speech.scene_seconds, settings.patience, settings.keep) == (7.0, 0, "")
    (result,), _ = read_results([tmp_path])
    assert flat_settings(result)["speech.scene_seconds"] == 7.0


def test_scene_seconds_is_an_option_and_patience_counts_evaluations(capsys):
    with pytest.raises(Mistake, match="scene_seconds must be above 0; got 0"):
        sterling.train("sft", Letters, updates=2, scene_seconds=0.0, **SFT)
    words = ["train", "sft", "reverse-text", "--updates", "2", "--patience", "0.5"]
    with pytest.raises(SystemExit):
        cli.main(words)
    assert "'0.5' is not a whole number" in capsys.readouterr().err
    assert cli.main([*words[:-2], "--scene-seconds", "-1"]) == 2
    assert "--scene-seconds must be above 0" in capsys.readouterr().err
