"""A larger budget: the run goes on as one that was begun with it."""

import json
import shutil

import jax
import logs
import numpy as np
import pytest

import sterling
from sterling.cli import main
from sterling.training.assembly.run_dataset import make_log_settings
from sterling.training.config.extend_budget import extend_budget
from sterling.training.config.resolve_settings import resolve_settings
from sterling.training.config.stored_settings import read_settings
from sterling.training.saving import run_folder
from sterling.types import Mistake

PPO = {"length": 16, "minibatch": 64, "epochs": 2, "width": 16, "anneal": False}
DQN = {"width": 16, "batch": 8, "warmup": 32, "collect": 4, "learn": 1, "capacity": 512}
HOW = {"seeds": 2, "preset": False, "evaluate_episodes": 4}


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """The folder of a finished run, to be copied."""
    path = tmp_path_factory.mktemp("finished") / "run"
    sterling.train("ppo", "probe:both", steps=1_280, out=path, **PPO, **HOW)
    return path


def state(run):
    return [np.asarray(leaf) for leaf in jax.tree.leaves(run.agent.state)]


def assert_equal(one, other):
    for mine, theirs in zip(state(one), state(other), strict=True):
        np.testing.assert_array_equal(mine, theirs)
    assert one.result["final"] == other.result["final"]


