"""Which folders are runs, which panel of the watch page a run belongs to, and the page's words."""

import json

import pytest
from watched_run_folders import CONFIG, RESULT, ROWS, make_run, row

from sterling.report.runs.read_runs import read_results
from sterling.report.watch.metric_points import latest_values
from sterling.report.watch.run_facts import panel_names, run_warnings
from sterling.report.watch.run_state import describe_run
from sterling.report.watch.watched_runs import WatchedRuns, find_run_folders

MODEL = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 64}


def write_config(folder, content):
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(
        content if isinstance(content, str) else json.dumps(content)
    )


def test_watch_lists_runs_and_no_other_folders_with_a_config(tmp_path):
    make_run(tmp_path / "runs" / "deep" / "a", ROWS, RESULT)
    make_run(tmp_path / "runs" / "damaged", ROWS, RESULT)
    write_config(tmp_path / "runs" / "damaged", "{")
    for name, content in {"model": MODEL, "list": [1], "torn": "{", "fixture": {}}.items():
        write_config(tmp_path / "runs" / name, content)
    write_config(tmp_path / "runs", MODEL)  # a model's folder may hold runs
    write_config(tmp_path / "runs" / "new", CONFIG)  # no row yet
    assert list(find_run_folders(tmp_path / "runs")) == ["damaged", "deep/a", "new"]
    write_config(tmp_path / "runs" / "fixture", CONFIG | {"algorithm": "dqn"})
    assert "fixture" in find_run_folders(tmp_path / "runs")


def test_report_passes_over_folders_that_are_no_runs(tmp_path):
    make_run(tmp_path / "a", ROWS, RESULT)
    write_config(tmp_path / "model", MODEL)
    results, _ = read_results([tmp_path])
    assert [one.place for one in results] == [str(tmp_path / "a")]


def summary(place, unit="steps"):
    return {"place": place, "unit": unit}


def test_runs_of_different_environments_have_different_panels():
    places = ["CartPole-v1", "Acrobot-v1", "/x/maze.py:make", "/y/maze.py:make", "CartPole-v1"]
    named = panel_names([summary(place) for place in places])
    assert named == ["CartPole-v1", "Acrobot-v1", "maze:make (1)", "maze:make (2)", "CartPole-v1"]
    mixed = [summary("Ant-v5"), summary("Ant-v5", "updates"), summary("Hopper-v5", "updates")]
    assert panel_names(mixed) == ["Ant-v5, by steps", "Ant-v5, by updates", "Hopper-v5"]


def test_run_on_a_dataset_without_environment_has_the_dataset_as_its_panel(tmp_path):
    for name in ("one", "two"):
        data = {"path": f"/data/{name}.npz"}
        make_run(tmp_path / name, [], environment=None, steps=0, updates=10, data=data)
    runs = WatchedRuns(tmp_path).summaries()
    assert [run["panel"] for run in runs] == ["dataset one.npz", "dataset two.npz"]


def test_run_summary_has_the_final_evaluation_beside_the_log(tmp_path):
    found = describe_run(make_run(tmp_path / "a", ROWS, RESULT | {"updates_per_second": 0.055}))
    assert found["finals"]["return"]["text"] == "60.00 [40.00, 80.00]"
    assert (found["progress"], found["seconds"]) == (400, 9.0)


def test_speed_of_a_run_that_counts_updates_is_in_updates(tmp_path):
    last = {"step": 0, "update": 4, "time/seconds": 73.0, "time/updates_per_second": 0.074}
    found = describe_run(make_run(tmp_path / "a", [last], steps=0, updates=4))
    assert (found["speed"], found["speed_unit"]) == (0.074, "updates")


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        (ROWS, ([50.0, 40.0, 9.0], 300)),
        (ROWS[:2], ([30.0, 20.0, 5.0], 200)),
        ([*ROWS, row(400, [None] * 3, failed=[1])], ([50.0, 9.0], 300)),
        ([], ([], None)),
        ([row(100, [None] * 3)], ([], None)),
    ],
)
def test_latest_values_are_those_of_each_seed_that_did_not_fail(rows, expected):
    assert latest_values(rows, "data/return", [0, 1, 2]) == expected


def test_return_of_some_seeds_says_how_many(tmp_path):
    found = describe_run(make_run(tmp_path / "a", ROWS[:1]))
    assert found["return"]["from"] == "training episodes at step 100, 2 of 3 seeds"


def test_warning_about_an_incomplete_run_is_a_sentence(tmp_path):
    folder = make_run(tmp_path / "a", [])
    config = {name: x for name, x in CONFIG.items() if name != "steps"}
    write_config(folder, config)
    assert run_warnings(folder) == [
        "config.json or result.json has no entry 'steps': no warnings can be given"
    ]
