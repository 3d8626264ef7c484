"""Seeds in processes: what they write becomes one run, and none outlives its parent."""

import contextlib
import dataclasses
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import cloudpickle
import gymnasium
import jax
import numpy as np
import pytest

import sterling
from sterling.envs.hosted.worker_pool import WorldFailed
from sterling.training.config.resolve_settings import resolve_settings
from sterling.training.processes import process_launcher
from sterling.training.processes.merge_results import MetricsMerger, merge_results
from sterling.training.saving import run_folder
from sterling.types import Mistake

SMALL = {"length": 16, "minibatch": 32, "epochs": 1, "width": 16, "preset": False, "envs": 2}
SMALL |= {"strategy": "processes", "seeds": 2, "evaluate_episodes": 2}
PROBE = {"algorithm": "ppo", "environment": "probe:both", "log_every": 64, "anneal": False}


@pytest.fixture(autouse=True)
def _two_processes(monkeypatch):
    """As many on a machine with one core."""
    cores = sorted(os.sched_getaffinity(0)) * 2
    monkeypatch.setattr(process_launcher, "_cores", lambda: cores[:2])


class Seen:
    """A sink that remembers."""

    def __init__(self):
        self.rows = []

    def write(self, row):
        self.rows.append(row)

    def close(self):
        pass


def lines(path):
    return [json.loads(line) for line in (path / "metrics.jsonl").read_text().splitlines()]