@pytest.mark.parametrize("strategy", ["map", pytest.param("processes", marks=pytest.mark.slow)])
def test_extended_run_equals_a_run_with_the_larger_budget(tmp_path, strategy):
    asked = {**PPO, **HOW, "strategy": strategy}
    whole = sterling.train("ppo", "probe:both", steps=2_560, **asked)
    short = sterling.train("ppo", "probe:both", steps=1_280, out=tmp_path / "run", **asked)
    assert short.result["steps"] == 1_280
    longer = sterling.resume(tmp_path / "run", steps=2_560)
    assert longer.result["steps"] == 2_560
    assert_equal(longer, whole)
    config = json.loads((tmp_path / "run" / "config.json").read_text())
    assert config["steps"] == 2_560
    assert config["earlier"] == [{"steps": 1_280, "updates": 0}]
    rows = (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()
    steps = [json.loads(row)["step"] for row in rows]
    assert steps == sorted(set(steps))
    assert steps[-1] == 2_560
    assert sterling.resume(tmp_path / "run").result == longer.result  # finished again


@pytest.mark.slow
def test_schedules_run_over_the_larger_budget(tmp_path):
    sterling.train("dqn", "probe:both", steps=96, out=tmp_path / "run", **DQN, **HOW)
    longer = sterling.resume(tmp_path / "run", steps=160)
    whole = sterling.train("dqn", "probe:both", steps=160, **DQN, **HOW)
    np.testing.assert_array_equal(longer.agent.state.planned, whole.agent.state.planned)
    np.testing.assert_array_equal(longer.agent.state.updates, whole.agent.state.updates)


@pytest.mark.slow
def test_extended_run_grows_its_replay_buffer(tmp_path):
    sac = {"width": 16, "batch": 8, "warmup": 32, "collect": 4, "priority": 0.5}
    asked = {"environment": "probe:both-continuous", **sac, **HOW}
    short = sterling.train("sac", steps=160, out=tmp_path / "run", **asked)
    longer = sterling.resume(tmp_path / "run", steps=640)
    whole = sterling.train("sac", steps=640, **asked)
    for mine, theirs in zip(state(longer), state(whole), strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=1e-4, atol=1e-6)  # of another program
    assert short.result["final"] != longer.result["final"]


@pytest.mark.parametrize(
    ("words", "answer"),
    [
        ("--steps 1280", "this run already has 1,280 steps. Ask for more"),
        ("--steps 640", "this run already has 1,280 steps. Ask for more"),
        ("--updates 9", "this run has 1,280 steps, not updates. Extend its steps"),
    ],
)
def test_impossible_budget_extension_is_refused_and_leaves_the_run_folder(
    finished, tmp_path, capsys, words, answer
):
    path = shutil.copytree(finished, tmp_path / "run")
    before = {file.name: file.read_bytes() for file in path.iterdir() if file.is_file()}
    assert main(["resume", str(path), *words.split()]) == 2
    assert capsys.readouterr().err.strip().removeprefix("sterling: ").startswith(answer)
    assert {file.name: file.read_bytes() for file in path.iterdir() if file.is_file()} == before


def test_larger_budget_may_be_given_again_after_an_interrupted_resume(finished, tmp_path):
    path = shutil.copytree(finished, tmp_path / "run")
    longer = extend_budget(path, read_settings(path), steps=1_920)
    assert extend_budget(path, longer, steps=1_920) == longer
    assert json.loads((path / "config.json").read_text())["steps"] == 1_920
    with pytest.raises(Mistake, match="already has 1,920 steps"):
        extend_budget(path, longer, steps=1_280)


def test_resume_command_extends_a_finished_run(finished, tmp_path, capsys):
    path = shutil.copytree(finished, tmp_path / "run")
    assert main(["resume", str(path), "--steps", "1_920", "--quiet"]) == 0
    assert json.loads((path / "result.json").read_text())["steps"] == 1_920


@pytest.mark.slow
def test_offline_run_is_extended_by_updates(tmp_path):
    log = logs.write("both-continuous", False, tmp_path)
    how = {
        "environment": "probe:both-continuous",
        "data": log,
        "width": 16,
        "batch": 8,
        "anneal": False,
        "evaluate_episodes": 4,
    }
    whole = sterling.train("iql", updates=16, **how)
    sterling.train("iql", updates=8, out=tmp_path / "run", **how)
    assert_equal(sterling.resume(tmp_path / "run", updates=16), whole)


@pytest.mark.slow
def test_offline_to_online_run_is_extended_by_steps_only(tmp_path):
    how = {"environment": "probe:both-continuous", "width": 16, "batch": 8, "anneal": False}
    how |= {"data": logs.write("both-continuous", False, tmp_path), "evaluate_episodes": 4}
    run = tmp_path / "run"
    whole = sterling.train("iql", updates=4, steps=128, **how)
    sterling.train("iql", updates=4, steps=64, out=run, **how)
    with pytest.raises(Mistake, match="Extend its steps instead"):
        sterling.resume(run, updates=8)
    assert_equal(sterling.resume(run, steps=128), whole)


def test_unfinished_run_budget_can_be_extended(tmp_path):
    settings = resolve_settings("ppo", "probe:both", steps=2_560, seeds=2)
    run_folder.write_config(tmp_path, settings.to_json())
    more = extend_budget(tmp_path, settings, steps=5_120, updates=None)
    assert extend_budget(tmp_path, more, steps=7_680).steps == 7_680
    config = run_folder.read_config(tmp_path)
    assert config["steps"] == 7_680
    assert [each["steps"] for each in config["earlier"]] == [2_560, 5_120]


LOGGED = {"environment": "probe:both-continuous", "width": 16, "batch": 8, "anneal": False}
LOGGED |= {"evaluate_episodes": 4}


@pytest.fixture(name="offline", scope="module")
def _offline(tmp_path_factory):
    """The folder of a finished run that learned from a log alone, and its log."""
    root = tmp_path_factory.mktemp("offline")
    log = logs.write("both-continuous", False, root)
    sterling.train("iql", updates=4, data=log, out=root / "run", **LOGGED)
    return root / "run", log


@pytest.mark.parametrize("words", ["", "--environment probe:both-continuous"])
@pytest.mark.slow
def test_offline_run_extended_online_equals_an_offline_to_online_run(offline, tmp_path, words):
    finished, log = offline
    path = shutil.copytree(finished, tmp_path / "run")
    assert main(["resume", str(path), "--steps", "64", "--quiet", *words.split()]) == 0
    whole = sterling.train("iql", updates=4, steps=64, data=log, **LOGGED)
    longer = sterling.load(path)
    assert_equal(longer, whole)
    assert longer.result["switch"] == whole.result["switch"]
    config = json.loads((path / "config.json").read_text())
    assert (config["updates"], config["steps"], config["phases"]) == (4, 64, [])
    assert config["earlier"] == [{"steps": 0, "updates": 4}]


@pytest.mark.slow
def test_offline_run_is_extended_online_in_another_environment(offline, tmp_path):
    finished, log = offline
    path = shutil.copytree(finished, tmp_path / "run")
    longer = sterling.resume(path, steps=64, environment="probe:action-continuous")
    then = {"steps": 64, "environment": "probe:action-continuous", "data": log}
    whole = sterling.train("iql", updates=4, data=log, then=then, **LOGGED)
    assert_equal(longer, whole)
    assert longer.settings.data is not None
    assert [each["steps"] for each in longer.result["phases"]] == [0, 64]


@pytest.mark.parametrize(
    ("words", "answer"),
    [
        ("--environment probe:both-continuous", "--environment needs --steps N"),
        ("--updates 2", "this run already has 4 updates"),
    ],
)
def test_invalid_extension_of_an_offline_run_is_refused(offline, capsys, words, answer):
    assert main(["resume", str(offline[0]), *words.split()]) == 2
    assert answer in capsys.readouterr().err


def test_offline_run_in_dataset_units_refuses_an_online_extension(tmp_path):
    log = logs.write("both-continuous", False, tmp_path)
    spaces = {
        "obs": {"type": "Box", "low": [-1.0], "high": [1.0], "shape": [1], "dtype": "float32"}
    }
    spaces["action"] = spaces["obs"]
    settings = resolve_settings("iql", "", updates=4, evaluate_episodes=0, spaces=spaces,
                                data=make_log_settings(log))  # fmt: skip
    with pytest.raises(Mistake, match="its agents act between the smallest and the largest"):
        extend_budget(tmp_path, settings, environment="Pendulum-v1", steps=64)
