"""``sterling evaluate``: in the world beside the behaviour, and without a world."""

import functools
import json
import re

import numpy as np
import pytest

import sterling
from sterling.cli import main
from sterling.commands import evaluate
from sterling.data_generation.tabular_logs import make_log
from sterling.envs.native.tabular_mdp import LIMIT, make_tabular
from sterling.evaluation import METHODS, TrainedPolicy, compare_with_behaviour
from sterling.types import Mistake

NAME, GAMMA = "random-16x4-0", 0.9
MDP = make_tabular(NAME)
BEST = MDP.greedy(MDP.optimal(GAMMA))
ACTING = MDP.greedy(MDP.optimal(GAMMA), 0.6)


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A log of a policy that does the best or, in 60 % of steps, anything; two clones of it."""
    home = tmp_path_factory.mktemp("evaluate")
    make_log(MDP, ACTING, 200, LIMIT, 0).save(home / "log")
    run = sterling.train(
        *("bc", f"tabular:{NAME}"),
        **{"data": str(home / "log"), "updates": 600, "seeds": 2, "out": home / "run"},
        **{"lr": 3e-3, "width": 32, "evaluate_episodes": 0},
    )
    return home, run


def numbers(line):
    return [float(x) for x in re.findall(r"-?\d+\.\d+", line.split("%")[0])]


@pytest.mark.slow
def test_evaluate_command_compares_a_run_with_the_behaviour_of_its_log(made, capsys, monkeypatch):
    home, _ = made
    quick = functools.partial(compare_with_behaviour, updates=20, width=8)
    monkeypatch.setattr("sterling.evaluation.compare_with_behaviour", quick)
    assert main(["evaluate", str(home / "run"), "--episodes", "50"]) == 0
    told = capsys.readouterr().out
    lines = {line.split("  ")[0]: line for line in told.splitlines()}
    for name in ("bc (mode)", "behaviour (sampled)", "behaviour (mode)"):
        assert "over 2 seeds" in lines[name]
    assert "over episodes" in lines["log, all episodes"]
    assert "log, best tenth" in lines
    assert re.search(r"seed 0 .*\nseed 1 ", told)


@pytest.mark.slow
def test_evaluate_run_in_the_environment_separates_mode_from_sampling(made):
    """The behaviour's likeliest action is the best one, which is worth more than twice as much."""
    home, run = made
    data = sterling.Dataset(home / "log")
    found = compare_with_behaviour(run, data, 200, updates=600, width=32, lr=3e-3)
    best, acting = (MDP.expected_return(policy, 1.0, LIMIT) for policy in (BEST, ACTING))
    assert best > 2 * acting
    assert found.agent.value == pytest.approx(best, rel=0.15)
    assert found.deterministic.value == pytest.approx(best, rel=0.15)
    assert found.sampled.value == pytest.approx(acting, rel=0.2)
    assert found.dataset.value == pytest.approx(data.returns.mean())
    assert found.best.value == pytest.approx(data.top(0.1).returns.mean())
    assert len(found.per_seed) == 2


def test_off_policy_evaluation_without_an_environment_equals_the_table(made, capsys):
    home, _ = made
    words = ["--data", str(home / "log"), "--method", "model", "--gamma", str(GAMMA)]
    assert main(["evaluate", str(home / "run"), *words]) == 0
    told = capsys.readouterr().out.splitlines()
    assert told[0].startswith("return discounted by 0.9 a step, by model")
    right = MDP.expected_return(BEST, GAMMA)
    for line in told[1:3]:
        assert "(mode)" in line
        value, low, high = numbers(line.split(")", 1)[1])
        assert value == pytest.approx(right, abs=0.5)
        assert low < right < high
    assert told[3].startswith("behaviour")
    assert numbers(told[3])[0] == pytest.approx(MDP.expected_return(ACTING, GAMMA), abs=0.4)


@pytest.mark.parametrize(
    "method", ["wpdis", *(pytest.param(x, marks=pytest.mark.slow) for x in ("fqe", "wdr"))]
)
def test_evaluate_command_passes_options_to_every_off_policy_method(made, capsys, method):
    home, _ = made
    words = ["--method", method, "--policy", "sampled", "--gamma", "0.9"]
    words += [] if method == "wpdis" else ["--updates", "20"]
    words += ["--behaviour", "cloned"] if method == "wdr" else []
    assert main(["evaluate", str(home / "run"), *words]) == 0
    told = capsys.readouterr().out
    assert "seed 1 (sampled)" in told
    assert method in told


def test_evaluate_command_knows_every_off_policy_method():
    assert evaluate.METHODS == METHODS


def test_trained_policy_is_of_the_requested_seed(made):
    home, run = made
    data = sterling.Dataset(home / "log")
    one, other = (TrainedPolicy.from_run(run, data.spec, seed) for seed in (0, 1))
    obs, action = data.transitions(np.arange(5)).obs, data.transitions(np.arange(5)).action
    assert not np.allclose(one.log_prob(obs, action), other.log_prob(obs, action))


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--method", "fqe", "--evaluate-limit", "9"], "--evaluate-limit is for episodes in the"),
        (["--evaluate-limit", "0"], "evaluate_limit must be a whole number of at least 1"),
        (["--episodes", "1e9"], "episodes must be at most 1,000,000"),
        (["--policy", "sampled"], "Add --method, or leave it out"),
        (["--method", "fqe", "--data", "nowhere"], "no file nowhere"),
        (["--method", "fqe", "--behaviour", "cloned"], "no field 'behaviour'"),
    ],
)
def test_evaluate_command_refuses_wrong_options_in_one_line(made, capsys, words, said):
    assert main(["evaluate", str(made[0] / "run"), *words]) == 2
    told = capsys.readouterr().err
    assert said in told
    assert told.count("\n") == 1


def test_evaluate_run_refuses_a_dataset_of_another_environment(made, tmp_path):
    for name in ("chain-8", "random-16x3-0"):
        world = make_tabular(name)
        other = make_log(world, np.full(world.reward.shape, 1 / world.actions), 3, 10, 0)
        with pytest.raises(Mistake, match="use a dataset of the policy's environment"):
            compare_with_behaviour(made[1], other, 5)


@pytest.mark.slow
def test_evaluate_command_works_without_the_dataset(made, tmp_path, capsys):
    home, _ = made
    moved = (home / "log").rename(home / "moved")
    try:
        assert main(["evaluate", str(home / "run"), "--episodes", "5"]) == 0
        assert "does not exist any more" in capsys.readouterr().out
        assert main(["evaluate", str(home / "run"), "--data", str(moved), "--episodes", "5"]) == 0
        assert "behaviour (mode)" in capsys.readouterr().out
    finally:
        moved.rename(home / "log")


@pytest.mark.parametrize(
    "words", [pytest.param(["--episodes", "5"], marks=pytest.mark.slow), ["--method", "wis"]]
)
def test_as_json_it_is_one_object_and_remarks_stand_beside_it(made, words, capsys, monkeypatch):
    home, _ = made
    quick = functools.partial(compare_with_behaviour, updates=2, width=8)
    monkeypatch.setattr("sterling.evaluation.compare_with_behaviour", quick)
    assert main(["evaluate", str(home / "run"), *words, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert set(found["per_seed"]) == (set() if "--method" in words else {"0", "1"})
    assert found["estimates"]
    assert found["title"]
