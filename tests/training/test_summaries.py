"""Summaries: one number of a seed's evaluation episodes, from a world or a user's file, in rows,
results and comparisons."""

import json
import re

import numpy as np
import pytest
from scipy import integrate

import sterling
from sterling import envs
from sterling.cli_options import parse_command_line
from sterling.commands import evaluate as command
from sterling.envs.make_world import option_names
from sterling.envs.summaries import cvar, hypervolume, worst_case
from sterling.envs.traced_world import TracedWorld
from sterling.envs.trials import Trials
from sterling.equations import pareto
from sterling.problem.channels import Channel
from sterling.problem.episode_summaries import Summary, check_summaries
from sterling.report.episodes.episodes_file import read_episodes
from sterling.report.episodes.summary_columns import summary_columns
from sterling.report.runs.read_runs import read_results
from sterling.training.processes.merge_results import merge_results
from sterling.tuning import tune
from sterling.types import Mistake

SMALL = {"length": 16, "minibatch": 64, "epochs": 1, "width": 8, "preset": False, "envs": 4}
GOOD = Summary(lambda episodes: float(episodes["return"].mean()), 1)
FILE = """
from sterling.envs.summaries import hypervolume, worst_case
from sterling.problem.episode_summaries import Summary

numbers = {
    "dearest": worst_case("cost", better=-1),
    "front": hypervolume(["return", "-cost"], reference=[-50.0, -200.0]),
    "broken": Summary(lambda episodes: 1.0 / (episodes["return"].size - 5), better=1),
}
"""


def columns(**given):
    return {name: np.asarray(x, np.float64) for name, x in given.items()}


def test_worst_case_is_the_smallest_return_and_the_largest_cost():
    episodes = columns(**{"return": [3.0, -1.0, 2.0], "cost": [0.0, 5.0, 1.0]})
    assert worst_case().of(episodes) == -1.0
    assert worst_case("cost", better=-1).of(episodes) == 5.0


@pytest.mark.parametrize("share", [0.05, 0.3, 0.5, 1.0])
@pytest.mark.parametrize("better", [1, -1])
def test_cvar_is_the_mean_quantile_of_the_worst_share(share, better):
    """Expected shortfall as the integral of the quantile function (Acerbi & Tasche 2002, eq. 3)."""
    values = np.array([4.0, -2.0, 7.0, 1.0, 0.5, 9.0, 3.0])
    worst_first = np.sort(better * values)
    points = np.arange(1, 7) / 7
    area, _ = integrate.quad(
        lambda p: worst_first[min(int(p * 7), 6)], 0.0, share, points=points[points < share]
    )
    found = cvar(share, "cost", better).of(columns(cost=values))
    assert found == pytest.approx(better * area / share)


def test_hypervolume_summary_turns_objectives_with_a_minus_round():
    episodes = columns(**{"dst.treasure": [1.0, 124.0], "dst.time": [1.0, 19.0]})
    found = hypervolume(["dst.treasure", "-dst.time"], reference=[0, -25]).of(episodes)
    assert found == 124 * (25 - 19) + 1 * (19 - 1)
    with pytest.raises(Mistake, match="2 objectives and a reference of 1 numbers"):
        hypervolume(["a", "b"], [0.0])
    with pytest.raises(Mistake, match=r"share of cvar must lie in \(0, 1\]"):
        cvar(0.0)


@pytest.mark.parametrize(
    ("name", "said"),
    [
        *((name, "of this name") for name in ("return", "ended", "cost", "terms")),
        ("a.b", "not a valid summary name"),
        (3, "not a valid summary name"),
    ],
)
def test_summary_names_that_clash_are_refused_in_one_line(name, said):
    channels = {"cost": Channel(), "terms": Channel(parts=("a", "b"))}
    with pytest.raises(Mistake, match=said) as caught:
        check_summaries({name: GOOD}, channels)
    assert "\n" not in str(caught.value)


