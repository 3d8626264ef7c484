"""train, resume, load: the run folder's contract, seeds that fail, wrong use, seeds apart."""

import json
import os
import signal
import subprocess
import sys
import time

import gymnasium
import jax
import numpy as np
import pytest

import sterling
from sterling import envs
from sterling.training.assembly.run_dataset import say_that_log_is_missing
from sterling.training.config.resolve_settings import resolve_settings
from sterling.training.in_process import picture_speed_lines
from sterling.types import Mistake

SMALL = {"length": 16, "minibatch": 64, "epochs": 2, "width": 16, "preset": False}


def train(steps=1_280, seeds=2, **options):
    return sterling.train(
        "ppo",
        "probe:both",
        steps=steps,
        seeds=seeds,
        **{**SMALL, "evaluate_episodes": 4, **options},
    )


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """A finished run, and its folder."""
    path = tmp_path_factory.mktemp("finished") / "run"
    return train(out=path, log_every=128), path


def test_train_writes_config_metrics_checkpoints_curve_and_result(finished):
    run, path = finished
    assert {"config.json", "metrics.jsonl", "checkpoints", "curve.png", "result.json"} <= {
        file.name for file in path.iterdir()
    }
    result = json.loads((path / "result.json").read_text())
    assert result == run.result
    assert {"algorithm", "environment", "steps", "seeds", "final", "failed_seeds"} <= set(result)
    found = result["steps_per_second"] * result["wall_seconds"]
    assert found == pytest.approx(2 * 1_280, rel=0.01)  # of both seeds
    final = result["final"]["return"]
    assert set(final) >= {"per_seed", "estimate", "low", "high", "method", "level"}
    assert len(final["per_seed"]) == 2
    if len(set(final["per_seed"])) == 1:
        assert (final["low"], final["method"]) == (None, "none (no spread seen)")
    else:
        assert final["low"] <= final["estimate"] <= final["high"]
    config = json.loads((path / "config.json").read_text())
    assert config["config"]["length"] == 16
    assert {"versions", "hardware", "git", "seeds", "strategy", "algorithm"} <= set(config)
    rows = [json.loads(line) for line in (path / "metrics.jsonl").read_text().splitlines()]
    assert [row["step"] for row in rows] == list(range(128, 1_281, 128))
    assert all(len(row["data/return"]) == 2 for row in rows)


def test_loaded_run_has_the_trained_agent_policy_and_result(finished):
    run, path = finished
    loaded = sterling.load(path)
    for one, other in zip(
        jax.tree.leaves(run.agent.state), jax.tree.leaves(loaded.agent.state), strict=True
    ):
        np.testing.assert_array_equal(one, other)
    obs = np.array([1.0], np.float32)
    assert run.policy(obs) == loaded.policy(obs)
    assert loaded.result == run.result
    assert sterling.resume(path).result == run.result


def test_diverged_seeds_are_listed_as_failed_and_training_ends(tmp_path):
    run = train(out=tmp_path / "run", lr=1e30, max_grad_norm=1e30)
    assert run.result["failed_seeds"] == [0, 1]
    assert set(run.result["failures"]) == {"0", "1"}
    assert run.result["final"] == {}
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(run.agent.state.nets))


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"learning_rate": 1e-3}, "no field 'learning_rate'"),
        ({"epochs": 2.5}, "must be of type int"),
        ({"steps": 100}, "Use at least 128"),
        ({"strategy": "pmap"}, "Unknown strategy 'pmap'"),
        ({"seeds": []}, "seeds must be at least one"),
        ({"minibatch": 1000}, "minibatch"),
    ],
)
def test_train_refuses_wrong_arguments_in_one_line_without_a_run_folder(options, words, tmp_path):
    with pytest.raises(Mistake, match=words) as caught:
        train(out=tmp_path / "run", **options)
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "run").exists()


class Reaching(gymnasium.Env):
    """Takes actions of some box."""

    observation_space = gymnasium.spaces.Box(-1.0, 1.0, (1,), np.float32)

    def __init__(self, low, high):
        self.action_space = gymnasium.spaces.Box(low, high, (1,), np.float32)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return np.zeros(1, np.float32), {}

    def step(self, action):
        return np.zeros(1, np.float32), 0.0, True, False, {}


