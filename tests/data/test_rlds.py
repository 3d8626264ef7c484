"""RLDS folders: one that TensorFlow Datasets wrote (rlds/toy.py), and ones written here."""

from __future__ import annotations

import json
import shutil
import struct
import sys
import zlib
from pathlib import Path

import numpy as np
import pytest
from gymnasium import spaces

from sterling.cli import main
from sterling.data import Dataset, formats
from sterling.data.formats import tfrecord
from sterling.types import Mistake

TOY = Path(__file__).parent / "rlds" / "toy" / "1.0.0"
FLAGS = {"is_first": "bool", "is_last": "bool", "is_terminal": "bool"}


def feature(said):
    """A tensor's description; a dict's is one of parts."""
    if isinstance(said, dict):
        return {"featuresDict": {"features": {name: feature(x) for name, x in said.items()}}}
    dtype, *shape = said
    sizes = {"dimensions": [str(n) for n in shape]} if shape else {}
    return {"tensor": {"dtype": dtype, "shape": sizes, "encoding": "none"}}


def record(columns):
    """An episode as a framed example; bytes as they are."""
    if isinstance(columns, bytes):
        return framed(columns)
    made = tfrecord.empty_example()
    for name, values in columns.items():
        entry = made.features.feature.add(key=f"steps/{name}")
        x = np.asarray(values)
        if x.dtype == object:
            entry.value.bytes_list.value.extend(values)
            continue
        whole = x.dtype.kind in "ib"
        kept = entry.value.int64_list if whole else entry.value.float_list
        kept.value.extend(x.astype(int if whole else float).ravel().tolist())
    return framed(made.SerializeToString())


def framed(data):
    length = struct.pack("<Q", len(data))
    sums = [struct.pack("<I", tfrecord.masked_checksum(x)) for x in (length, data)]
    return length + sums[0] + data + sums[1]


def folder(path: Path, steps, episodes, **info) -> Path:
    """A dataset of one file."""
    path.mkdir()
    flags = {name: (dtype,) for name, dtype in FLAGS.items()}
    whole = {"steps": {"sequence": {"feature": feature({**steps, **flags}), "length": "-1"}}}
    (path / "features.json").write_text(json.dumps({"featuresDict": {"features": whole}}))
    split = {"name": "train", "shardLengths": [str(len(episodes))]}
    said = {"name": "own", "version": "2.0.0", "fileFormat": "tfrecord", "splits": [split], **info}
    (path / "dataset_info.json").write_text(json.dumps(said))
    data = b"".join(record(one) for one in episodes)
    (path / "own-train.tfrecord-00000-of-00001").write_bytes(data)
    return path


def flags(count, terminal):
    place = np.arange(count)
    last = place == count - 1
    return {"is_first": place == 0, "is_last": last, "is_terminal": last & terminal}


PLAIN = {"observation": ("float32", 2), "action": ("float32", 1), "reward": ("float32",)}


def plain(count, terminal=False, reward=0.0):
    made = {"observation": np.ones((count, 2)), "action": np.full(count, 0.5)}
    return made | {"reward": np.append(np.zeros(count - 1), reward)} | flags(count, terminal)


def test_rlds_folder_written_by_tensorflow_datasets_is_read():
    """Seven episodes of two splits, in its order; number e has e + 3 steps."""
    assert formats.detect_format(TOY) == "rlds"
    data = Dataset(TOY)
    number = data.lengths - 3
    assert sorted(number) == list(range(7))
    np.testing.assert_array_equal(data.ended, number % 2 == 0)
    np.testing.assert_array_equal(data.returns, [sum(range(n)) for n in data.lengths])
    found = next(data.blocks(1000)).arrays
    first_seen = np.cumsum(data.lengths + 1) - data.lengths - 1
    for e, row, seen in zip(
        number, np.cumsum(data.lengths) - data.lengths, first_seen, strict=True
    ):
        np.testing.assert_allclose(found["action"][row : row + 2], [[0, -e / 10], [0.1, -e / 10]])
        np.testing.assert_allclose(found["obs/state"][seen + 1], np.arange(3) + 10 * e + 1 / 8)
        np.testing.assert_array_equal(found["obs/zipped"][seen + 2], [2, e])
        np.testing.assert_array_equal(found["obs/raw"][seen + 2], [e, 2])
        assert found["obs/count"][seen + e + 3] == e + 3  # the last step is seen, not done
        assert found["extra/kind"][row] == e % 3
    assert data.spec.action == spaces.Box(-1.0, 1.0, (2,), np.float32)
    assert set(data.spec.obs.spaces) == {"count", "raw", "state", "zipped"}
    (source,) = data.facts.sources
    assert (source.name, source.format) == ("toy 1.0.0", "rlds")
    assert "left out, not numbers: language, observation/image" in source.notes


