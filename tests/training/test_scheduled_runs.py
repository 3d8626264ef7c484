"""Runs whose fields follow schedules: of every kind of algorithm, stopped, extended, in phases."""

from __future__ import annotations

import dataclasses
import json
import shutil
from pathlib import Path

import jax
import jax.numpy as jnp
import logs
import numpy as np
import pytest
from cases import CASES
from stopping import Stop, leaves

import sterling
from sterling.config_class import replace_leaves
from sterling.report.runs.read_runs import read_results
from sterling.report.runs.setting_differences import flat_settings
from sterling.training.assembly.build_run import build_first_phase
from sterling.training.config.resolve_settings import resolve_settings
from sterling.training.config.settings import Settings
from sterling.training.phases.phase_options import parse_phases
from sterling.training.phases.phase_sequence import plan_phases
from sterling.types import Mistake

PPO = {
    **{"preset": False, "envs": 4, "length": 8, "minibatch": 16, "epochs": 1, "width": 8},
    **{"seeds": 2, "log_every": 32, "evaluate_episodes": 0},
}
DQN = {
    **{"preset": False, "envs": 2, "warmup": 16, "capacity": 512, "batch": 8, "width": 8},
    **{"seeds": 1, "evaluate_episodes": 0, "log_every": 8, "collect": 4},
}
HERE = "probe:both"
OFFLINE = {"width": 8, "batch": 8, "seeds": 1, "evaluate_episodes": 0, "log_every": 1}


def half(progress):
    """A schedule of this file: half of the step size in the second half."""
    return jnp.where(progress < 0.5, 1e-3, 5e-4)


def same(one, other):
    for a, b in zip(leaves(one), leaves(other), strict=True):
        np.testing.assert_array_equal(a, b)


def rows(path, name="schedule/lr"):
    """The values of a column, of the first seed."""
    text = (Path(path) / "metrics.jsonl").read_text()
    return [json.loads(line)[name][0] for line in text.splitlines()]


def plain_rows(path):
    text = (Path(path) / "metrics.jsonl").read_text()
    read = [json.loads(line) for line in text.splitlines()]
    return [{k: v for k, v in row.items() if not k.startswith("time/")} for row in read]


def settings_of(algorithm="ppo", **fields):
    small = {"length": 8, "minibatch": 16} if algorithm == "ppo" else {"warmup": 8}
    return resolve_settings(
        algorithm, HERE, steps=320, seeds=1, envs=4, preset=False, fields={**small, **fields}
    )


@pytest.fixture(scope="module")
def annealed(tmp_path_factory):
    """A run of PPO with the learning rate and another field on schedules."""
    path = tmp_path_factory.mktemp("annealed") / "run"
    how = {**PPO, "evaluate_episodes": 1, "steps": 320, "lr": "linear:3e-3:0"}
    how |= {"entropy_coef": "cosine:0.1:0"}
    return path, how, sterling.train("ppo", HERE, out=path, **how)


@pytest.mark.slow
def test_a_linear_schedule_to_zero_is_annealing(capsys):
    scheduled = sterling.train("ppo", HERE, steps=320, lr="linear:3e-3:0", **PPO)
    assert "ppo: lr follows its schedule, and anneal is off" in capsys.readouterr().err
    usual = sterling.train("ppo", HERE, steps=320, lr=3e-3, **PPO)
    nets = [jax.tree.leaves(run.agent.state.nets) for run in (scheduled, usual)]
    for a, b in zip(*nets, strict=True):
        np.testing.assert_array_equal(a, b)
    constant = sterling.train("ppo", HERE, steps=320, lr="constant:3e-3", **PPO)
    assert not np.allclose(jax.tree.leaves(constant.agent.state.nets)[0], nets[0][0])


