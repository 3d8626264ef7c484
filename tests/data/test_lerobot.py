"""LeRobot's folders, written here as versions 2 and 3 lay them out."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import pyarrow
import pyarrow.parquet
import pytest
from gymnasium import spaces

from sterling.cli import main
from sterling.data import Dataset, formats
from sterling.data.formats import flat_arrays
from sterling.types import Mistake

LENGTHS, DONE = (4, 3, 1, 2), (True, False, False, True)
FEATURES = {
    "observation.state": {"dtype": "float32", "shape": [2], "names": ["a", "b"]},
    "observation.touch": {"dtype": "bool", "shape": [1], "names": None},
    "observation.images.top": {"dtype": "video", "shape": [480, 640, 3], "names": None},
    "action": {"dtype": "float32", "shape": [3], "names": None},
    "next.reward": {"dtype": "float32", "shape": [1], "names": None},
    "next.success": {"dtype": "bool", "shape": [1], "names": None},
    "next.done": {"dtype": "bool", "shape": [1], "names": None},
    "task_index": {"dtype": "int64", "shape": [1], "names": None},
    "episode_index": {"dtype": "int64", "shape": [1], "names": None},
    "frame_index": {"dtype": "int64", "shape": [1], "names": None},
    "timestamp": {"dtype": "float32", "shape": [1], "names": None},
    "index": {"dtype": "int64", "shape": [1], "names": None},
}


def frames(without=()):
    """All frames in order; every number is told from its place."""
    count, episode = sum(LENGTHS), np.repeat(np.arange(len(LENGTHS)), LENGTHS)
    frame = np.concatenate([np.arange(n) for n in LENGTHS])
    last = np.diff(episode, append=-1) != 0
    state = np.arange(2 * count, dtype=np.float32).reshape(count, 2)
    columns = {
        "observation.state": list(state),
        "observation.touch": frame == 1,
        "action": list(np.arange(3 * count, dtype=np.float32).reshape(count, 3)),
        "next.reward": np.arange(count, dtype=np.float32),
        "next.success": last & np.asarray(DONE)[episode],
        "next.done": last,
        "task_index": episode % 2,
        "episode_index": episode,
        "frame_index": frame,
        "timestamp": frame.astype(np.float32) / 30,
        "index": np.arange(count),
    }
    return pyarrow.table({name: x for name, x in columns.items() if name not in without})


def folder(path: Path, version: str, table=None, without=()) -> Path:
    """A dataset as LeRobot lays it out."""
    table = frames(without) if table is None else table
    (path / "meta").mkdir(parents=True)
    (path / "data" / "chunk-000").mkdir(parents=True)
    features = {name: each for name, each in FEATURES.items() if name not in without}
    info = {"codebase_version": version, "robot_type": "so100", "total_episodes": len(LENGTHS),
            "total_frames": sum(LENGTHS), "fps": 30, "features": features}  # fmt: skip
    (path / "meta" / "info.json").write_text(json.dumps(info))
    if version == "v3.0":
        pyarrow.parquet.write_table(table, path / "data" / "chunk-000" / "file-000.parquet")
        return path
    for number in range(len(LENGTHS)):
        chosen = table.filter(pyarrow.compute.field("episode_index") == number)
        name = f"episode_{number:06d}.parquet"
        pyarrow.parquet.write_table(chosen, path / "data" / "chunk-000" / name)
    return path


@pytest.mark.parametrize("version", ["v2.1", "v3.0"])
def test_frames_become_episodes(tmp_path, version):
    path = folder(tmp_path / "set", version)
    assert formats.detect_format(path) == "lerobot"
    data = Dataset(path)
    # done: all rows and a copy at the end; cut: the last frame is only seen; one frame cut: nothing
    assert data.lengths.tolist() == [4, 2, 2]
    assert data.ended.tolist() == [True, False, True]
    assert set(data.spec.obs.spaces) == {"state", "touch"}
    first = next(data.blocks(8)).arrays
    assert first["obs/state"][:, 0].tolist() == [0, 2, 4, 6, 6, 8, 10, 12, 16, 18, 18]
    assert first["action"][:, 0].tolist() == [0, 3, 6, 9, 12, 15, 24, 27]
    assert first["reward"].tolist() == [0, 1, 2, 3, 4, 5, 8, 9]
    assert first["discount"].tolist() == [1, 1, 1, 0, 1, 1, 1, 0]
    assert first["extra/task_index"].tolist() == [0, 0, 0, 0, 1, 1, 1, 1]
    low = np.arange(3, dtype=np.float32)  # frame n does 3n, 3n + 1, 3n + 2
    assert data.action_space == spaces.Box(low, low + 27, dtype=np.float32)
    (source,) = data.facts.sources
    assert source.generator == "so100"
    assert "left out, not numbers: observation.images.top" in source.notes
    assert flat_arrays.GUESSED_BOUNDS_NOTE in source.notes


def test_lerobot_without_rewards_and_ends_is_noted(tmp_path):
    """One part of an observation is a plain box; without rewards and ends they are told so."""
    lacking = ("observation.touch", "observation.images.top", "next.reward", "next.success",
               "next.done")  # fmt: skip
    data = Dataset(folder(tmp_path / "set", "v2.1", without=lacking))
    assert data.spec.obs == spaces.Box(-np.inf, np.inf, (2,), np.float32)
    assert data.lengths.tolist() == [3, 2, 1]
    assert not data.ended.any()
    assert "there are no rewards; they are set to zero" in data.facts.sources[0].notes


def test_data_import_command_converts_lerobot(tmp_path, capsys):
    path = folder(tmp_path / "set", "v3.0")
    assert main(["data", "import", str(path), str(tmp_path / "own")]) == 0
    assert Dataset(tmp_path / "own").hash == Dataset(path).hash


def test_damaged_lerobot_folder_is_refused_in_one_line(tmp_path, monkeypatch):
    table = frames()
    gap = folder(tmp_path / "gap", "v3.0", table.filter(pyarrow.compute.field("index") != 1))
    with pytest.raises(Mistake, match="The files have 9 frames, but meta/info\\.json states 10"):
        Dataset(gap)
    twice = pyarrow.concat_tables([table.slice(0, 1), table.slice(0, 1), table.slice(2)])
    with pytest.raises(Mistake, match="episode 0 lacks frame 1"):
        Dataset(folder(tmp_path / "twice", "v3.0", twice))
    short = folder(tmp_path / "short", "v3.0")
    file = short / "data" / "chunk-000" / "file-000.parquet"
    file.write_bytes(file.read_bytes()[:-20])
    with pytest.raises(Mistake, match="cannot be read as lerobot"):
        Dataset(short)
    lacking = folder(tmp_path / "lacking", "v3.0", table.drop_columns(["action"]))
    with pytest.raises(Mistake, match="'action'"):
        Dataset(lacking)
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    monkeypatch.setitem(sys.modules, "pyarrow.parquet", None)
    with pytest.raises(Mistake, match=r'pip install "sterling-rl\[lerobot\]"'):
        Dataset(gap)
