"""Runs of several phases: worlds and logs one after another, with the same agents."""

from __future__ import annotations

import dataclasses
import json

import jax
import logs
import numpy as np
import pytest
from stopping import Stop

import sterling
from sterling import cli
from sterling.envs.native.classic_control import CartPole
from sterling.training.assembly import run_dataset
from sterling.training.assembly.build_run import build_first_phase
from sterling.training.config.resolve_settings import resolve_settings
from sterling.training.config.run_options import Phase
from sterling.training.config.settings import Settings
from sterling.training.phases import phase_change, phase_sequence
from sterling.training.phases.phase_sequence import saved_phase
from sterling.training.saving.checkpoint_meta import is_run_meta
from sterling.types import Mistake

PPO = {
    **{"preset": False, "envs": 4, "length": 8, "minibatch": 16, "epochs": 1, "width": 8},
    **{"anneal": False, "seeds": 2, "log_every": 64},
}
DQN = {
    **{"preset": False, "envs": 2, "warmup": 16, "capacity": 512, "batch": 8, "width": 8},
    **{"seeds": 1, "evaluate_episodes": 0, "log_every": 64},
}
HERE = "CartPole-v1"
CONTINUOUS = "probe:both-continuous"


class Heavy(CartPole):
    """A pole of twice the length."""

    half_length = 1.0


def same(one, other):
    for a, b in zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize(
    ("algorithm", "fields"), [pytest.param("ppo", PPO, marks=pytest.mark.slow), ("dqn", DQN)]
)
def test_phase_without_changes_equals_one_longer_phase(algorithm, fields):
    """World, replay, counters and randomness go over: two halves are one whole, bit for bit."""
    fields = fields | {"evaluate_episodes": 0}
    whole = sterling.train(algorithm, HERE, steps=256, **fields)
    halves = sterling.train(algorithm, HERE, steps=128, then="steps=128", **fields)
    assert halves.result["steps"] == whole.result["steps"] == 256
    same(whole.agent.state, halves.agent.state)


def test_fields_change_with_a_phase():
    fields = PPO | {"evaluate_episodes": 0, "seeds": 1}
    first = sterling.train("ppo", HERE, steps=128, **fields)
    both = sterling.train(
        "ppo", HERE, steps=128, then=["steps=64 lr=0.0", {"steps": 64, "epochs": 3}], **fields
    )
    same(first.agent.state.nets, both.agent.state.nets)
    config = both.agent.state.config
    assert (float(config.lr[0]), config.epochs, both.settings.config.epochs) == (0.0, 3, 3)


def test_phase_change_of_n_step_keeps_the_replay_buffer():
    settings = resolve_settings(
        "dqn", HERE, steps=128, seeds=1, envs=2, preset=False,
        fields={"warmup": 16, "capacity": 512, "batch": 8, "width": 8},
        phases=(Phase(steps=64, fields={"n_step": 3}),),
    )  # fmt: skip
    before = build_first_phase(settings)
    after = phase_change.enter_phase(phase_sequence.plan_phases(settings)[1], before)
    assert (before.source.needs.feeds[0].n_step, after.source.needs.feeds[0].n_step) == (1, 3)
    same(before.source.ring, after.source.ring)
    same(before.source.source.obs, after.source.source.obs)


@pytest.fixture(name="data", scope="module")
def _data(tmp_path_factory):
    return logs.write("both-continuous", False, tmp_path_factory.mktemp("logs"))


@pytest.mark.slow
def test_offline_to_online_run_has_two_phases(data):
    fields = {"width": 16, "batch": 8, "warmup": 16, "envs": 4, "evaluate_episodes": 2}
    how = {"data": data, "updates": 20, "share": 0.25, **fields}
    short = sterling.train("td3bc", CONTINUOUS, steps=64, online={"alpha": 7.0}, **how)
    long = sterling.train("td3bc", CONTINUOUS, then="steps=64 alpha=7.0", **how)
    same(short.agent.state, long.agent.state)
    assert (short.result["steps"], short.result["updates"]) == (64, 32)
    assert [(each["steps"], each["updates"]) for each in long.result["phases"]] == [
        (0, 20),
        (64, 12),
    ]


