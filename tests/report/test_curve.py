"""The picture is drawn for every kind of run, and shows what the rows say."""

import json

import numpy as np
import pytest
from matplotlib.figure import Figure

from sterling.report.pictures import learning_curve
from sterling.statistics import estimate


def run_folder(folder, returns, failed=None, final=True):
    """A run's files; ``returns`` is (row, seed) with NaN for rows without a finished episode."""
    seeds = list(range(10, 10 + len(returns[0])))
    config = {"algorithm": "ppo", "environment": "CartPole-v1", "seeds": seeds}
    (folder / "config.json").write_text(json.dumps(config))
    rows = []
    for index, each in enumerate(returns):
        values = [None if np.isnan(x) else float(x) for x in each]
        gone = [seed for seed, at in (failed or {}).items() if index >= at]
        rows.append({"step": (index + 1) * 100, "data/return": values, "failed": gone})
    (folder / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    if final:
        scores = {"per_seed": [], **estimate([1.0, 2.0], interval="t").to_json()}
        result = {"steps": 100 * len(rows), "final": {"return": scores}}
        (folder / "result.json").write_text(json.dumps(result))
    return folder


@pytest.fixture
def axes(monkeypatch):
    """The axes of the picture that is drawn, kept when it is saved."""
    kept = []
    save = Figure.savefig
    monkeypatch.setattr(
        Figure, "savefig", lambda self, *a, **k: (kept.append(self.axes[0]), save(self, *a, **k))
    )
    return kept


def labels(axes):
    return [text.get_text() for text in axes[0].get_legend().get_texts()]


def line(axes, label):
    found = {one.get_label().removesuffix(learning_curve.CUT): one for one in axes[0].get_lines()}
    return found[label]


def test_learning_curve_draws_the_mean_of_seeds(tmp_path, axes):
    returns = np.array([[0.0, 2.0], [1.0, 5.0], [2.0, 6.0]])
    path = learning_curve.draw_run_curve(run_folder(tmp_path, returns))
    assert path == tmp_path / "curve.png"
    assert path.read_bytes()[1:4] == b"PNG"
    mean = line(axes, "mean of 2 seeds, 95 % interval")
    np.testing.assert_allclose(mean.get_xydata(), [[100, 1], [200, 3], [300, 4]])
    assert "final evaluation: 1.500 [-4.853, 7.853]" in labels(axes)
    assert axes[0].get_title(loc="left") == "PPO on CartPole-v1"


def test_learning_curve_bridges_gaps_without_extrapolation(tmp_path, axes):
    nan = np.nan
    returns = np.array([[nan, 1.0], [0.0, 1.0], [nan, 1.0], [4.0, 1.0], [nan, 1.0]])
    learning_curve.draw_run_curve(run_folder(tmp_path, returns))
    mean = line(axes, "mean of 2 seeds, 95 % interval")
    np.testing.assert_allclose(mean.get_xydata(), [[200, 0.5], [300, 1.5], [400, 2.5]])


def test_learning_curve_of_one_seed_has_no_mean(tmp_path, axes):
    learning_curve.draw_run_curve(run_folder(tmp_path, np.array([[1.0], [2.0]]), final=False))
    assert labels(axes) == ["seed 10"]


def test_failed_seed_is_dashed_and_left_out_of_the_mean(tmp_path, axes):
    returns = np.array([[0.0, 2.0, 9.0], [1.0, 5.0, 9.0], [2.0, 6.0, np.nan]])
    learning_curve.draw_run_curve(run_folder(tmp_path, returns, failed={12: 1}))
    failed = line(axes, "seed 12 (failed)")
    assert failed.get_linestyle() == "--"
    np.testing.assert_allclose(failed.get_xydata(), [[100, 9], [200, 9]])
    np.testing.assert_allclose(
        line(axes, "mean of 2 of 3 seeds, the others failed, 95 % interval").get_ydata(), [1, 3, 4]
    )


@pytest.mark.parametrize("returns", [[[np.nan, np.nan]] * 2, [[]]])
def test_learning_curve_without_episodes_says_so(tmp_path, axes, returns):
    learning_curve.draw_run_curve(run_folder(tmp_path, returns, final=False))
    assert [text.get_text() for text in axes[0].texts] == ["no episode has ended yet"]


@pytest.mark.parametrize("held_out", [False, True])
def test_learning_curve_of_texts_alone_is_the_held_out_loss(tmp_path, axes, held_out):
    folder = run_folder(tmp_path, np.array([[1.0], [2.0]]), final=False)
    rows = [
        {"update": n, "step": 0, **({"held_out/loss": [4.0 - n]} if held_out else {})}
        for n in (1, 2)
    ]
    (folder / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    config = {"seeds": [10], "algorithm": "sft", "environment": ""}
    (folder / "config.json").write_text(json.dumps(config))
    learning_curve.draw_run_curve(folder)
    assert axes[0].get_title(loc="left") == "SFT"
    if not held_out:
        assert [text.get_text() for text in axes[0].texts] == ["nothing was evaluated"]
        return
    assert axes[0].get_ylabel() == "held_out/loss"
    np.testing.assert_allclose(line(axes, "seed 10").get_xydata(), [[1, 3], [2, 2]])


def test_learning_curve_without_metric_rows_shows_the_final_evaluation(tmp_path, axes):
    folder = run_folder(tmp_path, [[1.0]])
    (folder / "metrics.jsonl").write_text("")
    learning_curve.draw_run_curve(folder)
    assert labels(axes) == ["final evaluation: 1.500 [-4.853, 7.853]"]


def test_the_curves_and_not_their_interval_set_the_axis(tmp_path, axes):
    """The interval of two seeds is 13 times as wide as they differ: the curve would be flat."""
    rising = np.linspace(0.0, 100.0, 11)
    returns = np.stack([rising, rising + 40.0], axis=1)
    learning_curve.draw_run_curve(run_folder(tmp_path, returns, final=False))
    bottom, top = axes[0].get_ylim()
    assert bottom < 0.0
    assert top > 140.0
    assert top - bottom < 2 * 140.0
    assert labels(axes) == [f"mean of 2 seeds, 95 % interval{learning_curve.CUT}"]


def test_a_narrow_interval_is_shown_whole(tmp_path, axes):
    rising = np.linspace(50.0, 150.0, 11)
    returns = np.stack([rising, rising + 1.0], axis=1)
    learning_curve.draw_run_curve(run_folder(tmp_path, returns, final=False))
    bottom, top = axes[0].get_ylim()
    least, most = sorted(axes[0].dataLim.intervaly)
    assert bottom <= least
    assert top >= most
    assert labels(axes) == ["mean of 2 seeds, 95 % interval"]


@pytest.mark.parametrize("failures", [0, 7])
def test_the_legend_lies_below_the_curves(failures, tmp_path, axes):
    returns = np.tile(np.linspace(0.0, 9.0, 6)[:, None], (1, 2 + failures))
    failed = {12 + at: 3 for at in range(failures)}
    learning_curve.draw_run_curve(run_folder(tmp_path, returns, failed=failed))
    figure = axes[0].get_figure()
    legend, inside = axes[0].get_legend().get_window_extent(), axes[0].get_window_extent()
    assert legend.y1 < inside.y0
    assert legend.y0 >= 0.0  # and all of it is on the picture
    assert legend.x1 <= figure.bbox.x1
    assert inside.height > 0.5 * figure.bbox.height