def log(path, rows, failed=None):
    """A part's folder; with a result where it has ended, its seeds ``failed``."""
    path.mkdir(parents=True, exist_ok=True)
    (path / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    if failed is not None:
        run_folder.write_result(path, {"failed_seeds": failed})


def row(iteration, returns, failed=(), **more):
    base = {"step": 10 * iteration, "iteration": iteration, "time/seconds": float(iteration)}
    speed = {"time/steps_per_second": 5.0}
    return base | speed | {"data/return": returns, "failed": list(failed), **more}


def test_merged_metrics_of_an_ended_seed_process_are_none(tmp_path):
    paths, seen = [tmp_path / "0", tmp_path / "1"], Seen()
    log(paths[0], [row(4, [1.0, 2.0]), row(8, [None, 3.0], failed=[0])], failed=[0, 2])
    log(paths[1], [row(4, [7.0]), row(8, [8.0]), row(12, [9.0]), row(16, [10.0])])
    merge = MetricsMerger(paths, [2, 1], [seen])
    merge.go_on()
    merge.go_on()
    assert [each["iteration"] for each in seen.rows] == [4, 8, 12, 16]
    returns = [[1.0, 7.0, 2.0], [None, 8.0, 3.0], [None, 9.0, None], [None, 10.0, None]]
    assert [each["data/return"] for each in seen.rows] == returns
    assert [each["failed"] for each in seen.rows] == [[], [0], [0, 2], [0, 2]]
    assert [each["time/steps_per_second"] for each in seen.rows] == [10.0, 10.0, 5.0, 5.0]
    assert [each["step"] for each in seen.rows] == [40, 80, 120, 160]


def test_merged_metrics_wait_for_a_slow_seed_process(tmp_path):
    paths, seen = [tmp_path / "0", tmp_path / "1"], Seen()
    merge = MetricsMerger(paths, [1, 1], [seen], begun=4)
    merge.go_on()
    log(paths[0], [row(4, [1.0]), row(8, [2.0])])
    log(paths[1], [row(4, [3.0])])
    merge.go_on()
    assert not seen.rows
    log(paths[1], [row(4, [3.0]), row(8, [4.0], **{"evaluation/return": [5.0]})])
    merge.go_on()
    assert [each["data/return"] for each in seen.rows] == [[2.0, 4.0]]
    assert seen.rows[0]["evaluation/return"] == [None, 5.0]


def outcome(seeds, steps, **more):
    scores = {"return": {"per_seed": [float(seed) for seed in seeds]}}
    base = {"steps": steps, "seeds": seeds, "final": scores, "failed_seeds": [], "failures": {}}
    base |= {"world_failures": [], "wall_seconds": 9.0, "compile_seconds": 1.0}
    return {**base, "steps_per_second": 1.0, **more}


def test_merged_result_covers_all_seed_processes():
    dead = {"final": {}, "failed_seeds": [0, 2], "failures": {"0": {}, "2": {}}}
    dead |= {"world_failures": ["environment 5: hung"]}  # of 4 each: seed 2's second
    switch = {name: {"per_seed": [3.0]} for name in ("before", "lowest", "dip")}
    other = {"switch": switch, "world_failures": ["environment 3: boom"], "compile_seconds": 2.0}
    other["unended"] = [7]
    made = merge_results([outcome([0, 2], 40, **dead), outcome([1], 160, **other)], 4, 2.0, None)
    assert (made["steps"], made["seeds"], made["failed_seeds"]) == (160, [0, 1, 2], [0, 2])
    assert made["world_failures"] == ["environment 9: hung", "environment 7: boom"]
    assert made["final"]["return"]["per_seed"] == [None, 1.0, None]
    assert made["unended"] == [0, 7, 0]
    assert made["switch"]["before"]["per_seed"] == [None, 3.0, None]
    assert (made["compile_seconds"], made["wall_seconds"]) == (2.0, 9.0)  # the parts' is longer
    assert made["steps_per_second"] == round((2 * 40 + 160) / 9.0, 3)


def test_merged_result_of_seed_processes_has_channels_with_bounds():
    said = {"cost": {"reduce": "sum", "better": -1, "within": [0.0, 9.0]}}

    def part(seeds):
        found = {"return": {"per_seed": [1.0] * len(seeds)}, "cost": {"per_seed": seeds}}
        return outcome([int(seed) for seed in seeds], 40, channels=said, final=found)

    made = merge_results([part([0.0, 2.0]), part([1.0])], 4, 2.0, (0.0, 1.0), "worst")
    assert made["channels"] == said
    cost = made["final"]["cost"]
    assert (cost["per_seed"], cost["within"], cost["better"]) == ([0.0, 1.0, 2.0], [0.0, 9.0], -1)
    assert made["final"]["return"]["within"] == [0.0, 1.0]


def worlds(worst):
    """A factory whose worlds give ``worst`` after 200 steps of seed 0's process, and break once in
    seed 1's; None for rewards: they break all the time."""

    class Turning(gymnasium.Env):
        observation_space = gymnasium.spaces.Box(-1, 1, (2,), np.float32)
        action_space = gymnasium.spaces.Discrete(2)
        steps = 0

        def reset(self, seed=None, options=None):
            super().reset(seed=seed)
            self.time = 0
            return np.zeros(2, np.float32), {}

        def step(self, action):
            self.time += 1
            Turning.steps += 1
            part = Path(*sys.argv[1:2]).name  # as long as it is a part's process
            if (part == "1" and Turning.steps == 151) or (worst is None and Turning.steps > 150):
                raise RuntimeError("boom")
            reward = worst if part == "0" and Turning.steps > 200 else 1.0
            return np.zeros(2, np.float32), reward, False, self.time >= 10, {}

    return Turning


@pytest.mark.slow
def test_diverged_seed_process_does_not_affect_other_seeds(tmp_path):
    how = {**SMALL, "log_every": 64, "normalise_reward": True, "env_options": {"workers": 0}}
    run = sterling.train("ppo", worlds(3e38), steps=1_280, out=tmp_path / "run", **how)
    assert run.result["failed_seeds"] == [0]
    assert run.result["steps"] == 1_280
    assert run.result["final"]["return"]["per_seed"] == [None, 10.0]
    assert [said[: said.index("(")] for said in run.result["world_failures"]] == [
        "environment 3: RuntimeError: boom "
    ]
    rows = lines(tmp_path / "run")
    assert [each["step"] for each in rows] == list(range(64, 1_281, 64))
    own = lines(tmp_path / "run" / "parts" / "0")
    assert 0 < len(own) < 10
    for each in rows[len(own) :]:
        assert each["failed"] == [0]
        assert each["data/return"] == [None, 10.0]
    assert [each.name for each in (tmp_path / "run" / "checkpoints").iterdir()] == ["000000001280"]
    assert sterling.load(tmp_path / "run", environment=worlds(3e38)).result == run.result


@pytest.mark.slow
def test_environment_failure_in_a_seed_process_is_reported_by_the_parent(tmp_path):
    how = {**SMALL, "env_options": {"workers": 0}}
    with pytest.raises(
        WorldFailed, match=r"the process of seed \d: .*boom.*max_failures"
    ) as caught:
        sterling.train("ppo", worlds(None), steps=1_280, out=tmp_path / "run", **how)
    assert "\n" not in str(caught.value)


@pytest.mark.slow
def test_resumed_seed_processes_drop_stale_rows_and_repeat_none(tmp_path):
    path, first, then = tmp_path / "run", Seen(), Seen()
    alone = {**PROBE, **SMALL, "strategy": "map", "out": tmp_path / "whole"}
    whole = sterling.train(steps=1_280, **alone)
    sterling.train(**PROBE, **SMALL, steps=640, out=path, sinks=[first])
    for log_ in (path, path / "parts" / "0", path / "parts" / "1"):  # as if killed later
        made = lines(log_)
        width = len(made[0]["data/return"])
        given_up = made[-1] | {"iteration": 21, "step": 672, "data/return": [-9.0] * width}
        with (log_ / "metrics.jsonl").open("a") as file:
            file.write(json.dumps(given_up) + "\n")
    run = sterling.resume(path, steps=1_280, sinks=[then])
    told = [(each["step"], each["data/return"]) for each in lines(path)]
    assert told == [(e["step"], e["data/return"]) for e in lines(tmp_path / "whole")]
    assert [each["step"] for each in first.rows] == list(range(64, 641, 64))
    assert [each["step"] for each in then.rows] == list(range(704, 1_281, 64))
    for one, other in zip(
        jax.tree.leaves(run.agent.state), jax.tree.leaves(whole.agent.state), strict=True
    ):
        np.testing.assert_array_equal(one, other)


ENDLESS = """
import os, sys, sterling
from sterling.training.processes import process_launcher
cores = sorted(os.sched_getaffinity(0)) * 2
process_launcher._cores = lambda: cores[:2]
sterling.train(out=sys.argv[1], steps=500_000_000, **eval(sys.argv[2]))
"""


@pytest.mark.parametrize(
    "number", [signal.SIGKILL, pytest.param(signal.SIGTERM, marks=pytest.mark.slow)]
)
def test_seed_processes_save_and_exit_when_the_parent_is_killed(tmp_path, number):
    path = tmp_path / "run"
    how = repr({**PROBE, **SMALL, "log_every": 6_400})
    parent = subprocess.Popen([sys.executable, "-c", ENDLESS, str(path), how])
    locks = [path / "parts" / seed / "lock" for seed in "01"]
    try:
        _wait(lambda: (path / "metrics.jsonl").exists() and lines(path))
    finally:
        parent.send_signal(number)
    children = [int(lock.read_text().split()[0]) for lock in locks]
    try:
        assert parent.wait(60) == (75 if number == signal.SIGTERM else -signal.SIGKILL)
        _wait(lambda: not any(_lives(child) for child in children))
    finally:
        for child in children:
            with contextlib.suppress(ProcessLookupError):
                os.kill(child, signal.SIGKILL)
    for lock in locks:
        assert len(list(lock.parent.glob("checkpoints/*/meta.json"))) == 1


def _wait(until, seconds=120.0):
    deadline = time.monotonic() + seconds
    while not until():
        assert time.monotonic() < deadline
        time.sleep(0.1)


def _lives(process):
    """Whether it is there and no zombie, which nobody may collect in a container."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


@pytest.mark.slow
def test_locked_part_folder_of_a_seed_process_is_refused(tmp_path):
    path = tmp_path / "run"
    held = f"{path / 'parts' / '0'} is in use by process {os.getpid()}"
    settings = resolve_settings("ppo", "probe:both", steps=6_400, seeds=2, strategy="processes")
    with run_folder.lock(path / "parts" / "0"):
        run_folder.write_config(path, settings.to_json())
        with pytest.raises(Mistake, match=held) as caught:
            sterling.resume(path)
        code, said = begun(path / "parts" / "0", dataclasses.replace(settings, strategy="map"))
    assert "\n" not in str(caught.value)
    assert not (path / "parts" / "1").exists()  # nothing was begun
    assert code == 2
    assert said.splitlines()[-1].startswith(f"sterling: {held}")


def begun(path, settings):
    """How a part's process that is started by itself ends, and what it says."""
    process = process_launcher._start(settings, path, process_launcher._cores()[0])
    return process.wait(120), path.with_name(f"{path.name}.log").read_text()


def test_seed_process_is_pinned_to_its_cpu_core(tmp_path):
    """In place of settings it is given what says, once it is read, on which cores that is."""

    class Where:
        def __reduce__(self):
            return said, ()

    def said():
        raise Mistake(f"on the cores {sorted(os.sched_getaffinity(0))}")

    content = cloudpickle.dumps(Where())
    for core in sorted(os.sched_getaffinity(0))[-2:]:
        asked = [
            sys.executable,
            "-m",
            "sterling.training.processes.seed_worker",
            str(tmp_path),
            str(core),
        ]
        with subprocess.Popen(asked, stdin=subprocess.PIPE, stderr=subprocess.PIPE) as part:
            part.stdin.write(len(content).to_bytes(8, "big") + content)
            part.stdin.flush()  # and it stays open, as a parent's does
            assert part.stderr.readlines()[-1].decode() == f"sterling: on the cores [{core}]\n"
        assert part.returncode == 2
