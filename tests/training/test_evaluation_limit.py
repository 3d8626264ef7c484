"""Judging the agents of a run by episodes."""

import io

import gymnasium
import jax.numpy as jnp
import numpy as np
import pytest
from rich.console import Console

import sterling
from sterling import envs
from sterling.cli import main
from sterling.report.live.live_progress import Progress
from sterling.report.run_caveats import collect_cautions
from sterling.report.runs.read_runs import read_results
from sterling.report.runs.run_groups import group_results
from sterling.training.evaluation import evaluate_policy as evaluating
from sterling.training.evaluation import evaluator as judging
from sterling.training.evaluation.evaluate_policy import evaluate
from sterling.training.evaluation.evaluator import Evaluator


@pytest.fixture(scope="module")
def run():
    return sterling.train(
        "ppo", "gymnasium:Pendulum-v1", steps=64, seeds=2, envs=2, length=16, minibatch=32,
        epochs=1, width=8, evaluate_episodes=0, env_options={"workers": 0},
    )  # fmt: skip


def endless():
    """Pendulum without its time limit: no episode ever ends."""
    return gymnasium.make("Pendulum-v1").unwrapped


@pytest.mark.slow
def test_evaluation_cuts_endless_episodes_at_evaluate_limit(capsys, monkeypatch):
    monkeypatch.setattr(evaluating, "PROGRESS_SECONDS", 0.0)
    made = sterling.train(
        "ppo", endless, steps=64, envs=2, length=16, minibatch=32, epochs=1, width=8,
        evaluate_episodes=2, evaluate_limit=150, env_options={"workers": 0},
    )  # fmt: skip
    told = capsys.readouterr().err
    assert "evaluating: 0 of 2 episodes have ended after 100 of at most 200 steps" in told
    assert "2 of 2 evaluation episodes had not ended after 200 steps" in told
    assert "--evaluate-limit N" in told
    assert made.settings.evaluate_limit == 150
    assert made.result["unended"] == [2]
    judge = Evaluator(made.settings, 2)
    assert judge(made.agent)["length"].tolist() == [[200, 200]]
    judge.close()


@pytest.mark.slow
def test_evaluate_limit_argument_counts_unended_episodes(run):
    """Pendulum's episodes are of 200 steps: with a limit of 100 none ends."""
    short, whole = run.evaluate(3, limit=100), run.evaluate(3)
    assert (short["unended"], whole["unended"]) == ([3, 3], [0, 0])
    assert all(
        one > other  # costs of half as many steps
        for one, other in zip(short["return"]["per_seed"], whole["return"]["per_seed"], strict=True)
    )
    with pytest.raises(sterling.Mistake, match=r"evaluate_limit must be .* at least 1"):
        run.evaluate(3, limit=0)


def test_invalid_evaluate_limit_is_refused():
    for limit in (0, 10**8):
        with pytest.raises(sterling.Mistake, match="evaluate_limit"):
            sterling.train("ppo", "CartPole-v1", steps=8, evaluate_limit=limit)


@pytest.mark.slow
def test_evaluate_command_takes_a_limit_and_reports_unended_episodes(tmp_path, capsys):
    made = sterling.train(
        "ppo", "gymnasium:Pendulum-v1", steps=64, envs=2, length=16, minibatch=32, epochs=1,
        width=8, evaluate_episodes=3, evaluate_limit=100, env_options={"workers": 0},
        out=tmp_path / "run",
    )  # fmt: skip
    assert made.result["unended"] == [3]
    words = ["evaluate", str(tmp_path / "run"), "--episodes", "2"]
    for limit, ended in (("100", False), ("200", True)):
        capsys.readouterr()
        assert main([*words, "--evaluate-limit", limit]) == 0
        assert ("2 of 2 evaluation episodes had not ended" in capsys.readouterr().err) != ended
    told = collect_cautions(group_results(read_results([tmp_path / "run"])[0])[0], [])
    assert any("3 evaluation episodes did not end" in line for line in told)


def test_progress_line_says_when_no_episode_has_ended():
    screen = io.StringIO()
    shown = Progress(1000, 1, "ppo", Console(file=screen, width=200))
    row = {"step": 100, "data/return": [None], "time/steps_per_second": 1.0}
    shown.write({**row, "data/episodes": [0]})
    shown.write({**row, "step": 300, "data/return": [2.0], "data/episodes": [1]})
    shown.close()
    first, second = [line for line in screen.getvalue().splitlines() if "%" in line]
    assert "no return yet: no episode has ended" in first
    assert "no episode has ended" not in second
    assert "return 2" in second


class Short(gymnasium.Wrapper):
    """Counts all copies' steps."""

    steps = 0

    def step(self, action):
        Short.steps += 1
        return super().step(action)


def test_evaluation_stops_stepping_when_all_episodes_ended(run):
    def build():
        return Short(gymnasium.make("Pendulum-v1", max_episode_steps=7))

    world = envs.make(build, (0, 1), 2, purpose="evaluate", workers=0)
    Short.steps = 0
    found = evaluate(run.agent, world, jnp.asarray([0, 1], jnp.int32), 2)
    world.close()
    assert (found["length"] == 7).all()
    assert Short.steps == 7 * 4


def test_evaluation_splits_many_episodes_into_rounds_of_host_envs(run, monkeypatch):
    """So that few are held at once; nobody plays one episode twice."""
    monkeypatch.setattr(judging, "MAX_COPIES", 2)
    judge = Evaluator(run.settings, 5)
    found = judge(run.agent)
    judge.close()
    assert found["return"].shape == (2, 5)
    assert (found["length"] == 200).all()
    assert len(np.unique(found["return"])) == 10