def test_rows_hold_the_current_values_of_two_schedules_at_once(annealed):
    path, _, _ = annealed
    share = np.arange(10) / 10
    np.testing.assert_allclose(rows(path), 3e-3 * (1 - share), rtol=1e-5)
    wave = 0.05 * (1 + np.cos(np.pi * share))
    np.testing.assert_allclose(rows(path, "schedule/entropy_coef"), wave, rtol=1e-5)
    stored = json.loads((path / "config.json").read_text())
    assert stored["schedules"] == {"lr": "linear:0.003:0", "entropy_coef": "cosine:0.1:0"}
    assert stored["config"]["lr"] == 3e-3
    assert stored["config"]["anneal"] is False
    assert flat_settings(read_results([path])[0][0])["lr"] == "linear:0.003:0"


def test_scheduled_run_resumed_after_a_stop_equals_uninterrupted(annealed, tmp_path):
    path, how, whole = annealed
    with pytest.raises(SystemExit):
        sterling.train("ppo", HERE, out=tmp_path / "cut", sinks=[Stop(4)], **how)
    same(whole, sterling.resume(tmp_path / "cut"))
    assert plain_rows(path) == plain_rows(tmp_path / "cut")


@pytest.mark.slow
def test_scheduled_seed_alone_equals_the_same_seed_among_several(annealed):
    _, how, whole = annealed
    alone = sterling.train("ppo", HERE, **{**how, "seeds": [1]})
    for a, b in zip(leaves(whole), leaves(alone), strict=True):
        np.testing.assert_array_equal(a[1:], b)


def test_vmap_strategy_has_the_same_schedule_values(annealed, tmp_path):
    path, how, _ = annealed
    sterling.train("ppo", HERE, out=tmp_path / "run", strategy="vmap", **how)
    assert rows(tmp_path / "run") == rows(path)


@pytest.mark.slow
def test_processes_strategy_trains_the_same_scheduled_agents(annealed, tmp_path):
    path, how, whole = annealed
    apart = sterling.train("ppo", HERE, out=tmp_path / "run", strategy="processes", **how)
    same(whole, apart)
    assert rows(tmp_path / "run") == rows(path)
    made = sterling.train(
        "ppo", HERE, strategy="processes", **{**how, "lr": lambda p: 1e-3 - p / 1e4}
    )
    assert made.result["failed_seeds"] == []


def test_a_larger_budget_stretches_a_schedule(annealed, tmp_path):
    path = shutil.copytree(annealed[0], tmp_path / "run")
    sterling.resume(path, steps=640)
    share = np.concatenate([np.arange(10) / 10, np.arange(10, 20) / 20])
    np.testing.assert_allclose(rows(path), 3e-3 * (1 - share), rtol=1e-5)
    assert sterling.load(path).result["steps"] == 640


@pytest.mark.slow
def test_update_uses_the_schedule_value_of_its_iteration():
    run = sterling.train("dqn", HERE, steps=176, lr="piecewise:0=1e-3,0.5=0,1=0", **DQN)
    short = sterling.train("dqn", HERE, steps=176, lr="piecewise:0=1e-3,0.5=0,0.51=0", **DQN)
    same(run, short)  # after half of the run nothing is learned
    more = sterling.train("dqn", HERE, steps=176, lr="piecewise:0=1e-3,0.5=0,1=1e-3", **DQN)
    assert not np.allclose(leaves(run)[0], leaves(more)[0])


def test_exploration_uses_the_schedule_value_of_its_iteration(tmp_path):
    always = {**DQN, "exploration_initial": 1.0, "exploration_final": "linear:1:0"}
    sterling.train("dqn", HERE, steps=176, out=tmp_path / "run", exploration_fraction=0.0, **always)
    np.testing.assert_allclose(
        rows(tmp_path / "run", "policy/epsilon"),
        rows(tmp_path / "run", "schedule/exploration_final"),
        rtol=1e-5,
    )


