"""What is read from run folders and files, and how it is put together."""

import json

import numpy as np
import pytest

from sterling.report.run_caveats import collect_cautions
from sterling.report.runs.read_runs import read_results
from sterling.report.runs.run_groups import CURVE_WINDOWS, group_results, unique_labels
from sterling.report.runs.setting_differences import differing_settings
from sterling.report.text_tables import distinguishing_endings
from sterling.types import Mistake


def only(results):
    assert len(results) == 1
    return results[0]


def test_read_results_of_a_run_folder(run):
    results, notes = read_results([run("a", "sac", [1.0, None, 3.0])])
    one = only(results)
    np.testing.assert_array_equal(one.scores, [1.0, np.nan, 3.0])
    assert (one.algorithm, one.environment, one.failed, one.steps) == (
        "sac",
        "Hopper-v5",
        [1],
        1000,
    )
    assert one.curves.returns.shape == (3, 20)
    assert notes == []


CHANGES = "Some runs were made by code with changes that were not committed (marked +)"


@pytest.mark.parametrize(
    ("first", "second", "told"),
    [
        (("aaaaaaaaa", False), ("aaaaaaaaa", False), []),
        (("aaaaaaaaa", False), ("aaaaaaaaa", True), [f"{CHANGES}, all at commit aaaaaaa."]),
        (("aaaaaaaaa", True), ("aaaaaaaaa", True), [f"{CHANGES}, all at commit aaaaaaa."]),
        (("aaaaaaaaa", False), ("bbbbbbbbb", False),
         ["The runs were made by 2 commits of the code (aaaaaaa and bbbbbbb)."]),
        (("aaaaaaaaa", False), ("bbbbbbbbb", True),
         ["The runs were made by 2 commits of the code (aaaaaaa and bbbbbbb+).", f"{CHANGES}."]),
        (("aaaaaaaaa", False), (None, False), []),
    ],
)  # fmt: skip
def test_run_caveats_mention_different_git_commits(first, second, told, run):
    runs = [
        run(name, name, [1.0] * 6, git={"commit": commit, "dirty": dirty})
        for name, (commit, dirty) in (("sac", first), ("ppo", second))
    ]
    found = collect_cautions(group_results(read_results(runs)[0])[0], [])
    assert [line for line in found if "commit" in line] == told


def test_run_caveats_mention_different_held_out_shares(run):
    shares = {"sft": 0.1, "dpo": 0.3, "reward": 0.1}
    made = {name: run(name, name, [1.0] * 6, speech={"held_out": x}) for name, x in shares.items()}

    def told(*names):
        return collect_cautions(group_results(read_results([made[x] for x in names])[0])[0], [])

    line = (
        "Different shares were held out (0.1 and 0.3); scores are of different questions or rows."
    )
    assert line in told("sft", "dpo")
    assert line not in told("sft", "reward")


def test_read_results_opens_folders_of_runs_and_skips_others(run, tmp_path):
    for name in ("b", "a"):
        run(f"all/{name}", name, [1.0, 2.0])
    (tmp_path / "empty").mkdir()
    results, notes = read_results([tmp_path / "all", tmp_path / "empty"])
    assert [one.algorithm for one in results] == ["a", "b"]
    assert notes == [f"{tmp_path / 'empty'} has no runs: skipped"]


def test_a_study_is_read_as_the_runs_of_its_contenders(run, tmp_path):
    for label, look in (("sac", "00"), ("sac", "01"), ("wide", "00")):
        run(f"study/{label}/{look}", "sac", [1.0, 2.0])
    (tmp_path / "study" / "question.json").write_text("{}")
    results, notes = read_results([tmp_path / "study"])
    assert [one.label for one in results] == ["sac", "sac", "wide"]
    assert notes == []


def test_read_results_of_an_unfinished_run_has_curve_but_no_score(run):
    results, notes = read_results([run("a", "sac", [1.0, 2.0], rows=7, finished=False)])
    assert only(results).scores is None
    assert only(results).steps == 350
    assert "is not finished (350 of 1,000 steps)" in notes[0]