def test_declarations_that_are_no_summaries_are_refused():
    with pytest.raises(Mistake, match="Make them a dict"):
        check_summaries([GOOD], {})
    with pytest.raises(Mistake, match=r"Summary\(of=function, better=1\)"):
        check_summaries({"front": len}, {})
    with pytest.raises(Mistake, match="of=3 is no function"):
        Summary(3, 1)
    with pytest.raises(Mistake, match="better=2 is not valid"):
        Summary(len, 2)
    with pytest.raises(Mistake, match="summary 'good': results have another number"):
        check_summaries({"good": GOOD}, {}, {"good": GOOD})


@pytest.mark.parametrize(
    ("of", "said"),
    [
        (lambda episodes: 1 / 0, r"raises ZeroDivisionError: division by zero \(test_summaries"),
        (lambda episodes: episodes["cots"].sum(), "have no column 'cots'; they have return, cost"),
        (lambda episodes: float("nan"), "returned nan, which is no finite number"),
        (lambda episodes: "high", "returned 'high', which is no finite number"),
        (lambda episodes: episodes["return"], "is no finite number"),
    ],
)
def test_a_summary_without_a_value_is_one_line_and_the_others_are_kept(of, said, capsys):
    found = {"return": np.ones((2, 3), np.float32), "cost": np.ones((2, 3), np.float32)}
    made = summary_columns(found, {"bad": Summary(of, 1), "good": GOOD}, (4, 7))
    assert np.isnan(made["bad"]).all()
    assert made["good"].tolist() == [[1.0], [1.0]]
    (line,) = capsys.readouterr().err.strip().splitlines()
    assert line.count("summary 'bad' has no value for seed 4, 7: ") == 1
    assert re.search(said, line)


def test_a_summary_cannot_change_the_episodes():
    def sorted_worst(episodes):
        episodes["return"].sort()
        return episodes["return"][0]

    found = {"return": np.array([[3.0, 1.0, 2.0]], np.float32)}
    summary_columns(found, {"worst": Summary(sorted_worst, 1)}, (0,))
    assert found["return"].tolist() == [[3.0, 1.0, 2.0]]


def test_a_task_declares_summaries_and_trials_keep_them():
    probe = envs.make("probe:objectives", (0,), 1).task
    probe_type = type("Front", (type(probe),), {"summaries": {"front": GOOD}})
    world = TracedWorld(probe_type(), (0,), 2)
    assert world.spec.summaries == {"front": GOOD}
    assert Trials(probe_type(), 2).summaries == {"front": GOOD}
    clash = type("Clash", (type(probe),), {"summaries": {"objectives": GOOD}})
    with pytest.raises(Mistake, match="summary 'objectives'"):
        TracedWorld(clash(), (0,), 2)


@pytest.mark.parametrize(
    ("reference", "said"),
    [
        ("numbers", "names no summaries"),
        ({"front": GOOD}, "names no summaries"),
        ("gone.py:numbers", "gone.py"),
        ("here.py:lost", "lost"),
        ("here.py:three", "Make them a dict"),
    ],
)
def test_references_to_no_summaries_are_refused(reference, said, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "here.py").write_text("three = 3\n")
    with pytest.raises(Mistake, match=said):
        envs.make("hazards:2x3", (0,), 1, summaries=reference)


