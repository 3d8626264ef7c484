"""Scores from files, and their normalisation."""

import json

import numpy as np
import pytest

from sterling.statistics import Scores, Table, estimate, load, normalise, table, tables
from sterling.statistics.scores.load_scores import load_single_algorithm
from sterling.types import Mistake


def run_folder(path, algorithm, environment, scores, seeds=None):
    path.mkdir(parents=True)
    seeds = seeds or list(range(len(scores)))
    facts = {"algorithm": algorithm, "environment": environment, "seeds": seeds}
    (path / "config.json").write_text(json.dumps(facts))
    result = facts | {"final": {"return": {"per_seed": scores}}}
    (path / "result.json").write_text(json.dumps(result))
    rows = [
        {"step": 10, "data/return": [1.0, None], "failed": []},
        {"step": 20, "failed": []},
        {"step": 30, "data/return": [3.0, 5.0], "failed": [seeds[1]] if scores[1] is None else []},
    ]
    (path / "metrics.jsonl").write_text("".join(json.dumps(r) + "\n" for r in rows) + '{"torn')
    return path


def test_load_scores_from_run_folders(tmp_path):
    ppo = [
        run_folder(tmp_path / "ppo-a", "ppo", "Ant-v5", [1.0, 2.0]),
        run_folder(tmp_path / "ppo-b", "ppo", "Hopper-v5", [3.0, None], [0, 7]),
    ]
    sac = run_folder(tmp_path / "sac-a", "sac", "Ant-v5", [4.0, 5.0])
    found = load(*ppo, sac)
    assert list(found) == ["ppo", "sac"]
    scores = found["ppo"]
    assert (scores.runs, scores.tasks) == (("0", "1", "7"), ("Ant-v5", "Hopper-v5"))
    assert scores.mask.tolist() == [[True, True], [True, False], [False, True]]
    with pytest.raises(Mistake, match="1 of 4 scores are not finite"):
        estimate(scores)
    made = estimate(scores, failed=0.0)
    assert made.value == pytest.approx((1.5 + 1.5) / 2)
    assert made.method == "t; 1 of 4 failed, counted as 0"
    assert Scores.load(sac).values.tolist() == [[4.0], [5.0]]
    with pytest.raises(Mistake, match="the files hold ppo, sac"):
        Scores.load(*ppo, sac)


def test_load_scores_keeps_two_settings_of_one_algorithm_apart(tmp_path):
    slow = run_folder(tmp_path / "slow", "ppo", "Ant-v5", [1.0, 2.0])
    fast = run_folder(tmp_path / "fast", "ppo", "Ant-v5", [3.0, 4.0])
    assert list(load(slow, fast)) == ["slow", "fast"]
    for parent, scores in (("one", [1.0, 2.0]), ("other", [3.0, 4.0])):
        (tmp_path / parent).mkdir()
        run_folder(tmp_path / parent / "same", "ppo", "Ant-v5", scores)
    with pytest.raises(Mistake, match=r"two folders named 'same' .*; rename one"):
        load(tmp_path / "one" / "same", tmp_path / "other" / "same")


def test_load_scores_curves_from_run_folders(tmp_path):
    folder = run_folder(tmp_path / "run", "ppo", "Ant-v5", [1.0, 2.0])
    scores = load(folder, what="curve")["ppo"]
    assert scores.steps.tolist() == [10.0, 30.0]
    assert scores.values[:, 0].tolist() == [[1.0, 3.0], [5.0, 5.0]]  # level where nothing is known
    assert scores.final().values.tolist() == [[3.0], [5.0]]
    failed = run_folder(tmp_path / "failed", "ppo", "Ant-v5", [1.0, None])
    assert np.isnan(load(failed, what="curve")["ppo"].values[1, 0]).tolist() == [False, True]