def test_read_results_averages_a_metric_column_over_the_last_tenth(run):
    folder = run("a", "sac", [20.0, None], finished=False)
    one = only(read_results([folder], "data/return")[0])
    np.testing.assert_allclose(one.scores, [(18 + 19 + 20) / 3, np.nan])
    row = json.dumps({"step": 1, "time/seconds": 2.0, "data/return": [1.0, 1.0]})
    (folder / "metrics.jsonl").write_text(row + "\n")
    with pytest.raises(Mistake, match="one number for all seeds"):
        read_results([folder], "time/seconds")


def test_read_results_counts_a_run_with_dataset_and_env_in_steps(run):
    """A log was learned from beside its steps: updates stand in its rows too."""
    folder = run("both", "edac", [5.0, 6.0], data="log", updates=0)
    rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    rows = [row | {"update": 4 * row["step"]} for row in rows]
    (folder / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    ((one,), _) = read_results([folder])
    assert (one.curves.steps[-1], one.curves.unit) == (1000, "steps")


def test_read_results_names_a_missing_metric(run):
    one, other = run("a", "sac", [1.0, 2.0]), run("b", "sac", [3.0, 4.0])
    with pytest.raises(Mistake, match="no run has the metric 'retrn'; did you mean return"):
        read_results([one, other], "retrn")
    result = json.loads((other / "result.json").read_text())
    result["final"]["success"] = result["final"]["return"]
    (other / "result.json").write_text(json.dumps(result))
    results, notes = read_results([one, other], "success")
    assert [each.scores is None for each in results] == [True, False]
    assert "has no 'success' in its result" in notes[0]


def test_read_results_of_a_csv_file_of_another_library(tmp_path):
    table = tmp_path / "theirs.csv"
    table.write_text("algorithm,task,run,score\nx,A,0,1\nx,A,1,2\nx,B,0,3\ny,A,0,nan\ny,A,1,5\n")
    results, _ = read_results([table])
    found = {(one.algorithm, one.environment): one for one in results}
    np.testing.assert_array_equal(found["x", "A"].scores, [1.0, 2.0])
    np.testing.assert_array_equal(found["x", "B"].scores, [3.0])
    assert found["y", "A"].failed == [0]


def test_a_file_that_is_given_twice_counts_once(tmp_path):
    table = tmp_path / "theirs.csv"
    table.write_text("algorithm,task,seed,score\nx,A,3,1\nx,A,7,2\n")
    results, _ = read_results([table, tmp_path / ".." / tmp_path.name / "theirs.csv"])
    (group,), notes = group_results(results)
    assert (group.seeds, group.scores.tolist()) == ([3, 7], [1.0, 2.0])
    assert ["seeds 3 and 7 were already counted" in note for note in notes] == [True]
    other = tmp_path / "more.csv"
    other.write_text(table.read_text())
    (group,), notes = group_results(read_results([table, other])[0])
    assert (group.seeds, notes) == ([3, 7, 3, 7], [])  # numbers of another file are other runs


def test_read_results_of_curve_files_with_different_steps(tmp_path):
    table = tmp_path / "grid.csv"
    rows = [f"{seed},{k * 1000 + seed},{100 * k + seed}" for seed in range(5) for k in range(1, 11)]
    rows += ["5,1000,1", "5,9000,nan", "6,4000,40", "6,5000,50"]
    table.write_text("\n".join(["seed,step,return", *rows, ""]))
    results, notes = read_results([table])
    one = only(results)
    expected = [1000.0, 1001, 1002, 1003, 1004, np.nan, 50]
    np.testing.assert_array_equal(one.scores, expected)
    assert (one.failed, one.curves.failed) == ([5], {5: 9000.0})
    end = f"{table}: runs of grid end between 5,000 and 10,004 steps; each counts by its own last"
    assert [note.startswith(end) for note in notes] == [True]
    (group,), _ = group_results(results)
    steps, values = group.curves()
    assert values.shape == (6, CURVE_WINDOWS)
    assert np.isnan(values[5, steps > 5100]).all()  # nothing is known of it there


def test_read_results_of_a_wide_csv_file_of_curves(tmp_path):
    table = tmp_path / "wide.csv"
    table.write_text("Step,ppo,sac\n" + "".join(f"{k},{k},{2 * k}\n" for k in range(10)))
    results, _ = read_results([table])
    assert [(one.algorithm, one.scores.tolist()) for one in results] == [
        ("ppo", [9.0]),
        ("sac", [18.0]),
    ]
    assert results[0].curves.returns.tolist() == [list(range(10))]


def test_read_results_refuses_missing_or_empty_folders(tmp_path):
    with pytest.raises(Mistake, match="does not exist"):
        read_results([tmp_path / "absent"])
    with pytest.raises(Mistake, match="no run found in"):
        read_results([tmp_path])


def test_runs_with_equal_settings_are_one_group_with_more_seeds(run):
    results, _ = read_results(
        [run("a", "sac", [1.0, 2.0]), run("b", "sac", [3.0, 4.0], seeds=[7, 8])]
    )
    (group,), notes = group_results(results)
    assert (group.label, group.seeds, notes) == ("sac", [0, 1, 7, 8], [])
    np.testing.assert_array_equal(group.scores, [1.0, 2.0, 3.0, 4.0])


def test_a_seed_that_is_there_twice_counts_once(run):
    results, _ = read_results(
        [run("a", "sac", [1.0, 2.0]), run("b", "sac", [9.0, 4.0], seeds=[1, 5])]
    )
    (group,), notes = group_results(results)
    assert group.seeds == [0, 1, 5]
    np.testing.assert_array_equal(group.scores, [1.0, 2.0, 4.0])
    assert "seeds 1 were already counted" in notes[0]


def test_run_labels_name_differing_settings_or_the_given_label(run):
    first = run("a", "sac", [1.0, 2.0])
    second = run("b", "sac", [3.0, 4.0], settings={"lr": 0.1}, steps=20_000)
    results, _ = read_results([first, second, run("c", "ppo", [1.0, 1.0])])
    assert unique_labels(group_results(results)[0]) == [
        "sac lr=0.001 1k steps",
        "sac lr=0.1 20k steps",
        "ppo",
    ]
    assert differing_settings(results[:2]) == {"lr": [0.001, 0.1], "steps": [1000, 20_000]}
    results, _ = read_results([f"old={first}", f"new={second}"])
    assert unique_labels(group_results(results)[0]) == ["old", "new"]


def named(*folders):
    """label -> seeds, of these runs put together; no note was made."""
    groups, notes = group_results(read_results(folders)[0])
    assert notes == []
    return {one.label: one.seeds for one in groups}


def log(path, **more):
    return {"path": path, "hash": "", "share": 0.5, "unchecked": False} | more


@pytest.mark.parametrize(
    ("one", "other", "said"),
    [
        ({"updates": 1000}, {"updates": 50_000}, ("1k updates", "50k updates")),
        ({"data": log("/a/medium.npz")}, {"data": log("/a/expert.npz")},
         ("data=medium.npz", "data=expert.npz")),
        ({"data": log("l", share=0.25)}, {"data": log("l")}, ("data.share=0.25", "data.share=0.5")),
        ({"data": log("l", share=0.25)}, {"data": None}, ("data=l", "no data")),
        ({"online": {"alpha": 0.0}}, {"online": {}}, ("online.alpha=0.0", "no online.alpha")),
        ({"guide": {"path": "/runs/bc", "how": "jump-start"}}, {"guide": None},
         ("guide=bc", "no guide")),
        ({"augment": "shift"}, {"augment": ""}, ("augment=shift", "no augment")),
        ({"speech": {"levels": "1"}}, {"speech": {"levels": "3"}},
         ("speech.levels=1", "speech.levels=3")),
        ({"speech": {"model": "/a/small"}}, {"speech": {"model": "/b/large"}},
         ("speech.model=small", "speech.model=large")),
        ({"env_options": {"g": 1}}, {"env_options": {"g": 2}},
         ("env_options.g=1", "env_options.g=2")),
        ({"updates": 1}, {"updates": 0}, ("1 update", "0 updates")),
    ],
)  # fmt: skip
def test_runs_of_different_datasets_are_separate_groups(run, one, other, said):
    first, second = run("a", "iql", [1.0, 2.0], **one), run("b", "iql", [3.0, 4.0], **other)
    assert named(first, second) == {f"iql {words}": [0, 1] for words in said}


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({"data": log("/a/x.npz", hash="f0")}, {"data": log("/b/y.npz", hash="f0")}),
        ({"data": log("/a/x.npz")}, {"data": log("/b/x.npz", unchecked=True)}),
        ({"speech": {"dump": "a", "slots": 8}}, {"speech": {"dump": "b", "slots": 64}}),
        ({"context": 48}, {"context": 64}),
        ({"updates": 0, "online": {}, "augment": "", "env_options": {}, "data": None}, {}),
    ],
)
def test_settings_irrelevant_to_training_do_not_split_groups(run, one, other):
    first = run("a", "iql", [1.0, 2.0], **one)
    assert named(first, run("b", "iql", [3.0], seeds=[7], **other)) == {"iql": [0, 1, 7]}


