"""What is written is read again, by us and by others; what others write is read right."""

import dataclasses
import json
import tempfile
import zipfile
from pathlib import Path

import h5py
import minari
import numpy as np
import pytest
from gymnasium import spaces
from hypothesis import given, settings
from hypothesis import strategies as some
from minari.data_collector import EpisodeBuffer

from sterling.cli import main
from sterling.data import Dataset, formats
from sterling.data.file_conversion import convert_files
from sterling.data.space_json import column_spaces
from sterling.types import Mistake

EPISODES = some.lists(some.tuples(some.integers(1, 6), some.booleans()), min_size=1, max_size=6)
STREAM = np.arange(6, dtype=np.float32)[:, None]
NAMES = {"sterling": "a", "minari": "a", "d4rl": "a.hdf5", "npz": "a.npz"}


@pytest.mark.parametrize("name", formats.WRITABLE_FORMATS)
@settings(max_examples=15)
@given(episodes=EPISODES, chosen=some.data())
def test_dataset_formats_round_trip(build, same, name, episodes, chosen):
    lengths, ended = zip(*episodes, strict=True)
    flat = name == "d4rl"
    data = build(
        lengths,
        ended,
        seed=chosen.draw(some.integers(0, 99)),
        nested=not flat and chosen.draw(some.booleans()),
        discrete=chosen.draw(some.booleans()),
        extras=("log_prob",)
        if flat
        else chosen.draw(some.sampled_from([(), ("log_prob", "info")])),
        reference=(0.0, 10.0),
        environment="CartPole-v1",
    )
    with tempfile.TemporaryDirectory() as folder:
        path = data.save(Path(folder) / NAMES[name], name)
        assert formats.detect_format(path) == name
        read = Dataset(path)
    same(data, read)
    assert read.hash == data.hash
    assert read.ended.tolist() == list(ended)  # cut or real end
    assert read.facts == data.facts


def test_formats_convert_into_each_other_without_loss(build, same, tmp_path):
    data = build([3, 5, 2], [True, False, True], extras=("log_prob",), environment="Hopper-v5")
    path = data.save(tmp_path / "first")
    for step, name in enumerate(["minari", "d4rl", "npz", "sterling", "d4rl", "minari"]):
        path = Dataset(path).save(tmp_path / f"{step}-{NAMES[name]}", name)
    same(data, Dataset(path))
    assert Dataset(path).hash == data.hash


def test_minari_opens_what_we_write(build, tmp_path, monkeypatch):
    data = build(
        [3, 4], [True, False], nested=True, environment="CartPole-v1", reference=(9.0, 500.0)
    )
    data.save(tmp_path / "cartpole-v3", "minari")
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path))
    opened = minari.load_dataset("cartpole-v3")
    assert (opened.total_episodes, opened.total_steps) == (2, 7)
    assert opened.observation_space == data.obs_space
    assert opened.env_spec.id == "CartPole-v1"
    assert opened.storage.metadata["ref_max_score"] == 500.0
    for theirs, ours in zip(opened, data, strict=True):
        np.testing.assert_array_equal(theirs.observations["where"], ours.obs["where"])
        np.testing.assert_array_equal(theirs.observations["parts"][1], ours.obs["parts"][1])
        np.testing.assert_array_equal(theirs.actions, ours.action)
        np.testing.assert_array_equal(theirs.rewards, ours.reward)
    assert opened[0].terminations.tolist() == [False, False, True]
    assert opened[1].truncations.tolist() == [False, False, False, True]