def test_schedule_file_steps_count_from_the_start_of_the_run(tmp_path):
    (tmp_path / "lr.csv").write_text("step,value\n16,1e-3\n96,0\n")  # 16 steps of warm-up
    sterling.train("dqn", HERE, steps=176, lr=str(tmp_path / "lr.csv"), out=tmp_path / "run", **DQN)
    steps = np.arange(16, 176, 8)
    wanted = 1e-3 * np.clip(1 - (steps - 16) / 80, 0, 1)
    np.testing.assert_allclose(rows(tmp_path / "run"), wanted, atol=1e-9)
    (tmp_path / "lr.csv").unlink()
    assert sterling.resume(tmp_path / "run", steps=184).result["steps"] == 184
    np.testing.assert_allclose(rows(tmp_path / "run"), [*wanted, 0.0], atol=1e-9)


def test_a_schedule_runs_over_the_phases_that_do_not_set_its_field():
    settings = settings_of(lr="linear:1:0", clip="linear:0.2:0.1")
    phases = parse_phases(["steps=320 epochs=3", "steps=320 lr=linear:0.5:0", "steps=320 lr=0.25"])
    parts = plan_phases(dataclasses.replace(settings, phases=phases))
    spans = [{n: (s.begin, s.end) for n, s in part.schedules.items()} for part in parts]
    first, each = {"lr": (0, 20), "clip": (0, 40)}, {"clip": (0, 40)}
    assert spans == [first, first, {"lr": (20, 30), **each}, each]
    assert [part.settings.config.lr for part in parts] == [1.0, 1.0, 0.5, 0.25]
    assert [part.settings.config.anneal for part in parts] == [False] * 4


@pytest.mark.parametrize("at", [3, pytest.param(6, marks=pytest.mark.slow)])
def test_phase_schedules_resumed_after_a_stop_equal_uninterrupted(at, tmp_path):
    how = {**PPO, "seeds": 1, "steps": 128, "lr": "linear:1e-3:0"}
    how["then"] = "steps=128 lr=linear:1e-4:0 target_kl=linear:1:0.1"
    whole = sterling.train("ppo", HERE, out=tmp_path / "whole", **how)
    np.testing.assert_allclose(
        rows(tmp_path / "whole"),
        [*(1e-3 * (1 - np.arange(4) / 4)), *(1e-4 * (1 - np.arange(4) / 4))],
    )
    with pytest.raises(SystemExit):
        sterling.train("ppo", HERE, out=tmp_path / "cut", sinks=[Stop(at)], **how)
    same(whole, sterling.resume(tmp_path / "cut"))
    assert plain_rows(tmp_path / "whole") == plain_rows(tmp_path / "cut")
    same(whole, sterling.load(tmp_path / "cut"))


def test_optional_config_field_may_follow_a_schedule(tmp_path):
    how = {**PPO, "seeds": 1, "steps": 128, "epochs": 4, "lr": 0.03}
    tight = sterling.train("ppo", HERE, target_kl="linear:1e-9:1e-9", out=tmp_path / "run", **how)
    same_nets = sterling.train("ppo", HERE, target_kl=1e-9, **how).agent.state.nets
    for a, b in zip(
        jax.tree.leaves(tight.agent.state.nets), jax.tree.leaves(same_nets), strict=True
    ):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-7)  # programs round differently
    assert rows(tmp_path / "run", "schedule/target_kl") == [pytest.approx(1e-9)] * 4
    loaded = sterling.load(tmp_path / "run")
    same(tight, loaded)


def test_config_with_an_optional_leaf_is_a_pytree():
    config = settings_of(target_kl=0.1).config
    made = replace_leaves(config, {"target_kl": jnp.float32(0.5), "lr": jnp.float32(1.0)})
    assert len(jax.tree.leaves(made)) == len(jax.tree.leaves(config)) + 1
    doubled = jax.jit(lambda tree: jax.tree.map(lambda x: 2 * x, tree))(made)
    assert (float(doubled.target_kl), float(doubled.lr)) == (1.0, 2.0)
    assert doubled.epochs == config.epochs
    assert config.target_kl == 0.1
    assert jax.tree.structure(made) != jax.tree.structure(config)