def test_datasets_of_equal_name_and_other_hash_are_separate_groups(run):
    runs = [run(f"{at}/iql", "iql", [1.0], data=log("x.npz", hash=at)) for at in "ab"]
    assert named(*runs) == {"iql (a/iql)": [0], "iql (b/iql)": [0]}


def test_run_labels_use_the_shortest_distinguishing_path(run):
    one, other = ({name: value for name in "abcd"} for value in (1, 2))
    runs = [
        run("exp1/ppo", "ppo", [1.0], settings=one),
        run("exp2/ppo", "ppo", [2.0], settings=other),
        run("exp3/ppo", "ppo", [3.0], settings=one, seeds=[5]),
    ]
    assert named(*runs) == {"ppo (exp1/ppo)": [0, 5], "ppo (exp2/ppo)": [0]}
    assert distinguishing_endings(["/a/b/c", "/d/b/c", "/a/b/e"]) == ["a/b/c", "d/b/c", "a/b/e"]


def test_nearly_equal_budgets_are_separate_groups(run):
    runs = [run(f"{n}", "ppo", [1.0], steps=n) for n in (1_000_000, 1_000_100)]
    assert named(*runs) == {"ppo (1000000)": [0], "ppo (1000100)": [0]}


def test_given_label_pools_runs_of_different_settings(run):
    first, second = run("a", "iql", [1.0, 2.0]), run("b", "iql", [3.0, 4.0], updates=9)
    assert named(f"ours={first}", f"ours={second}") == {"ours": [0, 1, 0, 1]}


