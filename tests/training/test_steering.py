"""Runs that are steered: callbacks, conditions that stop a run, the best policy beside the last."""

from __future__ import annotations

import json

import jax
import numpy as np
import pytest
from stopping import Stop

import sterling
from sterling import cli
from sterling.report.runs.read_runs import read_results
from sterling.training.saving import checkpoint, run_folder
from sterling.training.steering.callbacks import check_callbacks
from sterling.types import Mistake

HERE = "CartPole-v1"
PPO = {
    **{"preset": False, "envs": 4, "length": 8, "minibatch": 16, "epochs": 1, "width": 8},
    **{"anneal": False, "seeds": 2, "log_every": 64, "evaluate_every": 64, "lr": 3e-2},
    **{"evaluate_episodes": 2, "env_options": {"max_episode_steps": 100}},
}


def train(steps=640, **options):
    return sterling.train("ppo", HERE, steps=steps, **{**PPO, **options})


def same(one, other):
    for a, b in zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True):
        np.testing.assert_array_equal(a, b)


def rows(path):
    lines = (path / "metrics.jsonl").read_text().splitlines()
    return [
        {k: v for k, v in json.loads(line).items() if not k.startswith("time/")} for line in lines
    ]


def timeless(result):
    return {k: v for k, v in result.items() if "second" not in k}


class Notes:
    """A callback that notes what it is told, and remembers how often over a resume."""

    def __init__(self):
        self.calls, self.kept = 0, []

    def save_state(self):
        return {"calls": self.calls}

    def restore_state(self, state):
        self.calls = state["calls"]

    def on_log(self, event):
        self.calls += 1
        event.log({"my/calls": self.calls, "my/seeds": list(event.seeds)})
        self.kept.append(("log", event.step))

    def on_evaluation(self, event):
        self.kept.append(("evaluation", event.step, event.scores["return"], event.evaluate()))

    def on_checkpoint(self, event):
        assert checkpoint.latest_checkpoint(event.path / "checkpoints")
        self.kept.append(("checkpoint", event.step))

    def on_end(self, event):
        self.kept.append(("end", event.step, event.result["final"]["return"]["per_seed"]))


def test_a_callback_sees_the_run_and_adds_its_numbers(tmp_path):
    notes, actions = Notes(), []

    class Acts:
        def on_log(self, event):
            actions.append(int(event.policy(np.zeros(4, np.float32), seed=1)))
            actions.append(int(event.player(seed=0)(np.zeros(4, np.float32))))

    plain = train(192, out=tmp_path / "plain")
    run = train(192, out=tmp_path / "run", callbacks=[notes, Acts()])
    same(plain.agent.state, run.agent.state)  # who only looks changes nothing
    assert timeless(plain.result) == timeless(run.result)
    kinds = [each[0] for each in notes.kept]
    assert kinds == ["evaluation", "log", "evaluation", "log", "log", "checkpoint", "end"]
    assert all(each[2] == each[3] for each in notes.kept if each[0] == "evaluation")
    assert notes.kept[-1] == ("end", 192, run.result["final"]["return"]["per_seed"])
    seen = rows(tmp_path / "run")
    own = [(row.pop("my/calls"), row.pop("my/seeds")) for row in seen]
    assert own == [([n, n], [0, 1]) for n in (1.0, 2.0, 3.0)]
    assert seen == rows(tmp_path / "plain")
    assert len(actions) == 6
    assert set(actions) <= {0, 1}


class StopsAt:
    """A callback that stops the run at a step."""

    def __init__(self, step):
        self.step = step

    def on_log(self, event):
        if event.step >= self.step:
            event.stop("seen enough")


@pytest.fixture(name="plain", scope="module")
def _plain(tmp_path_factory):
    """A run of 384 steps that nothing steers, and its folder."""
    path = tmp_path_factory.mktemp("plain") / "run"
    return train(384, out=path), path