def test_we_open_what_minari_writes(tmp_path, monkeypatch):
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path))
    buffers = [
        EpisodeBuffer(
            observations={
                "eye": list(np.full((n + 1, 32, 32), n, np.uint8)),
                "joint": list(np.arange(n + 1, dtype=np.float32)[:, None]),
            },
            actions=list(np.arange(n) % 2),
            rewards=[float(k) for k in range(n)],
            terminations=[False] * (n - 1) + [n == 3],
            truncations=[False] * (n - 1) + [n != 3],
            infos={"hand": {"x": list(range(n + 1))}},
        )
        for n in (3, 5)
    ]
    minari.create_dataset_from_buffers(
        "mine/thing-v0",
        buffers,
        observation_space=spaces.Dict(
            {
                "eye": spaces.Box(0, 255, (32, 32), np.uint8),  # kept as JPEG
                "joint": spaces.Box(-9, 9, (1,), np.float32),
            }
        ),
        action_space=spaces.Discrete(2),
        algorithm_name="hand-made",
    )
    data = Dataset(tmp_path / "mine" / "thing-v0")
    assert data.lengths.tolist() == [3, 5]
    assert data.ended.tolist() == [True, False]
    assert data[1].obs["joint"][:, 0].tolist() == [0, 1, 2, 3, 4, 5]
    assert data[1].obs["eye"].shape == (6, 32, 32)
    assert data[0].infos["hand/x"].tolist() == [0, 1, 2, 3]
    assert data.facts.sources[0].generator == "hand-made"


def test_minari_texts_of_observations_are_left_out_with_a_note(build, tmp_path):
    """MiniGrid's mission; an observation of nothing else is refused by name."""
    data = build([3], [True], nested=True)
    path = data.save(tmp_path / "a", "minari")
    file = path / "data" / "metadata.json"
    said = json.loads(file.read_text())
    whole, text = json.loads(said["observation_space"]), {"type": "Text", "max_length": 5}
    whole["subspaces"]["mission"] = text
    del said["sterling"]
    file.write_text(json.dumps({**said, "observation_space": json.dumps(whole)}))
    read = Dataset(path)
    assert read.obs_space == data.obs_space
    assert "texts of observations left out: mission" in read.facts.sources[0].notes
    whole = {"type": "Dict", "subspaces": {"mission": text}}
    file.write_text(json.dumps({**said, "observation_space": json.dumps(whole)}))
    with pytest.raises(Mistake, match="type Text of observation_space/mission is not supported"):
        Dataset(path)
    with pytest.raises(Mistake, match="space Text of 'obs/mission' is not supported"):
        column_spaces("obs", spaces.Dict({"mission": spaces.Text(5)}))


def test_minari_that_does_not_say_whether_an_episode_ended_is_refused(build, tmp_path):
    path = build([3, 4], [True, False]).save(tmp_path / "a", "minari")
    with h5py.File(path / "data" / "main_data.hdf5", "a") as file:
        del file["episode_1/terminations"]
        file["episode_1/terminations"] = np.array([0, 0, np.nan, 0])
    with pytest.raises(Mistake, match="terminations' is NaN at row 2"):
        Dataset(path)


@pytest.mark.parametrize("name", formats.WRITABLE_FORMATS)
def test_numbers_in_another_byte_order_are_read_and_written(build, same, tmp_path, name):
    data = build([3, 4], [True, False], extras=("log_prob",))
    block = next(data.blocks())
    other = {
        key: array.astype(array.dtype.newbyteorder(">")) for key, array in block.arrays.items()
    }
    block = dataclasses.replace(block, arrays=other)
    made = Dataset.from_block(block, data.obs_space, data.action_space, data.facts)
    np.testing.assert_array_equal(made.transitions().obs, data.transitions().obs)
    assert made.hash == data.hash
    same(data, Dataset(made.save(tmp_path / NAMES[name], name)))
    flat = {"observations": STREAM, "actions": STREAM, "rewards": STREAM, "terminals": STREAM == 5}
    np.savez(tmp_path / "f.npz", **{key: x.astype(">f4") for key, x in flat.items()})
    read = Dataset(tmp_path / "f.npz")
    same(read, Dataset(read.save(tmp_path / f"f{NAMES[name]}", name)))


def test_d4rl_export_notes_what_it_cannot_store(build, tmp_path):
    data = build([3, 4], [True, False], extras=("info",))
    read = Dataset(data.save(tmp_path / "a.hdf5", "d4rl"))
    assert read[0].extras["height"].tolist() == data[0].infos["height"][:3].tolist()
    (note,) = read.facts.sources[0].notes
    assert note.startswith("D4RL cannot store the last entry of every episode")
    assert note.endswith(": info/height")


