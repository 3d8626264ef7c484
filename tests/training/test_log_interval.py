"""The host looks up between two rows: it may save and leave there, and no number changes."""

import json
import os
import signal
import subprocess
import sys
import time
import types

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import sterling
from sterling.algorithms.online import ppo
from sterling.training import driver, loop
from sterling.training.agent import Agent
from sterling.training.evaluation.metric_rows import training_columns
from sterling.training.runtime import log_interval

FIELDS = {
    "ppo": {"length": 16, "minibatch": 64, "epochs": 2, "width": 16},
    "dqn": {"width": 16, "capacity": 400, "warmup": 64, "batch": 16},
}


def cartpole():
    import gymnasium

    return gymnasium.make("CartPole-v1")


def train(algorithm, world, path, **options):
    return sterling.train(
        *(algorithm, world),
        **{"steps": 768, "seeds": 2, "log_every": 384, "out": path, "preset": False},
        **{"evaluate_episodes": 2, "evaluate_every": 384, **FIELDS[algorithm], **options},
    )


def rows(path):
    read = [json.loads(line) for line in (path / "metrics.jsonl").read_text().splitlines()]
    return [{k: v for k, v in row.items() if not k.startswith("time/")} for row in read]


def same(one, other):
    for left, right in zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True):
        np.testing.assert_array_equal(left, right)


class AtLook:
    """Asks to leave at the ``number``-th look."""

    def __init__(self, number):
        self.left = number

    def __call__(self):
        return self

    def __enter__(self):
        return self

    def __exit__(self, *_):
        return None

    @property
    def requested(self):
        self.left -= 1
        return self.left == 0


def test_log_interval_checks_speed_and_metric_means(monkeypatch):
    """Looks are 5 s apart: one iteration, then as many as the last pace lets into 5 s."""
    clock = iter([10.0, 12.0, 20.0, 21.0, 30.0, 32.0])
    asked = []

    def advance(run, count, sums):
        asked.append(count)
        before = sums.get("loss", np.zeros(2, np.float32))
        return run, {"loss": before + np.asarray([count, 2.0 * count], np.float32)}

    monkeypatch.setattr(log_interval, "time", types.SimpleNamespace(monotonic=lambda: next(clock)))
    monkeypatch.setattr(log_interval, "advance", advance)
    nothing = loop.Run(Agent(None, ppo, None, "map"), None, jnp.zeros(2, jnp.int32), jnp.asarray(0))
    part = log_interval.LogInterval()
    for left in (10, 9, 3):
        part.go(nothing, left)
    assert asked == [1, 2, 3]  # 5 / 2 s, then 5 / 0.5 s, of which 3 are left
    assert part.iterations == 6
    assert part.speed == 6 / (2.0 + 1.0 + 2.0)
    np.testing.assert_allclose(part.means()["loss"], [1.0, 2.0])
    again = log_interval.LogInterval(part.to_json())
    np.testing.assert_allclose(again.means()["loss"], [1.0, 2.0])
    empty = part.next()
    np.testing.assert_array_equal(empty.to_json()["sums"]["loss"], [0.0, 0.0])
    assert empty.iterations == 0


@pytest.mark.parametrize(
    ("algorithm", "world"),
    [
        ("ppo", "probe:both"),
        pytest.param("dqn", "probe:both", marks=pytest.mark.slow),  # it is left between rows below
        pytest.param("ppo", cartpole, marks=pytest.mark.slow),
    ],
)
def test_metric_rows_are_independent_of_the_host_check_interval(
    algorithm, world, tmp_path, monkeypatch
):
    whole = train(algorithm, world, tmp_path / "seldom")
    monkeypatch.setattr(log_interval, "LOOK_SECONDS", 1e-9)
    broken = train(algorithm, world, tmp_path / "often")
    assert len(rows(tmp_path / "seldom")) == 2
    assert rows(tmp_path / "seldom") == rows(tmp_path / "often")
    same(whole.agent.state, broken.agent.state)