@pytest.mark.slow
def test_schedule_of_the_online_phase_after_a_dataset(tmp_path):
    data = tmp_path / "log"
    logs.write("both-continuous", False, data.parent)
    how = {**OFFLINE, "data": str(data.parent / "both-continuous"), "updates": 4, "steps": 20}
    how |= {"envs": 4, "warmup": 8, "tune_alpha": True, "out": tmp_path / "run"}
    sterling.train("sac", "probe:both-continuous", lr="linear:8e-3:1e-3", **how)
    np.testing.assert_allclose(rows(tmp_path / "run"), 1e-3 * (8 - np.arange(7)), rtol=1e-5)
    how["out"] = tmp_path / "own"
    run = sterling.train("sac", "probe:both-continuous", online={"lr": "linear:3e-3:0"}, **how)
    assert run.settings.online == {"lr": "linear:0.003:0"}
    text = (tmp_path / "own" / "metrics.jsonl").read_text().splitlines()
    held = [json.loads(line).get("schedule/lr") for line in text]
    assert held[:4] == [None] * 4
    np.testing.assert_allclose([x[0] for x in held[4:]], [3e-3, 2e-3, 1e-3], rtol=1e-5)


@pytest.mark.slow
def test_language_model_training_follows_a_schedule(tmp_path, one_layer):
    how = {"model": "nano", "updates": 4, "evaluate_episodes": 0, "batch": 2, "log_every": 1}
    sterling.train("sft", "reverse-text", lr="linear:1e-3:2e-4", out=tmp_path / "run", **how)
    np.testing.assert_allclose(rows(tmp_path / "run"), [1e-3, 8e-4, 6e-4, 4e-4], rtol=1e-5)
    assert sterling.load(tmp_path / "run").result["updates"] == 4


@pytest.mark.slow
def test_host_environment_run_follows_a_schedule(tmp_path):
    how = {**PPO, "seeds": 1, "steps": 64, "out": tmp_path / "run"}
    sterling.train("ppo", "gymnasium:CartPole-v1", lr="cosine:1e-3:0", **how)
    np.testing.assert_allclose(rows(tmp_path / "run"), [1e-3, 5e-4], rtol=1e-5)


def test_schedule_function_must_be_passed_again_on_resume(tmp_path, capsys):
    how = {**PPO, "seeds": 1, "steps": 128}
    function = lambda progress: 1e-3 * (1 - progress)  # noqa: E731
    whole = sterling.train("ppo", HERE, lr=function, out=tmp_path / "run", **how)
    assert "pass it again to sterling.resume (schedules={'lr': ...})" in capsys.readouterr().err
    same(whole, sterling.load(tmp_path / "run"))
    with pytest.raises(Mistake, match=r"lr was the function .* which is not stored"):
        sterling.resume(tmp_path / "run", steps=160)
    more = sterling.resume(tmp_path / "run", steps=160, schedules={"lr": function})
    assert more.result["steps"] == 160
    assert rows(tmp_path / "run")[-1] == pytest.approx(1e-3 * 0.2, rel=1e-5)
    with pytest.raises(Mistake, match="leave out clip"):
        sterling.resume(tmp_path / "run", schedules={"clip": function})


def test_schedule_function_of_a_file_is_stored_by_name(tmp_path):
    settings = settings_of(lr=half)
    assert settings.to_json()["schedules"]["lr"].endswith("test_scheduled_runs.py:half")
    again = Settings.from_json(json.loads(json.dumps(settings.to_json())))
    assert [float(again.schedules["lr"](jnp.float32(x))) for x in (0.0, 0.5)] == [
        pytest.approx(1e-3), pytest.approx(5e-4)
    ]  # fmt: skip
    (tmp_path / "mine.py").write_text("def falling(progress):\n    return 1e-3 * (1 - progress)\n")
    assert settings_of(lr=f"{tmp_path}/mine.py:falling").config.lr == pytest.approx(1e-3)