def test_load_scores_curves_of_two_environments_share_steps(tmp_path):
    def logged(name, environment, rows):
        folder = run_folder(tmp_path / name, "ppo", environment, [1.0, 2.0])
        lines = [json.dumps({"step": at, "data/return": both}) + "\n" for at, both in rows]
        (folder / "metrics.jsonl").write_text("".join(lines))
        return folder

    ant = logged("ant", "Ant-v5", [(10, [1, 2]), (20, [3, 4]), (40, [5, 6])])
    hopper = logged("hopper", "Hopper-v5", [(0, [0, 10]), (15, [3, 40]), (30, [6, 10])])
    found = load(ant, hopper, what="curve")["ppo"]
    assert found.tasks == ("Ant-v5", "Hopper-v5")
    assert found.steps.tolist() == [10.0, 20.0]  # 40 lies beyond the second's last
    np.testing.assert_allclose(found.values[:, 0], [[1, 3], [2, 4]])
    np.testing.assert_allclose(found.values[:, 1], [[2, 4], [30, 30]])  # straight in between
    late = logged("late", "Walker2d-v5", [(0, [1, 1]), (5, [2, 2])])
    with pytest.raises(Mistake, match="no steps in common"):
        load(ant, late, what="curve")


def test_load_scores_joins_files_unless_a_name_repeats(tmp_path):
    one, two, again = (tmp_path / f"{name}.csv" for name in ("one", "two", "again"))
    one.write_text("PPO\n1\n2\n")
    two.write_text("SAC\n3\n4\n")
    again.write_text("PPO\n5\n6\n")
    found = load(one, two)
    assert {name: scores.values[:, 0].tolist() for name, scores in found.items()} == {
        "PPO": [1.0, 2.0],
        "SAC": [3.0, 4.0],
    }
    with pytest.raises(Mistake, match="'PPO' is in two of the files"):
        load(one, two, again)


def test_load_scores_from_long_csv(tmp_path):
    path = tmp_path / "scores.csv"
    path.write_text(
        "algorithm,env,seed,return\nppo,Ant,0,1\nppo,Ant,1,2\nppo,Hopper,0,\nppo,Hopper,1,nan\n"
        "sac,Ant,0,5\n"
    )
    found = load(path)
    assert found["ppo"].tasks == ("Ant", "Hopper")
    assert found["ppo"].mask.tolist() == [[True, False], [True, True]]
    assert found["sac"].values.tolist() == [[5.0]]
    timed = tmp_path / "timed.csv"
    timed.write_text("step,seed,score\n0,0,1\n10,0,3\n10,1,4\n0,1,2\n")
    scores = Scores.load(timed)
    assert scores.steps.tolist() == [0.0, 10.0]
    assert scores.values[:, 0].tolist() == [[1.0, 3.0], [2.0, 4.0]]
    timed.write_text("seed,score\n0,1\n0,2\n")
    with pytest.raises(Mistake, match="two scores of timed, task 0, run 0"):
        load(timed)


def test_load_scores_from_wide_csv(tmp_path):
    path = tmp_path / "walker.csv"
    path.write_text(",PPO,SAC\n0,1.5,2.5\n1,3.5,\n")  # as adastop and pandas write them
    found = load(path)
    assert found["PPO"].values[:, 0].tolist() == [1.5, 3.5]
    assert found["SAC"].values[:, 0].tolist() == [2.5]
    tasks = Scores.load(path)
    assert (tasks.name, tasks.tasks) == ("walker", ("PPO", "SAC"))
    assert tasks.mask.tolist() == [[True, True], [True, False]]
    with pytest.raises(Mistake, match="the files hold PPO, SAC"):
        load_single_algorithm([path], columns="algorithm")
    path.write_text(",PPO\n0,good\n")
    with pytest.raises(Mistake, match="'good' is not a score"):
        load(path)


def test_load_scores_curves_from_wide_csv(tmp_path):
    path = tmp_path / "runs.csv"
    path.write_text("Step,ppo,sac\n1000,1,2\n2000,3,\n3000,5,6\n")
    found = load(path)
    assert found["ppo"].values.tolist() == [[[1.0, 3.0, 5.0]]]
    assert found["sac"].steps.tolist() == [1000.0, 3000.0]
    assert found["sac"].final().values.tolist() == [[6.0]]
    assert load(path, columns="task")["runs"].tasks == ("ppo", "sac")
    path.write_text("step,seed,ppo\n1,7,1\n2,7,3\n1,8,5\n2,8,6\n")
    assert load(path)["ppo"].runs == ("7", "8")
    path.write_text("step,seed,ppo\n1,7,1\n1,7,3\n")
    with pytest.raises(Mistake, match="two scores of ppo, task 0, run 7, step 1"):
        load(path)
    path.write_text("step,ppo\n,1\n")
    with pytest.raises(Mistake, match="'' is not a step; write a number"):
        load(path)