def test_summaries_of_a_users_file_are_in_rows_results_and_comparisons(
    tmp_path, monkeypatch, capsys
):
    """A summary that raises costs a line; from another folder the run is evaluated again alike."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.py").write_text(FILE)
    sterling.train(
        "ppo", "hazards:2x3", steps=512, seeds=2, out="run", evaluate_episodes=5,
        evaluate_every=256, env={"summaries": "mine.py:numbers"}, **SMALL,
    )  # fmt: skip
    told = capsys.readouterr().err.splitlines()
    assert {line.partition(": it")[0] for line in told if "summary" in line} == {
        "summary 'broken' has no value for seed 0, 1"
    }
    final = json.loads((tmp_path / "run" / "result.json").read_text())["final"]
    kept = read_episodes(tmp_path / "run").columns
    assert set(kept) == {"return", "length", "ended", "cost"}
    assert final["dearest"]["per_seed"] == kept["cost"].max(1).tolist()
    assert (final["dearest"]["better"], final["front"].get("better", 1)) == (-1, 1)
    assert final["front"]["per_seed"] == [
        pareto.hypervolume(np.stack([gain, -cost], 1), np.array([-50.0, -200.0]))
        for gain, cost in zip(kept["return"], kept["cost"], strict=True)
    ]
    assert min(final["front"]["per_seed"]) > 0.0
    assert final["front"]["estimate"] == pytest.approx(np.mean(final["front"]["per_seed"]))
    assert (final["broken"]["per_seed"], final["broken"]["estimate"]) == ([None, None], None)
    rows = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").open()]
    row = next(row for row in rows if "evaluation/front" in row)
    assert len(row["evaluation/front"]) == 2
    assert row["evaluation/broken"] == [None, None]
    for metric in ("dearest", "evaluation/dearest"):
        (made,), _ = read_results(["run"], metric)[:2]
        assert made.better == -1
    monkeypatch.chdir("/")
    command.carry_out(parse_command_line(["evaluate", str(tmp_path / "run"), "--episodes", "5"]))
    assert len([x for x in capsys.readouterr().out.splitlines() if x.startswith("dearest")]) == 1


@pytest.mark.parametrize("name", ["gymnasium:CartPole-v1", "probe:cut"])
def test_every_environment_takes_summaries_of_a_file(name, tmp_path):
    (tmp_path / "other.py").write_text(FILE)
    world = envs.make(name, (0,), 1, summaries=f"{tmp_path}/other.py:numbers")
    world.close()
    assert list(world.spec.summaries) == ["dearest", "front", "broken"]
    assert "summaries" in (option_names(name) or {"summaries"})


def test_a_study_of_a_summary_scores_evaluation_episodes(tmp_path):
    (tmp_path / "study.py").write_text(FILE)
    where = {"env": {"summaries": f"{tmp_path}/study.py:numbers"}, "steps": 8_192}
    with pytest.raises(Mistake, match=r"dearest is a number of evaluation episodes.*final"):
        tune("ppo", "hazards:2x3", metric="dearest", objective="last", **where)
    with pytest.raises(Mistake, match=r"'dear': .* reports cost, dearest, front, broken"):
        tune("ppo", "hazards:2x3", metric="dear", **where)


@pytest.mark.slow
def test_a_study_looks_for_a_lower_summary(tmp_path):
    (tmp_path / "slow.py").write_text(FILE)
    small = {name: value for name, value in SMALL.items() if name not in ("preset", "envs")}
    made = tune(
        "ppo", "hazards:2x3", metric="dearest", steps=512, trials=3, seeds=2, test_seeds=2, envs=4,
        workers=1, space={"lr": "1e-7..0.05:log"}, out=tmp_path / "study", quiet=True,
        env={"summaries": f"{tmp_path}/slow.py:numbers"}, **small,
    )  # fmt: skip
    lines = [json.loads(line) for line in (tmp_path / "study" / "trials.jsonl").open()]
    costs = {line["trial"]: -sum(line["scores"]) / 2 for line in lines}
    assert (made.report["objective"], made.report["metric"]) == ("final", "dearest")
    assert made.report["incumbent"]["tuning"]["score"] == pytest.approx(min(costs.values()))
    assert made.report["incumbent"]["test"]["better"] == -1


def test_results_of_processes_are_merged_with_their_summaries():
    def part(seed, value, better):
        estimate = {"per_seed": [value], **({} if better == 1 else {"better": better})}
        final = {"return": {"per_seed": [1.0]}, "dearest": estimate}
        return {
            "seeds": [seed], "steps": 8, "final": final, "failed_seeds": [], "failures": {},
            "world_failures": [], "wall_seconds": 1.0, "compile_seconds": 0.0,
        }  # fmt: skip

    merged = merge_results([part(0, 2.0, -1), part(1, None, -1)], 1, 1.0, None)["final"]
    assert (merged["dearest"]["per_seed"], merged["dearest"]["better"]) == ([2.0, None], -1)
