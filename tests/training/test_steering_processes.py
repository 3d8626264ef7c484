"""Runs that are steered and whose seeds are trained in several processes: they stop together."""

from __future__ import annotations

import json
import os
import threading

import jax
import numpy as np
import pytest

import sterling
from sterling.training.processes import process_launcher
from sterling.training.steering.judged_score import LOSS
from sterling.training.steering.process_agreement import (
    ProcessAgreement,
    mark_as_training,
    posts_path,
    read_posts,
)
from sterling.training.steering.stop_conditions import Patience, StopAt, mean_of_known
from sterling.types import Mistake

PPO = {
    **{"preset": False, "envs": 4, "length": 8, "minibatch": 16, "epochs": 1, "width": 8},
    **{"anneal": False, "seeds": 3, "log_every": 64, "evaluate_every": 64, "lr": 3e-2},
    **{"evaluate_episodes": 2, "env_options": {"max_episode_steps": 100}},
}


@pytest.fixture(autouse=True)
def _two_processes(monkeypatch):
    """As many on a machine with one core."""
    cores = sorted(os.sched_getaffinity(0)) * 2
    monkeypatch.setattr(process_launcher, "_cores", lambda: cores[:2])


def train(steps, **options):
    return sterling.train("ppo", "CartPole-v1", steps=steps, **{**PPO, **options})


def same(one, other):
    for a, b in zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True):
        np.testing.assert_array_equal(a, b)


def rows(path):
    lines = (path / "metrics.jsonl").read_text().splitlines()
    return [
        {k: v for k, v in json.loads(line).items() if not k.startswith("time/")} for line in lines
    ]


@pytest.mark.as_users
@pytest.mark.slow
def test_seed_processes_stop_at_the_iteration_of_one_process(tmp_path):
    """Patience decides by the mean over the seeds of all processes; callbacks log for their own."""

    class Logs:
        def on_log(self, event):
            event.log({"my/seed": list(event.seeds)})

    how = {"patience": 3, "keep": "best"}
    alone = train(1280, out=tmp_path / "alone", **how)
    apart = train(1280, out=tmp_path / "apart", strategy="processes", callbacks=[Logs()], **how)
    assert alone.result["stopped"]["by"] == "patience"
    for name in ("stopped", "final", "best", "final_episodes", "steps"):
        assert alone.result[name] == apart.result[name]
    own = rows(tmp_path / "apart")
    assert [row.pop("my/seed") for row in own] == [[0.0, 1.0, 2.0]] * len(own)
    assert own == rows(tmp_path / "alone")
    loaded = sterling.load(tmp_path / "apart")
    same(alone.agent.state, loaded.agent.state)
    same(alone.best.agent.state, loaded.best.agent.state)


@pytest.mark.as_users
@pytest.mark.slow
def test_a_callback_of_one_process_stops_all(tmp_path):
    class Asks:
        def on_log(self, event):
            if 1 in event.seeds and event.step == 128:
                event.stop("seed 1 asks")

    apart = train(640, strategy="processes", callbacks=[Asks()], evaluate_every=0, seeds=2)
    alone = train(128, evaluate_every=0, seeds=2)
    assert apart.result["stopped"]["reason"] == "seed 1 asks"
    assert apart.result["steps"] == 128
    same(alone.agent.state.nets, apart.agent.state.nets)


@pytest.mark.slow
def test_unpicklable_or_failing_callback_of_seed_processes_is_named(tmp_path):
    class Holds:
        def __init__(self):
            self.lock = threading.Lock()

        def on_log(self, event):
            pass

    class Fails:
        def on_log(self, event):
            raise ValueError("boom")

    how = {"strategy": "processes", "seeds": 2, "evaluate_episodes": 0}
    with pytest.raises(Mistake, match="callback Holds cannot be sent to the processes"):
        train(128, callbacks=[Holds()], out=tmp_path / "run", **how)
    assert not (tmp_path / "run").exists()
    words = r"the process of seed \d: the callback Fails failed in on_log: ValueError: boom \(test_"
    with pytest.raises(Mistake, match=words):
        train(128, callbacks=[Fails()], out=tmp_path / "run", **how)