def test_load_scores_aligns_runs_logged_at_different_steps(tmp_path, monkeypatch):
    path = tmp_path / "own.csv"
    path.write_text("seed,step,score\n0,10,1\n0,20,3\n1,11,2\n1,15,nan\n1,21,4\n2,10,7\n2,12,nan\n")
    scores = Scores.load(path)
    assert scores.steps.tolist() == [10, 11, 12, 15, 20, 21]
    first, second, third = scores.values[:, 0].tolist()
    assert first == pytest.approx([1.0, 1.1 + 0.1, 1.4, 2.0, 3.0, 3.0])
    assert second[:3] == pytest.approx([2.0, 2.0, 2.2])
    assert np.isnan(second[3:]).tolist() == [True, True, False]
    assert np.isnan(third).tolist() == [False, False, True, True, True, True]
    np.testing.assert_array_equal(scores.final().values[:, 0], [3.0, 4.0, np.nan])
    assert scores.ends[:, 0].tolist() == [20.0, 21.0, 12.0]
    assert scores.select(["0"]).ends.shape == (3, 1)
    monkeypatch.setattr("sterling.statistics.scores.score_csv.MAX_TIME_POINTS", 2)
    few = Scores.load(path)
    assert few.steps.tolist() == [12.0, 21.0]
    np.testing.assert_array_equal(few.final().values[:, 0], [3.0, 4.0, np.nan])


def test_load_scores_from_json(tmp_path):
    path = tmp_path / "SPR.json"
    path.write_text(json.dumps({"Alien": [1, 2, 3], "Pong": [-1, None]}))
    scores = Scores.load(path)
    assert (scores.name, scores.tasks) == ("SPR", ("Alien", "Pong"))
    assert scores.mask.tolist() == [[True, True], [True, True], [True, False]]
    assert list(load(path)) == ["Alien", "Pong"]
    path.write_text(json.dumps({"ppo": {"Ant": [1, 2]}, "sac": {"Ant": [3]}}))
    assert load(path)["sac"].tasks == ("Ant",)
    path.write_text(json.dumps({"ppo": [[1, 2], [3, 4]]}))
    assert load(path)["ppo"].values.shape == (2, 2)
    path.write_text(json.dumps([1, 2, 3]))
    assert Scores.load(path).values.shape == (3, 1)
    path.write_text(json.dumps([{"game": "Pong", "seed": i, "score": i} for i in (0, 1)]))
    assert Scores.load(path).values.tolist() == [[0.0], [1.0]]
    path.write_text("{")
    with pytest.raises(Mistake, match="is not valid JSON"):
        load(path)
    path.write_text(json.dumps({"ppo": ["a"]}))
    with pytest.raises(Mistake, match="numbers or null"):
        load(path)


def test_load_scores_refuses_missing_and_unknown_files(tmp_path):
    with pytest.raises(Mistake, match="nothing to load"):
        load()
    with pytest.raises(Mistake, match="does not exist"):
        load(tmp_path / "none.csv")
    with pytest.raises(Mistake, match=r"has no result\.json"):
        load(tmp_path)
    (tmp_path / "notes.txt").write_text("")
    with pytest.raises(Mistake, match="neither a run folder nor"):
        load(tmp_path / "notes.txt")


def test_normalisation_tables_are_complete():
    assert tables() == ["atari", "d4rl", "dmc", "minatar", "mujoco-td3"]
    assert len(table("atari").scores) == 57
    for name in tables():
        made = table(name)
        assert made.source
        assert made.meaning
        assert made.identity == f"{name}/{made.version}"
        for low, high in made.scores.values():
            assert low < high