def test_data_import_command_converts_rlds(tmp_path):
    assert main(["data", "import", str(TOY), str(tmp_path / "own")]) == 0
    assert Dataset(tmp_path / "own").hash == Dataset(TOY).hash


def test_rlds_last_step_is_kept_only_if_rewarded(tmp_path):
    episodes = [plain(3, True, 1.0), plain(3, True), plain(3), plain(1), {}]
    data = Dataset(folder(tmp_path / "set", PLAIN, episodes))
    assert data.lengths.tolist() == [3, 2, 2]
    found = next(data.blocks(10)).arrays
    assert found["reward"].tolist() == [0, 0, 1, 0, 0, 0, 0]
    assert found["discount"].tolist() == [1, 1, 0, 1, 0, 1, 1]
    assert len(found["obs"]) == 7 + 3


def test_rlds_dict_actions_become_one_vector(tmp_path):
    steps = {
        "observation": {"arm": {"pose": ("float32", 2)}, "seen": ("int64",)},
        "action": {"grip": ("bool",), "move": ("float32", 2)},
    }
    one = {
        "observation/arm/pose": np.zeros((2, 2)),
        "observation/seen": np.arange(2),
        "action/grip": np.array([True, False]),
        "action/move": np.array([[3.0, 4.0], [5.0, 6.0]]),
        **flags(2, False),
    }
    data = Dataset(folder(tmp_path / "parts", steps, [one]))
    assert next(data.blocks(9)).arrays["action"].tolist() == [[1, 3, 4]]
    assert set(data.spec.obs.spaces["arm"].spaces) == {"pose"}
    (source,) = data.facts.sources
    assert "the action is action/grip, action/move, in this order" in source.notes
    assert "there are no rewards; they are set to zero" in source.notes
    chosen = [{**plain(3), "action": np.array([0, 4, 1])}]
    for name, *shape in (("choices",), ("column", 1)):
        steps = {**PLAIN, "action": ("int64", *shape)}
        data = Dataset(folder(tmp_path / name, steps, chosen))
        assert data.spec.action == spaces.Discrete(5)
        assert next(data.blocks(9)).arrays["action"].tolist() == [0, 4]


def test_rlds_observation_entry_with_a_slash_in_its_name_keeps_its_name(tmp_path):
    steps = {"observation": {"arm/pos": ("float32", 2), "arm": {"grip": ("float32",)}}}
    steps |= {"action": ("float32", 1), "reward": ("float32",), "a~b": ("float32",)}
    one = plain(3) | {"observation/arm/pos": np.full((3, 2), 4.0), "a~b": np.zeros(3)}
    one["observation/arm/grip"] = np.zeros(3)
    data = Dataset(folder(tmp_path / "slash", steps, [one]))
    assert data.spec.obs["arm/pos"].shape == (2,)
    assert set(data.spec.obs["arm"]) == {"grip"}
    found = next(data.blocks(9)).arrays
    np.testing.assert_array_equal(found["obs/arm~1pos"], np.full((3, 2), 4.0))
    assert "extra/a~b" in found
    steps["observation"]["arm"]["pos"] = ("float32", 2)
    said = r"Two features are stored as 'observation/arm/pos': .*arm/pos and .*arm~1pos .*Rename"
    with pytest.raises(Mistake, match=said):
        Dataset(folder(tmp_path / "both", steps, [one]))


def test_rlds_action_bounds_ignore_the_meaningless_last_action(tmp_path):
    """The last action means nothing, but where its step is rewarded."""
    for name, episode, most in (("cut", plain(3), 5.0), ("rewarded", plain(3, True, 1.0), 9.0)):
        episode["action"] = np.array([-2.0, 5.0, 9.0])
        data = Dataset(folder(tmp_path / name, PLAIN, [episode]))
        assert data.action_space == spaces.Box(-2.0, most, (1,), np.float32)