def never():
    return False


def test_process_agreement_uses_first_posts_and_skips_seedless_processes(tmp_path):
    folders = [tmp_path / name for name in "abc"]
    for folder in folders:
        mark_as_training(folder)
    ones = [ProcessAgreement(folder, folders) for folder in folders]
    found = {}

    def exchange(at, number):
        post = {"iteration": 4, "returns": [number], "stop": None}
        found[at] = ones[at].exchange(post, never)

    thread = threading.Thread(target=exchange, args=(0, 1.0))
    thread.start()
    ones[2].end()  # all its seeds have failed: it posts no more
    assert ones[1].exchange({"iteration": 4, "returns": [2.0], "stop": None}, lambda: True) is None
    exchange(1, 9.0)  # again, after it was asked to leave
    thread.join(120)
    assert not thread.is_alive()
    assert found[0] == found[1]
    assert [post["returns"] for post in found[0]] == [[1.0], [2.0]]


def test_process_agreement_rewrites_a_torn_post(tmp_path):
    posts_path(tmp_path).write_text('{"iteration": 2, "ret')
    one = ProcessAgreement(tmp_path, [tmp_path, tmp_path])
    post = {"iteration": 2, "returns": None, "stop": None}
    assert one.exchange(post, never) == [post, post]
    assert read_posts(tmp_path) == {2: post}


def test_stop_conditions_use_the_mean_of_seeds_that_have_not_failed():
    assert mean_of_known([1.0, None, 2.0]) == 1.5
    assert mean_of_known([None]) is None
    assert not StopAt(2.0).reason_to_stop(1.9)
    assert StopAt(2.0).reason_to_stop(2.0) == "the mean return 2 reached 2"
    waits = Patience(2, {})
    said = [waits.reason_to_stop(mean) for mean in (1.0, 1.0, 3.0, 2.0)]
    assert said == ["", "", "", ""]
    again = Patience(2, waits.to_json())
    assert again.reason_to_stop(3.0) == "the mean return did not exceed 3 in 2 evaluations"
    again.begin_phase()
    assert again.to_json() == {"best": None, "waited": 0}


def test_stop_conditions_take_a_lower_loss_for_the_better_one():
    assert not StopAt(2.0, LOSS).reason_to_stop(2.1)
    assert StopAt(2.0, LOSS).reason_to_stop(2.0) == "the mean held-out loss 2 reached 2"
    waits = Patience(2, {}, LOSS)
    said = [waits.reason_to_stop(mean) for mean in (3.0, 1.0, 2.0, 1.5)]
    assert said == ["", "", "", "the mean held-out loss did not fall below 1 in 2 evaluations"]


@pytest.mark.as_users
@pytest.mark.slow
@pytest.mark.parametrize(("number", "ends"), [(15, SystemExit), (9, Mistake)])
def test_seed_processes_resumed_after_a_kill_stop_as_before(number, ends, tmp_path):
    class Kills:
        def on_log(self, event):
            if 1 in event.seeds and event.step == 192:
                os.kill(os.getpid(), number)

    how = {"patience": 3, "keep": "best", "checkpoint_minutes": 0.0}
    whole = train(1280, out=tmp_path / "whole", **how)
    with pytest.raises(ends):
        train(1280, strategy="processes", callbacks=[Kills()], out=tmp_path / "cut", **how)
    again = sterling.resume(tmp_path / "cut")
    assert whole.result["stopped"] == again.result["stopped"]
    assert whole.result["best"] == again.result["best"]
    same(whole.agent.state, again.agent.state)
    assert rows(tmp_path / "whole") == rows(tmp_path / "cut")