def test_a_callback_stops_the_run_which_a_larger_budget_continues(plain, tmp_path):
    path, (whole, usual) = tmp_path / "run", plain
    run = train(out=path, callbacks=[StopsAt(128)])
    stopped = run.result["stopped"]
    assert (stopped["by"], stopped["reason"], stopped["step"]) == ("StopsAt", "seen enough", 128)
    assert run.result["steps"] == 128
    assert timeless(sterling.resume(path).result) == timeless(run.result)  # it is finished
    with pytest.raises(Mistake, match="already has 128 steps"):
        sterling.resume(path, steps=128)
    again = sterling.resume(path, steps=384)
    assert "stopped" not in again.result
    same(whole.agent.state, again.agent.state)
    seen = [row | {"steps": 384} for row in rows(path)]  # 640 were planned at first
    assert seen == rows(usual)
    (earlier,) = run_folder.read_config(path)["earlier"]
    assert earlier["steps"] == 640


class Fails:
    def on_log(self, event):
        event.log({"my/number": 1.0})
        if event.step == 128:
            raise ValueError("what\nnow")


def test_a_callback_that_raises_is_named_and_nothing_is_lost(plain, tmp_path):
    words = r"^the callback Fails failed in on_log: ValueError: what now \(test_steering.py:\d+\)"
    with pytest.raises(Mistake, match=words) as caught:
        train(384, out=tmp_path / "run", callbacks=[Fails()])
    assert "\n" not in str(caught.value)
    assert isinstance(caught.value.__cause__, ValueError)
    assert [row["step"] for row in rows(tmp_path / "run")] == [64, 128]
    assert rows(tmp_path / "run")[-1]["my/number"] == [1.0, 1.0]
    again, whole = sterling.resume(tmp_path / "run"), plain[0]
    same(whole.agent.state, again.agent.state)
    assert timeless(whole.result) == timeless(again.result)


def test_callback_log_refuses_unsuitable_values():
    class Logs:
        def on_log(self, event):
            for value, words in (
                ({"number": 1.0}, "needs a slash"),
                ({"data/return": 1.0}, "is a column of the run"),
                ({"my/number": "much"}, "must be a number"),
            ):
                with pytest.raises(Mistake, match=words):
                    event.log(value)
            event.log({"my/number": [1.0, 2.0, 3.0]})

    with pytest.raises(Mistake, match="a list of 2"):
        train(64, callbacks=[Logs()], evaluate_episodes=0)


@pytest.mark.parametrize(
    ("callbacks", "words"),
    [
        ([Notes], r"not a class. Write Notes\(\)"),
        ([len], "objects with on_log"),
        ([type("Typo", (), {"on_log": print, "on_evaluate": print})()], "on_evaluate is no event"),
    ],
)
def test_invalid_callbacks_are_refused(callbacks, words, tmp_path):
    with pytest.raises(Mistake, match=words):
        train(64, callbacks=callbacks, out=tmp_path / "run")
    assert not (tmp_path / "run").exists()
    with pytest.raises(Mistake, match="callbacks must be a list"):
        check_callbacks(callbacks[0])


STEERED = {"patience": 3, "keep": "best", "log_every": 32}


@pytest.fixture(name="whole", scope="module")
def _whole(tmp_path_factory):
    """A run that patience stops, and its folder."""
    path = tmp_path_factory.mktemp("steered") / "whole"
    return train(1280, out=path, callbacks=[Notes()], **STEERED), path


def test_patience_stops_after_evaluations_without_improvement(whole):
    run, path = whole
    means = [np.mean(row["evaluation/return"]) for row in rows(path) if "evaluation/return" in row]
    best = int(np.argmax(means))
    assert best == len(means) - 4  # three more without improvement
    assert run.result["stopped"]["by"] == "patience"
    assert run.result["stopped"]["step"] == run.result["steps"] == 64 * len(means) < 1280
    assert rows(path)[-1]["step"] == run.result["steps"]