def test_damaged_rlds_folder_is_refused_in_one_line(tmp_path):
    whole = folder(tmp_path / "whole", PLAIN, [plain(3), plain(4)])
    file = "own-train.tfrecord-00000-of-00001"

    def changed(name, change):
        copy = shutil.copytree(whole, tmp_path / name)
        (copy / file).write_bytes(change((copy / file).read_bytes()))
        return copy

    def flipped(data, at):
        return data[:at] + bytes([data[at] ^ 4]) + data[at + 1 :]

    for name, change, words in (
        ("cut", lambda data: data[:-9], "record 1 is cut off"),
        ("head", lambda data: data + b"\0\1", "record 2 is cut off"),
        ("flipped", lambda data: flipped(data, 40), "record 0 is damaged"),
        ("length", lambda data: flipped(data, 1), "record 0 is damaged"),
    ):
        with pytest.raises(Mistake, match=f"{file}: {words}. Download the file again") as error:
            Dataset(changed(name, change))
        assert "\n" not in str(error.value)
    gone = folder(tmp_path / "gone", PLAIN, [plain(3)])
    (gone / file).unlink()
    with pytest.raises(Mistake, match=r"have 0 episodes, but dataset_info\.json states 1"):
        Dataset(gone)


def test_inconsistent_rlds_episodes_are_refused_in_one_line(tmp_path):
    short = {**plain(3), "action": np.zeros(2)}
    with pytest.raises(
        Mistake, match=r"episode 0: 'action' does not match .*2 numbers, but 3 steps"
    ):
        Dataset(folder(tmp_path / "short", PLAIN, [short]))
    joined = {**plain(4), "is_last": np.array([0, 1, 0, 1])}
    with pytest.raises(Mistake, match="continues after step 1, which is marked as its last"):
        Dataset(folder(tmp_path / "joined", PLAIN, [joined]))
    other = folder(tmp_path / "other", PLAIN, [plain(3)], fileFormat="array_record")
    with pytest.raises(Mistake, match=r"stored as array_record. Write it again"):
        Dataset(other)
    blind = {"action": ("float32", 1)}
    with pytest.raises(Mistake, match="observation"):
        Dataset(folder(tmp_path / "blind", blind, [plain(3)]))
    with pytest.raises(Mistake, match=r"episode 0: The record is not a tf\.train\.Example"):
        Dataset(folder(tmp_path / "other-records", PLAIN, [b"\xff\xff\xff"]))
    bad = folder(tmp_path / "bad", PLAIN, [plain(3)])
    (bad / "features.json").write_text("{")
    with pytest.raises(Mistake, match="cannot be read as"):
        Dataset(bad)


def test_rlds_without_its_packages_names_the_pip_extra(monkeypatch):
    tfrecord._import_modules.cache_clear()
    monkeypatch.setitem(sys.modules, "google_crc32c", None)
    with pytest.raises(Mistake, match=r'pip install "sterling-rl\[rlds\]"'):
        Dataset(TOY)


def test_rlds_zlib_tensors_are_read(tmp_path):
    """A step's numbers as one zipped string; and one that is no such string."""
    good = np.array([zlib.compress(np.float32([t, 7]).tobytes()) for t in range(3)], object)
    bad = np.array([b"no", b"no", b"no"], object)
    pushed = np.array([zlib.compress(np.float32([t]).tobytes()) for t in range(3)], object)
    for name, strings in (("good", good), ("bad", bad)):
        episode = {**plain(3), "observation": strings, "action": pushed}
        path = folder(tmp_path / name, PLAIN, [episode])
        said = json.loads((path / "features.json").read_text())
        steps = said["featuresDict"]["features"]["steps"]["sequence"]["feature"]
        for part in ("observation", "action"):
            steps["featuresDict"]["features"][part]["tensor"]["encoding"] = "zlib"
        (path / "features.json").write_text(json.dumps(said))
    data = Dataset(tmp_path / "good")
    found = next(data.blocks(9)).arrays
    np.testing.assert_array_equal(found["obs"], [[0, 7], [1, 7], [2, 7]])
    np.testing.assert_array_equal(found["action"], [[0], [1]])
    assert data.action_space == spaces.Box(-1.0, 1.0, (1,), np.float32)  # the last one is no row's
    with pytest.raises(Mistake, match="'observation' does not match"):
        Dataset(tmp_path / "bad")
