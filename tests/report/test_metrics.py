"""The file survives being torn and cut back; the other sinks write what their readers read."""

import contextlib
import importlib.util
import itertools
import json
import resource
import sys
import types

import jax.numpy as jnp
import numpy as np
import pytest

from sterling.report.live.metric_sinks import (
    MetricsFile,
    TensorBoard,
    WeightsAndBiases,
    read_metrics,
    row_scalars,
)
from sterling.training.updates import check_metrics
from sterling.types import Feed, Mistake


def row(step, returns=(1.0, None)):
    return {
        "step": step,
        "steps": 100,
        "iteration": step // 10,
        "data/return": list(returns),
        "failed": [],
    }


def test_metrics_file_rows_are_read_back(tmp_path):
    sink = MetricsFile(tmp_path / "run" / "metrics.jsonl")
    sink.write(row(10))
    sink.write(row(20))
    assert read_metrics(sink.path) == [row(10), row(20)]  # before closing: every line is flushed
    sink.close()


def test_metrics_file_writes_non_finite_numbers_as_null(tmp_path):
    sink = MetricsFile(tmp_path / "metrics.jsonl")
    sink.write({"step": np.int64(3), "a": jnp.array([1.0, jnp.nan]), "b": float("inf"), "c": True})
    text = sink.path.read_text()
    assert json.loads(text) == {"step": 3, "a": [1.0, None], "b": None, "c": True}
    assert "NaN" not in text
    assert "Infinity" not in text


def test_truncate_drops_later_rows_and_goes_on(tmp_path):
    sink = MetricsFile(tmp_path / "metrics.jsonl")
    for step in (10, 20, 30):
        sink.write(row(step))
    sink.truncate(2)  # iterations
    assert [r["step"] for r in read_metrics(sink.path)] == [10, 20]
    sink.write(row(25))
    assert [r["step"] for r in read_metrics(sink.path)] == [10, 20, 25]
    assert [p.name for p in tmp_path.iterdir()] == ["metrics.jsonl"]


def test_metrics_file_truncates_on_a_full_disk(tmp_path):
    sink = MetricsFile(tmp_path / "metrics.jsonl")
    for step in (10, 20, 30):
        sink.write(row(step))
    before = sink.path.read_bytes().splitlines(keepends=True)
    with room(0):
        sink.truncate(2)
    assert sink.path.read_bytes() == b"".join(before[:2])
    assert [p.name for p in tmp_path.iterdir()] == ["metrics.jsonl"]


def test_metrics_file_ignores_a_torn_last_line(tmp_path):
    path = tmp_path / "metrics.jsonl"
    path.write_text(json.dumps(row(10)) + '\n{"step": 2')
    assert [r["step"] for r in read_metrics(path)] == [10]
    sink = MetricsFile(path)  # a new row must not be glued to the torn one
    sink.write(row(20))
    assert [r["step"] for r in read_metrics(path)] == [10, 20]