def test_the_best_policy_of_each_seed_is_kept_beside_the_last(whole):
    run, path = whole
    judged = np.array([r["evaluation/return"] for r in rows(path) if "evaluation/return" in r])
    best = run.result["best"]
    assert best["progress"] == [64 * (int(at) + 1) for at in judged.argmax(0)]
    assert best["chosen_return"] == judged.max(0).tolist()
    loaded = sterling.load(path)
    same(run.best.agent.state, loaded.best.agent.state)
    same(run.agent.state, loaded.agent.state)
    again = loaded.best.evaluate(2)
    again.pop("unended")
    assert again == best["final"]
    early = train(int(best["progress"][0]), keep="")  # the policy of that step
    nets = (jax.tree.map(lambda x: x[0], each.agent.state.nets) for each in (early, loaded.best))
    same(*nets)
    obs = np.zeros(4, np.float32)
    assert loaded.best_policy(obs) == early.policy(obs)


def test_final_evaluation_of_a_selected_policy_uses_fresh_episodes(whole):
    run, path = whole
    assert run.result["final_episodes"].startswith("fresh")
    last = rows(path)[-1]["evaluation/return"]
    assert run.result["final"]["return"]["per_seed"] != last
    loaded = sterling.load(path)
    assert loaded.evaluate(2)["return"] == run.result["final"]["return"]
    loaded.settings = run.settings.__class__(**{**vars(run.settings), "patience": 0, "keep": ""})
    loaded.result = {}
    assert loaded.evaluate(2)["return"]["per_seed"] == last  # those of the periodic evaluations


@pytest.mark.parametrize("at", [8, pytest.param(3, marks=pytest.mark.slow)])  # rows of 32 steps
def test_steered_run_resumed_after_a_kill_equals_uninterrupted(at, whole, tmp_path):
    run, path = whole
    with pytest.raises(SystemExit):
        train(1280, out=tmp_path / "cut", sinks=[Stop(at)], callbacks=[Notes()], **STEERED)
    again = sterling.resume(tmp_path / "cut", callbacks=[Notes()])
    same(run.agent.state, again.agent.state)
    same(run.best.agent.state, again.best.agent.state)
    assert timeless(run.result) == timeless(again.result)
    assert rows(path) == rows(tmp_path / "cut")


def test_a_run_that_is_resumed_without_its_callbacks_says_so(tmp_path, capsys):
    with pytest.raises(SystemExit):
        train(128, out=tmp_path / "cut", sinks=[Stop(1)], callbacks=[Notes()], evaluate_episodes=0)
    capsys.readouterr()
    sterling.resume(tmp_path / "cut")
    assert "goes on without its callbacks Notes" in capsys.readouterr().err


def test_stop_at_stops_when_the_mean_over_seeds_reaches_it(whole, tmp_path, capsys):
    _, path = whole
    judged = [np.mean(r["evaluation/return"]) for r in rows(path) if "evaluation/return" in r]
    level = float(max(judged[:4]))
    run = train(1280, stop_at=level, evaluate_every=0)  # every twentieth of the budget: 64 steps
    first = next(n for n, mean in enumerate(judged, 1) if mean >= level)
    assert (run.result["stopped"]["by"], run.result["steps"]) == ("stop-at", 64 * first)
    assert "evaluated every 64 steps for stop_at" in capsys.readouterr().err
    assert run.settings.evaluate_every == 64


def test_a_time_budget_stops_at_once_where_it_is_over_and_a_larger_one_continues(tmp_path):
    how = {"evaluate_episodes": 0, "evaluate_every": 0, "log_every": 320}
    run = train(time_budget="0.001s", out=tmp_path / "run", **how)
    stopped = run.result["stopped"]
    assert (stopped["by"], stopped["step"]) == ("time-budget", 32)  # the first look at the clock
    assert [row["step"] for row in rows(tmp_path / "run")] == [32]
    again = sterling.resume(tmp_path / "run", time_budget="1h")
    assert again.result["steps"] == 640
    assert "stopped" not in again.result
    assert [row["step"] for row in rows(tmp_path / "run")] == [32, 320, 640]
    same(again.agent.state, train(**how).agent.state)