def test_normalisation_table_references_match_published_values():
    assert table("atari").references("ALE/Breakout-v5") == (1.7, 30.5)
    assert table("atari").references("BreakoutNoFrameskip-v4") == (1.7, 30.5)
    assert table("atari").references("road_runner") == (11.5, 7845.0)
    assert table("d4rl").references("hopper-medium-replay-v2") == (-20.272305, 3234.3)
    assert table("d4rl").references("maze2d-umaze-dense-v1") == (68.537689, 193.66285642381482)
    assert table("d4rl").references("antmaze-large-diverse-v0") == (0.0, 1.0)
    assert table("minatar").references("SpaceInvaders-MinAtar") == (0.0, 131.0)
    assert table("dmc").references("walker-run") == (0.0, 1000.0)
    with pytest.raises(Mistake, match="has no task 'Breakot'; did you mean breakout"):
        table("atari").references("Breakot")
    with pytest.raises(Mistake, match="unknown normalisation table 'procgen'"):
        table("procgen")


def test_normalisation_table_strips_the_longest_task_suffix():
    two = Table(
        "own",
        1,
        "",
        "",
        {"maze": (0.0, 1.0), "maze-wide": (0.0, 9.0)},
        None,
        ("dense", "wide-dense"),
    )
    assert two.references("maze-wide-dense") == (0.0, 1.0)
    assert two.references("maze-dense") == (0.0, 1.0)


def test_normalisation_table_tells_minatar_from_atari():
    for name in ("Breakout-MinAtar", "MinAtar/Breakout-v1", "minatar:breakout"):
        assert table("minatar").references(name) == (0.0, 28.0)
        with pytest.raises(
            Mistake, match=f"the table atari/1 has no task '{name}'; use the table minatar"
        ):
            table("atari").references(name)
    own = Table("own", 1, "", "", {"Breakout-MinAtar": (0.0, 9.0), "Breakout": (0.0, 30.0)})
    assert own.references("Breakout-MinAtar") == (0.0, 9.0)
    assert own.references("ALE/Breakout-v5") == (0.0, 30.0)
    both = Table("own", 1, "", "", {"Breakout": (0.0, 30.0), "Breakout-MinAtar": (0.0, 9.0)})
    assert both.references("ALE/Breakout-v5") == (0.0, 30.0)


def test_normalised_scores_name_their_table():
    scores = Scores.from_values(
        [[1.7, -20.7], [30.5, 14.6]], tasks=["Breakout", "Pong"], name="ppo"
    )
    made = normalise(scores, "atari")
    np.testing.assert_allclose(made.values, [[0, 0], [1, 1]])
    assert (made.normaliser, made.name) == ("atari/1", "ppo")
    with pytest.raises(Mistake, match="normalised by atari/1 already"):
        normalise(made, "atari")
    own = Table("mine", 3, "measured here", "0 nothing, 1 all", {"a": (0.0, 10.0)})
    assert normalise([[5.0]], own, tasks=["a"]).values.tolist() == [[0.5]]
    flat = Table("flat", 1, "", "", {"a": (1.0, 1.0)})
    with pytest.raises(Mistake, match="equal references for 0 and 1 on 'a'"):
        normalise([[5.0]], flat, tasks=["a"])


def test_normalise_applies_to_learning_curves():
    curves = Scores.from_values(np.full((2, 1, 3), 500.0), tasks=["walker-run"], steps=[0, 1, 2])
    assert (normalise(curves, "dmc").values == 0.5).all()


def test_scores_refuse_names_that_do_not_match():
    with pytest.raises(Mistake, match="do not match a table"):
        Scores.from_values([[1.0, 2.0]], tasks=["a"])
    with pytest.raises(Mistake, match="named twice"):
        Scores.from_values([[1.0, 2.0]], tasks=["a", "a"])
    with pytest.raises(Mistake, match="mask has shape"):
        Scores.from_values([[1.0, 2.0]], mask=[[True]])
    with pytest.raises(Mistake, match="no scores on 'c'"):
        Scores.from_values([[1.0, 2.0]], tasks=["a", "b"]).select(["c"])
    chosen = Scores.from_values([[1.0, 2.0]], tasks=["a", "b"]).select(["b"])
    assert chosen.values.tolist() == [[2.0]]
