"""The learning curves of a report: means and intervals, seeds, the final evaluation."""

import json

import numpy as np
import pytest

from sterling.report.pictures import curve_panels, plot_style
from sterling.report.runs.read_runs import read_results
from sterling.report.runs.run_groups import group_results
from sterling.statistics import curve, headline


def groups_of(*folders):
    return group_results(read_results(folders)[0])[0]


def test_curves_show_the_mean_with_its_interval_and_single_runs(run):
    groups = groups_of(run("a", "sac", [20.0, 40.0, 90.0, None]))
    (axes,) = curve_panels.draw_learning_curves(groups, level=0.9).axes
    mean = max(axes.get_lines(), key=lambda line: line.get_linewidth())
    assert mean.get_ydata()[-1] == pytest.approx(50.0)
    steps, values = groups[0].curves()
    known = np.isfinite(values).all(0)
    expected = curve(values[:, known], steps[known], level=0.9)
    (band,) = axes.collections
    assert band.get_paths()[0].vertices[:, 1].max() == pytest.approx(expected.high.max())
    assert len(axes.get_lines()) == 3 + 1 + 1  # single runs, mean, the failed one
    crossed = [line for line in axes.get_lines() if line.get_marker() == "x"]
    np.testing.assert_allclose(crossed[0].get_xdata()[-1], 500)
    assert [text.get_text() for text in axes.texts] == ["sac"]


def test_final_evaluation_is_drawn_at_the_last_step(run):
    groups = groups_of(run("a", "sac", [20.0, 40.0], rows=16), run("b", "td3", [9.0, 12.0]))
    made = {(one.label, "Hopper-v5"): headline(one.scores) for one in groups}
    (axes,) = curve_panels.draw_learning_curves(groups, finals=made).axes
    marks = [line for line in axes.get_lines() if line.get_marker() == "D"]
    assert [line.get_ydata()[0] for line in marks] == [30.0, 10.5]
    places = [line.get_xdata()[0] for line in marks]
    assert places[0] == 1000  # of the budget, though the log ends at 800
    assert 1000 < places[1] < 1030  # beside the other
    assert axes.get_xlim()[1] >= places[1]


def test_curve_of_a_run_reaches_its_last_row_and_that_of_a_file_does_not(run, tmp_path):
    folder = run("a", "sac", [20.0, 40.0])
    rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    for row in rows[-3:]:
        row["data/return"][1] = None  # no episode of seed 1 has ended since
    (folder / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (group,) = groups_of(folder)
    assert group.curves()[1][:, -1].tolist() == [20.0, 34.0]
    table = tmp_path / "file.csv"
    lines = [f"{seed},{k},{k}" for seed, last in ((0, 20), (1, 17)) for k in range(1, last + 1)]
    table.write_text("\n".join(["seed,step,return", *lines, ""]))
    (group,) = groups_of(table)
    assert np.isnan(group.curves()[1][1, -1])


def test_wide_interval_does_not_determine_the_axis(run):
    groups = groups_of(run("a", "sac", [20.0, 400.0]))  # their interval is 12 times theirs
    (axes,) = curve_panels.draw_learning_curves(groups).axes
    low, high = axes.get_ylim()
    assert 400.0 < high < 400.0 * 1.4
    assert low > -150.0


def test_curves_of_one_environment_fill_the_width_of_the_page(run):
    figure = curve_panels.draw_learning_curves(groups_of(run("a", "sac", [20.0, 40.0])))
    assert figure.get_figwidth() == plot_style.PAGE_WIDTH


def test_learning_curve_axis_names_updates_and_steps(run):
    """Also of a run that learned from a log, was evaluated on the way, and then took steps."""
    folder = run("both", "iql", [5.0, 6.0], steps=300, updates=700)
    rows = [
        {"step": max(0, at - 700), "update": at, "evaluation/return": [at / 200, at / 100]}
        for at in range(100, 1001, 100)
    ]
    (folder / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    groups = groups_of(folder)
    (axes,) = curve_panels.draw_learning_curves(groups).axes
    assert axes.get_xlabel() == "gradient updates per seed"
    assert axes.get_ylabel() == "return of evaluation episodes"
    mixed = groups_of(folder, run("steps", "sac", [1.0, 2.0]))
    figure = curve_panels.draw_learning_curves(mixed)
    (axes,) = figure.axes
    assert axes.get_xlabel() == "environment steps, or updates, per seed"
    figure.draw_without_rendering()
    assert axes.yaxis.label.get_window_extent().y1 <= figure.bbox.y1  # within the picture
    assert axes.yaxis.label.get_window_extent().y0 >= 0
