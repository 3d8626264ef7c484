"""What is read from run folders and files, and how it is put together."""

import json

import numpy as np
import pytest

from sterling.report.groups import WINDOWS, differing, gather, labels
from sterling.report.runs import read
from sterling.types import Mistake


def only(results):
    assert len(results) == 1
    return results[0]


def test_a_run_folder(run):
    results, notes = read([run("a", "sac", [1.0, None, 3.0])])
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


def test_folders_of_runs_are_opened_and_others_passed_over(run, tmp_path):
    for name in ("b", "a"):
        run(f"all/{name}", name, [1.0, 2.0])
    (tmp_path / "empty").mkdir()
    results, notes = read([tmp_path / "all", tmp_path / "empty"])
    assert [one.algorithm for one in results] == ["a", "b"]
    assert notes == [f"{tmp_path / 'empty'} holds no run: passed over"]


def test_an_interrupted_run_keeps_its_curve_and_has_no_score(run):
    results, notes = read([run("a", "sac", [1.0, 2.0], rows=7, finished=False)])
    assert only(results).scores is None
    assert only(results).steps == 350
    assert "is not finished (350 of 1,000 steps)" in notes[0]


def test_a_logged_column_is_averaged_over_the_last_tenth(run):
    folder = run("a", "sac", [20.0, None], finished=False)
    one = only(read([folder], "data/return")[0])
    np.testing.assert_allclose(one.scores, [(18 + 19 + 20) / 3, np.nan])
    row = json.dumps({"step": 1, "time/seconds": 2.0, "data/return": [1.0, 1.0]})
    (folder / "metrics.jsonl").write_text(row + "\n")
    with pytest.raises(Mistake, match="one number for all seeds"):
        read([folder], "time/seconds")


def test_a_missing_metric_is_said(run):
    results, notes = read([run("a", "sac", [1.0, 2.0])], "success")
    assert only(results).scores is None
    assert "has no 'success' in its result" in notes[0]


def test_files_of_other_libraries(tmp_path):
    table = tmp_path / "theirs.csv"
    table.write_text("algorithm,task,run,score\nx,A,0,1\nx,A,1,2\nx,B,0,3\ny,A,0,nan\ny,A,1,5\n")
    results, _ = read([table])
    found = {(one.algorithm, one.environment): one for one in results}
    np.testing.assert_array_equal(found["x", "A"].scores, [1.0, 2.0])
    np.testing.assert_array_equal(found["x", "B"].scores, [3.0])
    assert found["y", "A"].failed == [0]


def test_nothing_to_read_is_a_mistake(tmp_path):
    with pytest.raises(Mistake, match="there is no"):
        read([tmp_path / "absent"])
    with pytest.raises(Mistake, match="no run in"):
        read([tmp_path])


def test_runs_with_equal_settings_are_one_group_with_more_seeds(run):
    results, _ = read([run("a", "sac", [1.0, 2.0]), run("b", "sac", [3.0, 4.0], seeds=[7, 8])])
    (group,), notes = gather(results)
    assert (group.label, group.seeds, notes) == ("sac", [0, 1, 7, 8], [])
    np.testing.assert_array_equal(group.scores, [1.0, 2.0, 3.0, 4.0])


def test_a_seed_that_is_there_twice_counts_once(run):
    results, _ = read([run("a", "sac", [1.0, 2.0]), run("b", "sac", [9.0, 4.0], seeds=[1, 5])])
    (group,), notes = gather(results)
    assert group.seeds == [0, 1, 5]
    np.testing.assert_array_equal(group.scores, [1.0, 2.0, 4.0])
    assert "seeds 1 were already counted" in notes[0]


def test_labels_name_the_settings_that_differ_or_what_the_user_says(run):
    first = run("a", "sac", [1.0, 2.0])
    second = run("b", "sac", [3.0, 4.0], settings={"lr": 0.1}, steps=20_000)
    results, _ = read([first, second, run("c", "ppo", [1.0, 1.0])])
    assert labels(gather(results)[0]) == ["sac lr=0.001 1k steps", "sac lr=0.1 20k steps", "ppo"]
    assert differing(results[:2]) == {"lr": [0.001, 0.1], "steps": [1000, 20_000]}
    results, _ = read([f"old={first}", f"new={second}"])
    assert labels(gather(results)[0]) == ["old", "new"]


def test_only_the_tasks_asked_for(run):
    results, _ = read([run("a", "sac", [1.0, 2.0]), run("b", "sac", [1.0], environment="Ant-v5")])
    assert [one.environment for one in gather(results, ["Ant-v5"])[0]] == ["Ant-v5"]
    with pytest.raises(Mistake, match="no run on Ant-v4; there are runs on Hopper-v5 and Ant-v5"):
        gather(results, ["Ant-v4"])


def test_curves_of_different_lengths_share_an_axis(run):
    short = run("b", "sac", [4.0, None], rows=10, finished=False, seeds=[5, 6])
    (group,), _ = gather(read([run("a", "sac", [20.0, 40.0]), short])[0])
    steps, values = group.curves()
    assert values.shape == (3, WINDOWS)  # the failed seed is not among them
    assert steps[-1] == 1000
    np.testing.assert_allclose(values[:2, -1], [20.0, 40.0])
    assert np.isnan(values[2, steps > 500]).all()