def test_phase_change_of_n_step_keeps_dataset_and_replay(data):
    settings = resolve_settings(
        "sac", CONTINUOUS, data=run_dataset.make_log_settings(data), steps=64, envs=4,
        augment="gaussian:0.001",
        fields={"width": 16, "batch": 8, "warmup": 16},
        phases=(Phase(steps=32, fields={"n_step": 3}),),
    )  # fmt: skip
    before = build_first_phase(settings)
    after = phase_change.enter_phase(phase_sequence.plan_phases(settings)[1], before)
    logged, lived = after.source.source.sources  # the mixture, inside the change of batches
    assert [each.needs.feeds[0].n_step for each in (logged, lived)] == [3, 3]
    same(before.source.source.sources[1].ring, lived.ring)


@pytest.mark.slow
def test_phases_go_from_environment_to_dataset_and_back(data):
    fields = {"width": 16, "batch": 8, "warmup": 16, "envs": 4, "evaluate_episodes": 2}
    then = [f"updates=12 data={data}", "steps=32", f"steps=32 environment={CONTINUOUS}"]
    run = sterling.train("sac", CONTINUOUS, steps=64, then=then, **fields)
    told = [(each["steps"], each["updates"]) for each in run.result["phases"]]
    assert told == [(64, 12), (0, 12), (32, 4), (32, 4)]
    assert run.result["steps"] == 128


def test_phase_with_the_same_environment_starts_new_episodes():
    settings = resolve_settings(
        "ppo", HERE, steps=64, seeds=1, envs=4, preset=False, fields={"length": 8, "minibatch": 16},
        phases=(Phase(steps=64, environment=HERE),),
    )  # fmt: skip
    before = build_first_phase(settings)
    after = phase_change.enter_phase(phase_sequence.plan_phases(settings)[1], before)
    assert not np.allclose(before.source.obs, after.source.obs)


@pytest.mark.parametrize("at", [1, 2, 3])  # in the first phase, at its end, in the second
def test_phases_resumed_after_a_stop_equal_uninterrupted(at, tmp_path):
    then = "steps=128 env.max_episode_steps=50 lr=1e-3"
    how = {**PPO, "steps": 128, "evaluate_episodes": 2, "then": then}
    whole = sterling.train("ppo", HERE, out=tmp_path / "whole", **how)
    with pytest.raises(SystemExit):
        sterling.train("ppo", HERE, out=tmp_path / "cut", sinks=[Stop(at)], **how)
    again = sterling.resume(tmp_path / "cut")
    same(whole.agent.state, again.agent.state)
    assert whole.result["phases"] == again.result["phases"]
    logs = [
        [{k: v for k, v in json.loads(line).items() if not k.startswith("time/")}
         for line in (tmp_path / name / "metrics.jsonl").read_text().splitlines()]
        for name in ("whole", "cut")
    ]  # fmt: skip
    assert logs[0] == logs[1]
    assert [row["phase"] for row in logs[0]] == [1, 1, 2, 2]


@pytest.mark.slow
def test_phase_results_evaluate_every_environment_and_report_forgetting(tmp_path):
    how = {**PPO, "steps": 128, "evaluate_episodes": 3}
    run = sterling.train(
        "ppo", CartPole(), then={"steps": 128, "environment": Heavy()}, out=tmp_path / "run", **how
    )
    assert run.result["environment"] == "Heavy"
    told = run.result["phases"]
    assert [each["environment"] for each in told] == ["CartPole", "Heavy"]
    assert [each["steps"] for each in told] == [128, 128]
    first, last = (each["return"] for each in told)
    assert last["Heavy"] == run.result["final"]["return"] | {"caution": last["Heavy"]["caution"]}
    lost = np.subtract(first["CartPole"]["per_seed"], last["CartPole"]["per_seed"])
    np.testing.assert_allclose(run.result["forgotten"]["CartPole"]["per_seed"], lost)
    there = sterling.train("ppo", CartPole(), **how)
    assert first["CartPole"]["per_seed"] == there.result["final"]["return"]["per_seed"]


@pytest.mark.slow
def test_loaded_run_evaluates_in_the_environment_of_any_phase(tmp_path):
    how = {**PPO, "steps": 64, "evaluate_episodes": 2, "out": tmp_path / "run"}
    sterling.train("ppo", HERE, then="steps=64 env.max_episode_steps=7 epochs=2", **how)
    run = sterling.load(tmp_path / "run")
    assert run.settings.env_options == {"max_episode_steps": 7}
    assert run.evaluate(2)["return"]["per_seed"] == [7.0, 7.0]
    assert max(sterling.load(tmp_path / "run", phase=1).evaluate(2)["return"]["per_seed"]) > 7.0
    with pytest.raises(Mistake, match=r"phase=3: .* has phases 1 to 2"):
        sterling.load(tmp_path / "run", phase=3)
    plain = json.loads((tmp_path / "run" / "config.json").read_text())
    assert Settings.from_json(plain).phases[0].fields == {"epochs": 2}