@pytest.mark.slow
def test_callback_stop_ends_the_run_within_its_phase(tmp_path):
    then = [{"steps": 128, "env.max_episode_steps": 50}, {"steps": 64}]
    path = tmp_path / "run"
    run = train(128, then=then, callbacks=[StopsAt(192)], out=path, keep="best")
    assert (run.result["stopped"]["phase"], run.result["steps"]) == (2, 192)
    assert [each["steps"] for each in run.result["phases"]] == [128, 64]
    loaded = sterling.load(path)
    assert loaded.settings.env_options == {"max_episode_steps": 50}
    assert loaded.evaluate(2)["return"] == run.result["final"]["return"]
    again = sterling.resume(path, stop_at="off")
    assert [each["steps"] for each in again.result["phases"]] == [128, 128, 64]
    same(again.agent.state, train(128, then=then).agent.state)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"stop_at": 1.0, "evaluate_episodes": 0}, "stop_at need evaluations"),
        ({"stop_at": "high"}, "stop_at must be a finite return"),
        ({"patience": 1.5}, "patience .* must be a whole number"),
        ({"time_budget": "soon"}, "Cannot parse time_budget='soon'"),
        ({"keep": "all"}, "Unknown keep='all'"),
    ],
)
def test_stop_options_without_effect_are_refused(options, words, tmp_path):
    with pytest.raises(Mistake, match=words) as caught:
        train(64, out=tmp_path / "run", **options)
    assert "\n" not in str(caught.value)


def test_resume_refuses_options_that_change_nothing(plain):
    path = plain[1]
    with pytest.raises(Mistake, match=r"is finished\. Give a larger budget"):
        sterling.resume(path, time_budget=1)
    with pytest.raises(Mistake, match="resume has no option 'stop'"):
        sterling.resume(path, stop=1)
    with pytest.raises(Mistake, match=r"kept no best policy\. Train with keep"):
        _ = sterling.load(path).best


@pytest.mark.slow
def test_stop_and_best_policy_options_of_the_commands(tmp_path, capsys):
    path = str(tmp_path / "run")
    small = [word for name in ("length", "minibatch", "epochs", "width")
             for word in (f"--{name}", str(PPO[name]))]  # fmt: skip
    words = ["train", "ppo", HERE, "--steps", "640", "--seeds", "2", "--envs", "4", "--no-preset"]
    words += [*small, "--env", "max_episode_steps=100", "--evaluate-episodes", "2", "--quiet"]
    words += ["--stop-at", "1", "--patience", "9", "--time-budget", "1h", "--keep", "best"]
    assert cli.main([*words, "--out", path]) == 0
    said = capsys.readouterr().out
    assert "stopped early" in said
    assert "by stop-at: the mean return" in said
    assert "best policy" in said
    assert cli.main(["evaluate", path, "--policy", "best", "--episodes", "2"]) == 0
    best = json.loads((tmp_path / "run" / "result.json").read_text())["best"]
    shown = capsys.readouterr().out.splitlines()
    assert shown[0] == f"policy     best, of {', '.join(map(str, best['progress']))}"
    assert [float(line.split()[-1]) for line in shown[1:3]] == best["final"]["return"]["per_seed"]
    film = str(tmp_path / "film.gif")
    assert cli.main(["play", path, "--policy", "best", "--steps", "3", "--video", film]) == 0
    assert cli.main(["check-scores", path]) == 0
    assert "stopped early at" in capsys.readouterr().out
    assert cli.main(["compare", path]) == 0
    assert "by stop-at" in capsys.readouterr().out
    assert cli.main(["resume", path, "--stop-at", "off", "--patience", "off", "--quiet"]) == 0
    assert "stopped" not in json.loads((tmp_path / "run" / "result.json").read_text())
    (result,), _ = read_results([path])
    assert result.steps == 640