@pytest.mark.parametrize(
    ("algorithm", "fields", "words"),
    [
        (
            "ppo",
            {"lr": "linear:1e-3:-1e-3"},
            "lr must be 0 or more; got -0.001 at progress 1",
        ),
        ("ppo", {"gamma": "linear:1.5:0.9"}, "field gamma must be between 0 and 1; got 1.5"),
        ("ppo", {"gamma": lambda p: 0.5 + p}, "field gamma must be between 0 and 1; got 1.00.* at"),
        (
            "ppo",
            {"lr": lambda progress: None},
            "one number, the progress, that JAX can trace",
        ),
        ("ppo", {"lr": "fast"}, "lr: 'fast' is neither a number nor a schedule"),
        ("ppo", {"epochs": "linear:1:5"}, "field epochs is a whole number; only float fields"),
        ("ppo", {"anneal": "linear:1:5"}, "field anneal is a switch; only float fields"),
        ("ppo", {"lr": "linear:1e-3:0", "anneal": True}, "anneal would multiply it by another"),
        ("ppo", {"lrr": "linear:1e-3:0"}, "ppo has no field 'lrr'"),
        ("dqn", {"n_step": 3, "gamma": "linear:0.9:0.99"}, "dqn makes its batches with gamma"),
        ("dqn", {"priority": "linear:0.6:0.4"}, "dqn makes its batches with priority"),
        ("ppo", {"lr": "piecewise:updates:0=1,9=0"}, "counts updates, of which a phase has none"),
    ],
)
def test_config_fields_refuse_unsuitable_schedules(algorithm, fields, words):
    with pytest.raises(Mistake, match=words):
        settings_of(algorithm, **fields)


def test_a_field_that_training_does_not_read_has_no_schedule():
    with pytest.raises(Mistake, match="ppo does not read log_std while it trains"):
        sterling.train("ppo", HERE, steps=64, log_std="linear:0:-1", **PPO)


def test_a_stored_schedule_is_checked():
    plain = json.loads(json.dumps(settings_of(lr="linear:1e-3:0").to_json()))
    for wrong, words in ((5, "a schedule must be words"), ("linear:-1:0", "must be 0 or more")):
        with pytest.raises(Mistake, match=words):
            Settings.from_json({**plain, "schedules": {"lr": wrong}})
    with pytest.raises(Mistake, match="ppo has no field 'speed'"):
        Settings.from_json({**plain, "schedules": {"speed": "linear:1:0"}})
    del plain["schedules"]  # of a run that was stored before there were schedules
    assert Settings.from_json(plain).schedules == {}


def test_without_a_schedule_the_agents_are_the_same_tree():
    agent = build_first_phase(settings_of()).agent
    assert agent.schedules is None
    assert agent.at_iteration(jnp.int32(0)) is agent


@pytest.fixture(scope="module")
def written_logs(tmp_path_factory):
    """Where logs of probe worlds lie, written when they are first asked for."""
    return tmp_path_factory.mktemp("logs")


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in CASES if name != "cma-es"])  # it has no lr
def test_every_algorithm_learns_with_a_schedule(name, tmp_path, written_logs):
    case = CASES[name]
    world = f"{case.kind}{case.spaces[-1]}"
    own = {name: value for name, value in case.fields.items() if name != "anneal"}
    fields = {**own, "lr": "linear:3e-3:1e-3"}
    iterations = 128 if case.taught else 64  # the teacher takes the first 64
    budget = case.budget(world, iterations * case.envs, written_logs)
    run = sterling.train(
        *(name, f"probe:{world}"), **budget, envs=case.envs, seeds=1, preset=False,
        evaluate_episodes=0, out=tmp_path / "run", log_every=1, **fields,
    )  # fmt: skip
    found = rows(tmp_path / "run")
    assert found[0] == pytest.approx(3e-3)
    assert found == sorted(found, reverse=True)
    assert found[-1] < 2.9e-3 or len(found) == 1
    same(sterling.load(tmp_path / "run"), run)