def test_phase_environments_of_equal_name_get_distinct_labels():
    settings = resolve_settings("ppo", HERE, steps=9_999, phases=(
        Phase(9_999, env_options={"max_episode_steps": 7}), Phase(9_999),
        Phase(9_999, environment=HERE), Phase(9_999, environment=CartPole()),
        Phase(9_999, environment=Heavy()), Phase(9_999, environment=Heavy()),
    ))  # fmt: skip
    short = f"{HERE} (max_episode_steps=7)"
    assert phase_sequence.world_names(settings) == [
        *(HERE, short, short, HERE, "CartPole", "Heavy", "Heavy (2)")
    ]


def test_a_finished_run_is_given_another_phase(tmp_path):
    how = {**PPO, "evaluate_episodes": 2}
    whole = sterling.train("ppo", HERE, steps=64, then="steps=64 lr=1e-3", **how)
    sterling.train("ppo", HERE, steps=64, out=tmp_path / "run", **how)
    more = sterling.resume(tmp_path / "run", then="steps=64 lr=1e-3")
    same(whole.agent.state, more.agent.state)
    assert more.result["steps"] == 128
    with pytest.raises(Mistake, match="only the last phase of a run can be extended"):
        sterling.resume(tmp_path / "run", steps=1000)


@pytest.mark.as_users  # one seed alone equals one among others bit for bit
@pytest.mark.slow
def test_processes_strategy_reports_the_same_phase_results(tmp_path):
    how = {**PPO, "steps": 64, "evaluate_episodes": 2, "then": "steps=64 env.max_episode_steps=30"}
    apart = sterling.train("ppo", HERE, strategy="processes", **how)
    together = sterling.train("ppo", HERE, **how)
    same(apart.agent.state, together.agent.state)
    for name in ("phases", "forgotten"):
        assert apart.result[name] == together.result[name]


@pytest.mark.parametrize(
    ("then", "words"),
    [
        (
            "steps=64 environment=Acrobot-v1",
            r"phase 2: Acrobot-v1 has observations .* were made for",
        ),
        ("steps=64 width=16", "phase 2: width would change the agents' shapes"),
        ("steps=64 wdth=16", r"phase 2: ppo has no field 'wdth' \(did you mean width\?\)|wdth"),
        ("steps=64 lr=-1.0", "phase 2: ppo's field lr must be"),
        ("steps=1", "phase 2: steps=1 is below one iteration of ppo"),
        ("lr=0.1", "phase 2: ppo has no budget"),
        ("updates=5", "phase 2: updates .* need a dataset"),
        ("steps", "then: 'steps' is not of the form KEY=VALUE"),
        (5, "then must be text"),
        ([5], "then must be text"),
    ],
)
def test_invalid_phases_are_refused_before_training(then, words, tmp_path):
    with pytest.raises(Mistake, match=words):
        sterling.train("ppo", HERE, steps=64, then=then, out=tmp_path / "run", **PPO)
    assert not (tmp_path / "run").exists()


def test_phase_that_changes_replay_shapes_is_refused():
    with pytest.raises(
        Mistake, match="phase 2: priority would change the shapes of the replay buffer"
    ):
        sterling.train("dqn", HERE, steps=64, then="steps=64 priority=0.6", **DQN)


def test_checkpoint_meta_without_phase_number_is_read():
    meta = {"alive": [True], "failures": {}, "online": True, "judged": []}
    assert is_run_meta(meta, 1)
    assert is_run_meta({**meta, "phase": 1}, 1)
    assert not is_run_meta({**meta, "phase": -1}, 1)
    only = resolve_settings("ppo", HERE, steps=9_999)
    bridged = dataclasses.replace(only, updates=5)
    assert [saved_phase(meta, each) for each in (only, bridged)] == [0, 1]


def test_the_command_line_takes_phases(tmp_path, capsys):
    words = ["train", "ppo", HERE, "--steps", "64", "--then", "steps=64 lr=1e-3", "--quiet"]
    words += ["--envs", "4", "--length", "8", "--minibatch", "16"]
    assert cli.main([*words, "--out", str(tmp_path / "run")]) == 0
    more = ["resume", str(tmp_path / "run"), "--then", "steps=32", "--quiet"]
    assert cli.main(more) == 0
    assert "96" not in capsys.readouterr().err
    result = json.loads((tmp_path / "run" / "result.json").read_text())
    assert [each["steps"] for each in result["phases"]] == [64, 64, 32]