@pytest.mark.parametrize("name", formats.WRITABLE_FORMATS)
def test_a_damaged_file_is_refused_in_one_line(build, tmp_path, name):
    data = build([40, 40], [True, False])
    path = data.save(tmp_path / NAMES[name], name)
    files = [path] if path.is_file() else [p for p in path.rglob("*.*") if p.suffix != ".json"]
    file = max(files, key=lambda each: each.stat().st_size)
    whole = bytearray(file.read_bytes())
    flipped = whole.copy()
    flipped[whole.find(data[1].obs[5].tobytes()) + 10] ^= 64
    for damaged in (whole[: len(whole) // 2], flipped, b""):
        file.write_bytes(damaged)
        with pytest.raises(Mistake) as told:
            Dataset(path)
        assert "\n" not in str(told.value)
        assert path.name in str(told.value)


@pytest.mark.parametrize("name", ["sterling", "minari", "d4rl"])
def test_changed_dataset_file_is_imported_only_with_changed_option(build, tmp_path, name):
    """Otherwise what is damaged would get a hash that says it is whole."""
    data = build([40, 40], [True, False])
    path = data.save(tmp_path / NAMES[name], name)
    assert convert_files([path], tmp_path / "whole").hash == data.hash
    files = [path] if path.is_file() else [each for each in path.rglob("*.*") if each.is_file()]
    word = data[1].reward[5:8].tobytes()
    (file,) = (each for each in files if word in each.read_bytes())
    file.write_bytes(file.read_bytes().replace(word, data[1].reward[6:9].tobytes()))
    with pytest.raises(Mistake, match="data import --changed"):
        Dataset(path)
    for out in (tmp_path / "out", tmp_path / "whole"):
        with pytest.raises(Mistake, match=r"was changed after it was written.*--changed"):
            convert_files([path], out)
    assert not [*(tmp_path / "out").glob("*.json")]
    assert Dataset(tmp_path / "whole").hash == data.hash  # it stays until another is whole
    assert main(["data", "import", str(path), str(tmp_path / "out"), "--changed"]) == 0
    made = Dataset(tmp_path / "out")
    assert made.hash != data.hash
    assert "import --changed" in made.facts.sources[0].notes[-1]


@pytest.mark.parametrize("name", formats.WRITABLE_FORMATS)
def test_dataset_hash_detects_flipped_bits(build, same, tmp_path, name):
    data = build([9, 8], [True, False], extras=("log_prob",))
    path = data.save(tmp_path / NAMES[name], name)
    files = [path] if path.is_file() else sorted(each for each in path.rglob("*") if each.is_file())
    random, refused = np.random.default_rng(0), 0
    for flip in range(60):
        file = files[flip % len(files)]
        whole = file.read_bytes()
        damaged = bytearray(whole)
        damaged[random.integers(len(damaged))] ^= 1 << int(random.integers(8))
        file.write_bytes(damaged)
        try:
            same(data, Dataset(path))  # padding, or a name beside the numbers
        except Mistake:
            refused += 1
        file.write_bytes(whole)
    assert refused > 10


def test_misspelt_dataset_format_or_file_suggests_a_name(build, tmp_path):
    data = build([3], [True])
    with pytest.raises(Mistake, match="did you mean minari"):
        data.save(tmp_path / "a", "minary")
    data.save(tmp_path / "hopper.npz", "npz")
    with pytest.raises(Mistake, match=r"did you mean hopper\.npz"):
        Dataset(tmp_path / "hoper.npz")
    np.savez(tmp_path / "b.npz", observations=STREAM, reward=STREAM, terminals=STREAM)
    with pytest.raises(Mistake, match="The array 'actions' or 'action' is missing"):
        Dataset(tmp_path / "b.npz")
    (tmp_path / "c.txt").write_text("no data")
    with pytest.raises(
        Mistake, match=r"is not a dataset in a known format. Known: sterling, minari"
    ):
        Dataset(tmp_path / "c.txt")


@pytest.mark.parametrize("name", ["d4rl", "minari"])
def test_dataset_columns_that_collide_in_a_format_are_refused(build, tmp_path, name):
    data = build([3, 4], [True, False], extras=("log_prob",))
    block = next(data.blocks())
    arrays = {**block.arrays, "extra/goal": np.ones(7), "info/goal": np.zeros(9)}
    data = Dataset.from_block(
        dataclasses.replace(block, arrays=arrays), data.obs_space, data.action_space
    )
    with pytest.raises(Mistake, match="Two columns would be stored as infos/goal"):
        data.save(tmp_path / "a", name)
    assert not (tmp_path / "a").exists()


def test_minari_with_an_episode_too_short_names_it(build, tmp_path):
    path = build([3, 4], [True, False]).save(tmp_path / "a", "minari")
    with h5py.File(path / "data" / "main_data.hdf5", "a") as file:
        del file["episode_1/observations"]
        file["episode_1/observations"] = np.zeros((4, 3), np.float32)
    with pytest.raises(Mistake, match=r"episode_1: Column 'obs' has 4 entries, but .* need 5"):
        Dataset(path)


@pytest.mark.parametrize("name", ["sterling", "npz", "d4rl"])
def test_failed_dataset_save_keeps_the_old_file(build, same, tmp_path, name, monkeypatch):
    old, new = build([3, 4], [True, False]), build([9, 9], [True, False], seed=1)
    path = old.save(tmp_path / NAMES[name], name)

    def blocks(rows=0):
        yield from list(Dataset.blocks(new, 9))[:1]
        if rows != 1:  # not the look at what there is, but the writing
            raise RuntimeError("the machine fails")

    assert new.hash  # known before the crash
    monkeypatch.setattr(new, "blocks", blocks)
    with pytest.raises(RuntimeError, match="machine"):
        new.save(path, name)
    same(old, Dataset(path))
    assert not [each for each in tmp_path.rglob("*") if "partial" in each.name]


def test_dataset_save_over_a_dataset_removes_the_old_columns(build, same, tmp_path):
    build([3, 4], [True, False], extras=("log_prob",)).save(tmp_path / "a")
    new = build([5], [True], seed=1)
    new.save(tmp_path / "a")
    same(new, Dataset(tmp_path / "a"))
    assert len(list((tmp_path / "a").glob("*.npy"))) == len(new.columns) + 1


def test_dataset_save_refuses_a_foreign_folder(build, tmp_path):
    (tmp_path / "thesis.tex").write_text("precious")
    with pytest.raises(Mistake, match="Choose another name"):
        build([3], [True]).save(tmp_path)


@pytest.mark.parametrize("name", formats.WRITABLE_FORMATS)
def test_dataset_save_refuses_a_foreign_file(build, tmp_path, name):
    data, path = build([3], [True]), tmp_path / "x"
    with zipfile.ZipFile(tmp_path / "letter", "w") as file:
        file.writestr("word/document.xml", "dear")
    for content in (b"a picture", (tmp_path / "letter").read_bytes()):
        path.write_bytes(content)
        with pytest.raises(
            Mistake, match=f"x exists and is not a dataset in the format {name}. Choose"
        ):
            data.save(path, name)
        assert path.read_bytes() == content
    source = data.save(tmp_path / "source.npz", "npz")
    with pytest.raises(
        Mistake, match="x exists and is not a dataset in the format sterling"
    ) as told:
        convert_files([source], path)
    assert "source" not in str(told.value).replace(str(tmp_path), "")
    assert path.read_bytes() == content


def test_equal_datasets_are_equal_files(build, tmp_path):
    for name in ("one.npz", "two.npz"):
        build([3, 4], [True, False]).save(tmp_path / name, "npz")
    assert (tmp_path / "one.npz").read_bytes() == (tmp_path / "two.npz").read_bytes()