@contextlib.contextmanager
def room(size):
    """No file can grow beyond ``size`` bytes: of a row that crosses it, a part is written."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_metrics_file_buffers_rows_on_a_full_disk(tmp_path, capsys):
    sink = MetricsFile(tmp_path / "metrics.jsonl")
    sink.write(row(10))
    with room(sink.path.stat().st_size + 20):
        sink.write(row(20))
        sink.write(row(30))
        assert sink.path.read_text() == json.dumps(row(10)) + "\n"
    assert capsys.readouterr().err.count("its rows wait for free disk space") == 1
    sink.write(row(40))
    assert read_metrics(sink.path) == [row(10), row(20), row(30), row(40)]
    with room(sink.path.stat().st_size + 20):
        sink.write(row(50))
    sink.close()
    assert read_metrics(sink.path)[4:] == [row(50)]
    assert MetricsFile(sink.path).path.read_text().count("\n") == 5


def test_metrics_file_with_a_broken_line_or_missing_is_refused(tmp_path):
    path = tmp_path / "metrics.jsonl"
    path.write_text('{"step": 1}\n{"st\n{"step": 3}\n')
    with pytest.raises(Mistake, match="line 2 is not valid JSON"):
        read_metrics(path)
    with pytest.raises(Mistake, match="is this the folder of a run"):
        read_metrics(tmp_path / "nothing")


def test_row_scalars_average_and_split_seeds():
    found = row_scalars(
        {**row(10, (1.0, None, 4.0)), "time/seconds": 2, "note": "x", "loss/a": [None]}
    )
    assert found == {
        "data/return": 2.5, "data/return/0": 1.0, "data/return/2": 4.0, "time/seconds": 2.0,
    }  # fmt: skip


def test_metric_with_the_name_of_one_seeds_number_of_another_is_refused():
    row = {"loss": [1.0, 3.0], "loss/0": [7.0, 8.0]}
    assert row_scalars({"loss": row["loss"]})["loss/0"] == 1.0
    with pytest.raises(Mistake, match=r"'loss' and 'loss/0', but .* seed number 0. Rename one"):
        check_metrics(Feed("fresh"), (Feed("fresh"),), row)
    check_metrics(Feed("fresh"), (Feed("fresh"),), ["loss", "loss/value", "value/0"])


def test_tensorboard_sink_writes_scalars(tmp_path):
    """Read back as TensorBoard reads it; without the library the remedy is named."""
    if importlib.util.find_spec("tensorboard") is None:
        with pytest.raises(Mistake, match=r'pip install "sterling-rl\[tensorboard\]"'):
            TensorBoard(tmp_path)
        return
    sink = TensorBoard(tmp_path)
    sink.write(row(10, (1.0, 3.0)))
    sink.write(row(20, (5.0, 7.0)))
    sink.close()
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    seen = EventAccumulator(str(tmp_path))
    seen.Reload()
    assert [(e.step, e.value) for e in seen.Scalars("data/return")] == [(10, 2.0), (20, 6.0)]


def test_a_resumed_run_has_each_step_once_in_tensorboard(tmp_path, monkeypatch):
    """Killed after step 30, resumed from a checkpoint of step 10."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
    from tensorboard.summary.writer import event_file_writer

    # event files are read in the order of their names, which count seconds
    clock = types.SimpleNamespace(time=itertools.count(1).__next__)
    monkeypatch.setattr(event_file_writer, "time", clock)
    for steps, value in (((10, 20, 30), 1.0), ((20, 30, 40), 2.0)):
        sink = TensorBoard(tmp_path)
        for step in steps:
            sink.write(row(step, (value,)))
        sink.close()
    seen = EventAccumulator(str(tmp_path))
    seen.Reload()
    found = [(e.step, e.value) for e in seen.Scalars("data/return")]
    assert found == [(10, 1.0), (20, 2.0), (30, 2.0), (40, 2.0)]


def test_weights_and_biases_sink_writes_an_offline_run(tmp_path, monkeypatch):
    """Offline, so that nothing leaves the machine; without the library the remedy is named."""
    if importlib.util.find_spec("wandb") is None:
        with pytest.raises(Mistake, match=r'pip install "sterling-rl\[wandb\]"'):
            WeightsAndBiases("test")
        return
    monkeypatch.setenv("WANDB_SILENT", "true")
    sink = WeightsAndBiases("test", mode="offline", dir=str(tmp_path))
    sink.write(row(10))
    sink.close()
    assert list(tmp_path.glob("wandb/offline-run-*/run-*.wandb"))


@pytest.mark.parametrize("sink", [TensorBoard, WeightsAndBiases])
def test_missing_sink_package_is_named(sink, monkeypatch):
    for package in ("tensorboard.compat.proto.event_pb2", "wandb"):
        monkeypatch.setitem(sys.modules, package, None)  # as if it were not installed
    with pytest.raises(Mistake, match="pip install"):
        sink("anything")
