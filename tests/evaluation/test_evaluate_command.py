"""``sterling evaluate``: in the world beside the behaviour, and without a world."""

import functools
import json
import re
import shutil

import numpy as np
import pytest

import sterling
from sterling.cli import main
from sterling.commands import evaluate
from sterling.data_generation.tabular_logs import make_log
from sterling.envs.native.tabular_mdp import LIMIT, make_tabular
from sterling.evaluation import METHODS, TrainedPolicy, compare_with_behaviour
from sterling.statistics import Estimate
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
        (["--evaluate-limit", "0"], "--evaluate-limit must be a whole number of at least 1"),
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


@pytest.fixture(scope="module")
def runs(made):
    """The folders of three runs: the trained one and two copies of it."""
    home, run = made
    for name in ("b", "c"):
        shutil.copytree(run.path, home / name)
    return [str(home / name) for name in ("run", "b", "c")]


@pytest.fixture
def estimated(monkeypatch):
    """Estimates in the order of runs and seeds, in place of those from the dataset."""

    def put(*values, half=1.0):
        left = iter(values)

        def estimate(policy, data, method, **how):
            value = next(left)
            ends = (None, None) if half is None else (value - half, value + half)
            return Estimate(value, *ends, 9, "fqe, 5 networks", 0.95)

        monkeypatch.setattr("sterling.evaluation.estimate_policy_value", estimate)

    return put


def test_evaluate_command_ranks_several_runs_by_estimates_from_their_dataset(
    runs, estimated, capsys
):
    estimated(1, 2, 7, 9, 4, 5)
    assert main(["evaluate", *runs, "--method", "fqe"]) == 0
    title, head, *rows, _, last = capsys.readouterr().out.splitlines()
    assert title.startswith("return discounted by 0.99 a step, by fqe from")
    assert head.split() == ["run", "seeds", "mean", "interval"]
    assert [row.split()[:2] for row in rows[:3]] == [["1", runs[1]], ["2", runs[2]], ["3", runs[0]]]
    assert "8.000 [7.000, 9.000]" in rows[0]  # the means of the two seeds' values and bounds
    assert rows[3].split()[0] == "behaviour"
    assert last == f"{runs[1]} is the best: its interval lies above those of the others."


def test_ranking_as_json_has_the_best_run_first(runs, estimated, capsys):
    estimated(1, 2, 7, 9, 4, 5)
    assert main(["evaluate", *runs, "--method", "fqe", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [one["run"] for one in found["runs"]] == [runs[1], runs[2], runs[0]]
    assert found["runs"][0]["per_seed"] == {"0": 7, "1": 9}
    best = found["runs"][0]["estimate"]
    assert (best["low"], best["value"], best["high"]) == (7, 8, 9)
    assert found["behaviour"]["value"]


def test_ranking_distinguishes_no_runs_whose_intervals_overlap(runs, estimated):
    estimated(1, 1, 7, 9, 6, 7)
    found = sterling.evaluate(runs, method="fqe")
    assert found.conclusion.startswith(f"{runs[1]} and {runs[2]} are not distinguished")
    estimated(1, 1, 7, 9, 6, 7, half=None)
    found = sterling.evaluate(runs, method="fqe")
    assert [run.label for run in found.runs] == [runs[1], runs[2], runs[0]]
    assert "are not distinguished" in found.conclusion


@pytest.mark.slow
def test_evaluate_command_ranks_several_runs_by_returns(runs, capsys):
    assert main(["evaluate", *runs[:2], "--episodes", "5"]) == 0
    told = capsys.readouterr().out
    assert told.startswith(f"return in tabular:{NAME}, 5 episodes per seed")
    assert "are not distinguished" in told


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["{0}", "{0}", "--method", "wis"], "is given twice"),
        (["{0}", "{1}", "--data", "log"], "--data compares one run with a dataset"),
        (["{0}", "{1}", "--samples", "4"], "--samples is for runs that train a language model"),
    ],
)
def test_runs_that_cannot_be_ranked_are_refused_in_one_line(runs, capsys, words, said):
    assert main(["evaluate", *(word.format(*runs) for word in words)]) == 2
    told = capsys.readouterr().err
    assert said in told
    assert told.count("\n") == 1