@pytest.mark.parametrize("algorithm", ["sac", "td3"])
@pytest.mark.parametrize(("low", "high"), [(-np.inf, np.inf), (0.0, np.inf), (-1e6, 1e6)])
def test_bounded_algorithms_refuse_an_unbounded_action_box(algorithm, low, high):
    words = (
        rf"{algorithm} acts within bounds, which Box.*lacks. Give --env action_bound=B .*or use ppo"
    )
    how = {"envs": 1, "env_options": {"workers": 0}, "evaluate_episodes": 0, "width": 4}
    with pytest.raises(Mistake, match=words) as caught:
        sterling.train(algorithm, lambda: Reaching(low, high), steps=20, warmup=4, batch=2, **how)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("low", "high", "reached"),
    [
        (-np.inf, np.inf, (-3, 3)),
        (1.0, np.inf, (1, 7)),
        (-np.inf, 5.0, (-1, 5)),
        (-np.inf, 1e6, (-3, 3)),
    ],
)
def test_action_bound_replaces_infinite_limits_of_the_action_box(low, high, reached):
    world = envs.make(lambda: Reaching(low, high), (0,), 1, action_bound=3, workers=0)
    try:
        assert world.spec.action == gymnasium.spaces.Box(-1.0, 1.0, (1,), np.float32)
        ends = [float(world.to_world(np.full((1, 1, 1), x, np.float32))[0, 0, 0]) for x in (-1, 1)]
    finally:
        world.close()
    np.testing.assert_allclose(ends, reached)


def test_sac_acts_within_the_given_action_bound():
    how = {"envs": 1, "env_options": {"workers": 0, "action_bound": 2.0}, "evaluate_episodes": 0}
    run = sterling.train(
        "sac", lambda: Reaching(-np.inf, np.inf), steps=20, warmup=4, batch=2, width=4, **how
    )
    assert abs(float(run.policy(np.zeros(1, np.float32))[0])) <= 2.0


@pytest.mark.parametrize(
    ("bound", "said"), [(0, "must be above 0"), ("x", "must be above 0"), (1, "has no effect")]
)
def test_invalid_or_unneeded_action_bound_is_refused(bound, said):
    with pytest.raises(Mistake, match=said):
        envs.make(lambda: Reaching(-1.0, 1.0 if bound == 1 else np.inf), (0,), 1,
                  action_bound=bound, workers=0)  # fmt: skip


def test_train_refuses_a_folder_that_already_holds_a_run(finished):
    with pytest.raises(Mistake, match="already holds a run"):
        train(out=finished[1])


@pytest.mark.slow
def test_processes_strategy_equals_one_process_training(tmp_path):
    together = train(out=tmp_path / "together")
    apart = train(out=tmp_path / "apart", strategy="processes")
    for one, other in zip(
        jax.tree.leaves(together.agent.state), jax.tree.leaves(apart.agent.state), strict=True
    ):
        np.testing.assert_array_equal(one, other)
    assert together.result["final"] == apart.result["final"]
    logs = [(tmp_path / name / "metrics.jsonl").read_text() for name in ("together", "apart")]
    returns = [[json.loads(line)["data/return"] for line in log.splitlines()] for log in logs]
    assert returns[0] == returns[1]
    assert sterling.load(tmp_path / "apart").result == apart.result


@pytest.mark.slow  # test_signals.py and test_hangup.py hold it
def test_sigterm_saves_a_checkpoint_and_exits_with_code_75(tmp_path):
    program = (
        "import sterling; sterling.train('ppo', 'probe:both', steps=50_000_000, seeds=1, "
        f"out={str(tmp_path / 'run')!r}, log_every=1280, **{SMALL!r})"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", program], env=os.environ, stdout=subprocess.PIPE, text=True
    )
    metrics, deadline = tmp_path / "run" / "metrics.jsonl", time.monotonic() + 120
    while not (metrics.exists() and metrics.read_text()) and time.monotonic() < deadline:
        time.sleep(0.05)
    process.send_signal(signal.SIGTERM)
    said, _ = process.communicate(timeout=60)
    assert process.returncode == 75
    assert f"sterling resume {tmp_path / 'run'}" in said
    assert list((tmp_path / "run" / "checkpoints").glob("*/meta.json"))


@pytest.mark.parametrize(("algorithm", "lines"), [("bc", 1), ("iql", 1), ("sac", 0)])
def test_algorithm_for_datasets_that_gets_none_says_what_it_learns_from(algorithm, lines, capsys):
    say_that_log_is_missing(resolve_settings(algorithm, "Pendulum-v1", steps=20_000))
    said = capsys.readouterr().err
    assert said.count("learns from its own steps in Pendulum-v1 alone") == lines
    assert said.count("\n") == lines


def test_run_with_an_update_for_every_step_says_what_makes_pictures_faster():
    pictures = ["observations camera: picture 64x64x3 -> nature (1,024 features)"]
    settings = resolve_settings("sac", "Pendulum-v1", steps=20_000)
    (line,) = picture_speed_lines(settings, pictures)
    assert "--collect 4 takes four steps" in line
    assert f"--batch {settings.config.batch // 4} " in line
    assert not picture_speed_lines(settings, ["observations: vector of 3 -> MLP"])
    fewer = resolve_settings("sac", "Pendulum-v1", steps=20_000, fields={"collect": 4})
    assert not picture_speed_lines(fewer, pictures)
    assert not picture_speed_lines(resolve_settings("ppo", "Pendulum-v1", steps=20_000), pictures)