class AfterRow(AtLook):
    """Asks to leave at the second look after a row has been written."""

    def __init__(self, path):
        super().__init__(2)
        self.path = path

    @property
    def requested(self):
        self.left -= len(rows(self.path))
        return self.left == 0


@pytest.mark.parametrize("algorithm", [pytest.param("ppo", marks=pytest.mark.slow), "dqn"])
def test_run_interrupted_between_two_metric_rows_resumes_identically(
    algorithm, tmp_path, monkeypatch
):
    monkeypatch.setattr(log_interval, "LOOK_SECONDS", 1e-9)
    whole = train(algorithm, "probe:both", tmp_path / "whole")
    with monkeypatch.context() as patch:
        patch.setattr(driver, "Interrupt", AfterRow(tmp_path / "broken"))
        with pytest.raises(SystemExit) as left:
            train(algorithm, "probe:both", tmp_path / "broken")
    assert left.value.code == 75
    assert rows(tmp_path / "broken") == rows(tmp_path / "whole")[:1]
    later = json.loads((tmp_path / "broken" / "metrics.jsonl").read_text()) | {"iteration": 10**6}
    with (tmp_path / "broken" / "metrics.jsonl").open("a") as file:
        file.write(json.dumps(later) + "\n")  # as if it had gone on and was killed
    resumed = sterling.resume(tmp_path / "broken")
    assert rows(tmp_path / "whole") == rows(tmp_path / "broken")
    assert len(rows(tmp_path / "whole")) == 2
    same(whole.agent.state, resumed.agent.state)


@pytest.mark.slow
def test_sigterm_is_handled_before_the_first_metric_row(tmp_path):
    path = tmp_path / "run"
    options = {"steps": 10**9, "log_every": 10**9, "checkpoint_minutes": 0.0, **FIELDS["ppo"]}
    program = (
        f"import sterling; sterling.train('ppo', 'probe:both', out={str(path)!r}, **{options})"
    )
    process = subprocess.Popen([sys.executable, "-c", program], env=os.environ)
    deadline = time.monotonic() + 120
    while not list(path.glob("checkpoints/*/meta.json")) and time.monotonic() < deadline:
        time.sleep(0.05)
    process.send_signal(signal.SIGTERM)
    assert process.wait(timeout=120) == 75  # the row would take an hour
    assert rows(path) == []


def test_metrics_of_host_environment_iterations_are_summed(monkeypatch):
    found = iter([[1.0, 2.0], [10.0, 20.0], [100.0, 200.0]])
    monkeypatch.setattr(loop, "iterate", lambda run: (run, {"loss": np.float32(next(found))}))
    agent, seeds = Agent(None, ppo, None, "map"), jnp.zeros(2, jnp.int32)
    begun = loop.Run(agent, types.SimpleNamespace(traced=False), seeds, jnp.asarray(0))
    _, sums = loop.advance(begun, 2)
    np.testing.assert_array_equal(sums["loss"], [11.0, 22.0])
    _, sums = loop.advance(begun, 1, sums)
    np.testing.assert_array_equal(sums["loss"], [111.0, 222.0])
    assert loop.advance(begun, 0)[1] == {}


def test_training_columns_average_finished_episodes_per_seed():
    """Two episodes, none, and one of a seed that has failed."""
    alive = np.array([True, True, False])
    tally = types.SimpleNamespace(
        totals={"return": np.array([6.0, 0.0, 5.0]), "length": np.array([4, 0, 2])},
        episodes=np.array([2, 0, 1]),
        invalid=np.array([0, 1, 0]),
    )
    assert training_columns(tally, alive) == {
        "data/return": [3.0, None, None],
        "data/length": [2.0, None, None],
        "data/episodes": [2, 0, 1],
        "data/invalid": [0, 1, 0],
    }