def test_an_unfinished_run_hides_no_finished_one(run):
    crashed = run("a", "ppo", [9.0, 9.0, 9.0], rows=3, finished=False)
    finished = run("b", "ppo", [1.0, 2.0])
    results, notes = read_results([crashed, finished])
    (group,), more = group_results(results)
    assert (group.scores.tolist(), group.steps, more) == ([1.0, 2.0], [150.0, 1000.0], [])
    assert [one.seeds for one in group.results] == [[2], [0, 1]]  # in the order given
    assert "is not finished" in notes[0]
    (group,), _ = group_results(read_results([crashed, finished], "data/return")[0])
    assert group.scores.tolist() == pytest.approx([9.0, 0.95, 1.9])


def test_group_results_keeps_only_the_asked_environments(run):
    results, _ = read_results(
        [run("a", "sac", [1.0, 2.0]), run("b", "sac", [1.0], environment="Ant-v5")]
    )
    assert [one.environment for one in group_results(results, ["Ant-v5"])[0]] == ["Ant-v5"]
    with pytest.raises(Mistake, match="no run on Ant-v4; there are runs on Hopper-v5 and Ant-v5"):
        group_results(results, ["Ant-v4"])


def test_curves_of_different_lengths_share_an_axis(run):
    short = run("b", "sac", [4.0, None], rows=10, finished=False, seeds=[5, 6])
    (group,), _ = group_results(read_results([run("a", "sac", [20.0, 40.0]), short])[0])
    steps, values = group.curves()
    assert values.shape == (3, CURVE_WINDOWS)  # the failed seed is not among them
    assert steps[-1] == 1000
    np.testing.assert_allclose(values[:2, -1], [20.0, 40.0])
    assert np.isnan(values[2, steps > 500]).all()
