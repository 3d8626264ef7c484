"""Killed at any moment and resumed in a fresh process equals uninterrupted, bit for bit.

``test_seeds.py`` holds the same of a signal, for every algorithm within one process, and
``tests/reliability/test_kills.py`` of a kill, for PPO; so these are slow tests, and one algorithm
of each kind of source is killed (``make all-cases``: every one).
"""

import json
import os
import random
import signal
import subprocess
import sys
from pathlib import Path

import jax
import numpy as np
import pytest
from cases import CASES, EVERYWHERE, FIRST, each
from stopping import newest

import sterling

PROGRAM = """
import json, os, signal, sys, threading, time, sterling
from sterling.training.saving import checkpoint
path, kind, name, world, budget, envs, fields, chance = json.loads(sys.argv[1])
save, saves = checkpoint.save, 1 + int(3 * chance)

def save_until_killed(*given, **how):
    global saves
    if saves == 0:
        time.sleep(600)  # the kill comes before a further checkpoint, also on a busy machine
    made, saves = save(*given, **how), saves - 1
    if saves == 0:
        threading.Timer(0.1 * chance, os.kill, (os.getpid(), signal.SIGKILL)).start()
    return made

if kind == "killed":
    checkpoint.save = save_until_killed
if kind == "resume":
    sterling.resume(path)
else:
    sterling.train(name, world, **budget, seeds=2, envs=envs, out=path, preset=False,
                   log_every=160 if "steps" in budget else 20, checkpoint_minutes=0.0,
                   evaluate_episodes=4, evaluate_every=200, **fields)
"""


def start(path: Path, kind: str, name: str, form: str, budget: dict) -> subprocess.Popen:
    case = CASES[name]
    world, chance = f"probe:{case.kind}{form}", random.Random(name).uniform(0.0, 1.0)
    what = [str(path), kind, name, world, budget, case.envs, case.fields, chance]
    return subprocess.Popen([sys.executable, "-c", PROGRAM, json.dumps(what)], env=os.environ)


KILLED = (*FIRST, "bc", "distill", "dt", "iql", "mbpo", "pebble")
RUNS = [run for run in each() if EVERYWHERE or getattr(run, "values", run)[0] in KILLED]


@pytest.mark.parametrize(("name", "form"), RUNS)
def test_training_killed_and_resumed_equals_uninterrupted(name, form, tmp_path, written_logs):
    whole, broken = tmp_path / "whole", tmp_path / "broken"
    budget = CASES[name].budget(CASES[name].kind + form, 6_400, written_logs)
    assert start(whole, "train", name, form, budget).wait() == 0
    assert start(broken, "killed", name, form, budget).wait() == -signal.SIGKILL
    assert not (broken / "result.json").exists()  # it was in the middle
    assert start(broken, "resume", name, form, budget).wait() == 0
    expected, found = newest(whole), newest(broken)
    assert set(expected) == set(found)
    for leaf in expected:
        np.testing.assert_array_equal(expected[leaf], found[leaf], err_msg=leaf)
    results = [json.loads((path / "result.json").read_text()) for path in (whole, broken)]
    assert results[0]["final"] == results[1]["final"]
    rows = [(path / "metrics.jsonl").read_text().splitlines() for path in (whole, broken)]
    read = [[json.loads(row) for row in log] for log in rows]
    found = [
        [{k: v for k, v in row.items() if not k.startswith("time/")} for row in r] for r in read
    ]
    assert found[0] == found[1]
    plays_without_its_log(broken)


def plays_without_its_log(path: Path) -> None:
    """What was learned acts wherever its folder is taken; the log may be gone."""
    config = json.loads((path / "config.json").read_text())
    if config["data"]:
        config["data"]["path"] = str(path / "gone")
        (path / "config.json").write_text(json.dumps(config))
    run = sterling.load(path)
    spec = run.world().spec
    for seed in (0, 1):
        obs = jax.tree.map(np.zeros_like, spec.obs.sample())
        action = run.player(seed).act(obs)
        assert spec.action.contains(action.astype(spec.action.dtype))
