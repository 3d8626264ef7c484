"""What is written is read again, by us and by others; what others write is read right."""

import tempfile
from pathlib import Path

import h5py
import minari
import numpy as np
import pytest
from gymnasium import spaces
from hypothesis import given, settings
from hypothesis import strategies as some
from minari.data_collector import EpisodeBuffer

from sterling.data import Dataset, formats
from sterling.types import Mistake

EPISODES = some.lists(some.tuples(some.integers(1, 6), some.booleans()), min_size=1, max_size=6)
NAMES = {"sterling": "a", "minari": "a", "d4rl": "a.hdf5", "npz": "a.npz"}


@pytest.mark.parametrize("name", formats.WRITTEN)
@settings(max_examples=15, deadline=None)
@given(
    EPISODES, some.booleans(), some.booleans(), some.sampled_from([(), ("log_prob",)]),
    some.integers(0, 99),
)  # fmt: skip
def test_what_is_written_is_read(build, same, name, episodes, nested, discrete, extras, seed):
    lengths, ended = zip(*episodes, strict=True)
    data = build(
        lengths,
        ended,
        seed=seed,
        nested=nested and name != "d4rl",
        discrete=discrete,
        extras=(*extras, *(["info"] if name != "d4rl" else [])),
        reference=(0.0, 10.0),
        environment="CartPole-v1",
    )
    with tempfile.TemporaryDirectory() as folder:
        path = data.save(Path(folder) / NAMES[name], name)
        assert formats.recognised(path) == name
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


def d4rl(path, **arrays):
    with h5py.File(path, "w") as file:
        for name, array in arrays.items():
            file[name.replace("__", "/")] = np.asarray(array)
    return path


STREAM = np.arange(6, dtype=np.float32)[:, None]
ZEROS = np.zeros((6, 1), np.float32)
REWARDS = np.arange(6, dtype=np.float32)


def test_d4rl_without_successors_gives_up_the_last_step_of_a_cut_and_keeps_that_of_an_end(tmp_path):
    path = d4rl(
        tmp_path / "a.hdf5",
        observations=STREAM,
        actions=ZEROS,
        rewards=REWARDS,
        terminals=[0, 0, 0, 0, 1, 0],
        timeouts=[0, 0, 1, 0, 0, 0],
        infos__action_log_probs=-REWARDS,
    )
    data = Dataset(path)
    assert data.lengths.tolist() == [2, 2]  # rows 0-2 cut, 3-4 ended, 5 alone
    assert data[0].obs[:, 0].tolist() == [0, 1, 2]
    assert data[1].reward.tolist() == [3, 4]
    assert data[1].obs[:, 0].tolist() == [3, 4, 4]
    assert data[1].extras["log_prob"].tolist() == [-3, -4]
    assert data.ended.tolist() == [False, True]
    assert any("copy" in note for note in data.facts.sources[0].notes)


def test_d4rl_with_successors_keeps_every_step_and_finds_unrecorded_resets(tmp_path):
    following = STREAM + 1
    following[1] = 7.0  # row 2 does not follow row 1, and no flag says so
    path = d4rl(
        tmp_path / "a.hdf5",
        observations=STREAM,
        actions=ZEROS,
        rewards=REWARDS[:, None],
        terminals=[0, 0, 0, 0, 0, 1],
        timeouts=[0, 0, 0, 1, 0, 0],
        next_observations=following,
    )
    data = Dataset(path)
    assert data.lengths.tolist() == [2, 2, 2]
    assert data[0].obs[:, 0].tolist() == [0, 1, 7]
    assert data[1].obs[:, 0].tolist() == [2, 3, 4]
    assert data.ended.tolist() == [False, False, True]
    assert any("1 resets were not recorded" in note for note in data.facts.sources[0].notes)


def test_a_limit_cuts_what_has_no_timeouts(tmp_path):
    flags = dict(terminals=np.zeros(6))
    path = d4rl(tmp_path / "a.hdf5", observations=STREAM, actions=ZEROS, rewards=REWARDS, **flags)
    data = formats.convert([path], tmp_path / "out", limit=3)
    assert data.lengths.tolist() == [2, 2]
    assert data[1].obs[:, 0].tolist() == [3, 4, 5]


def test_ogbench_in_its_three_forms_is_one_dataset(tmp_path, same):
    """Trajectories s0 s1 s2 s3 and s4 s5 s6, as OGBench's loader hands them out."""
    obs = np.arange(7, dtype=np.float32)[:, None]
    action = np.arange(7, dtype=np.float32)[:, None] / 10
    keep = np.array([0, 1, 2, 4, 5])
    np.savez(
        tmp_path / "published.npz",
        observations=obs,
        actions=action,
        terminals=np.array([0, 0, 0, 1, 0, 0, 1], bool),
    )
    np.savez(
        tmp_path / "compact.npz",
        observations=obs,
        actions=action,
        terminals=np.array([0, 0, 1, 1, 0, 1, 1.0]),
        valids=np.array([1, 1, 1, 0, 1, 1, 0.0]),
    )
    np.savez(
        tmp_path / "regular.npz",
        observations=obs[keep],
        actions=action[keep],
        next_observations=obs[keep + 1],
        terminals=np.array([0, 0, 1, 0, 1.0]),
    )
    read = [Dataset(tmp_path / f"{name}.npz") for name in ("published", "compact", "regular")]
    assert [formats.recognised(one.path) for one in read] == ["ogbench"] * 3
    assert read[0].lengths.tolist() == [3, 2]
    assert read[0][1].obs[:, 0].tolist() == [4, 5, 6]
    assert not read[0].ended.any()
    same(read[0], read[1])
    same(read[0], read[2])


def test_ogbench_masks_are_discounts_also_within_a_trajectory(tmp_path):
    np.savez(
        tmp_path / "task.npz",
        observations=np.arange(5, dtype=np.float32)[:, None],
        actions=np.zeros((5, 1), np.float32),
        terminals=np.array([0, 0, 0, 0, 1]),
        masks=np.array([1, 0, 1, 1, 0]),
        rewards=np.array([-1, 0, -1, -1, 0.0]),
    )
    data = Dataset(tmp_path / "task.npz")
    assert data[0].discount.tolist() == [1, 0, 1, 1]
    assert data.ended.tolist() == [False]


def test_anybodys_arrays(tmp_path):
    np.savez(
        tmp_path / "a.npz",
        obs=STREAM,
        next_obs=STREAM + 1,
        action=np.array([0, 1, 2, 0, 1, 2]),
        reward=REWARDS,
        done=np.array([0, 0, 1, 0, 0, 1]),
        truncated=np.array([0, 0, 1, 0, 0, 0]),
    )
    data = Dataset(tmp_path / "a.npz")
    assert data.ended.tolist() == [False, True]
    assert data.action_space == spaces.Discrete(3)


@pytest.mark.parametrize("name", formats.WRITTEN)
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


def test_names_are_hinted_at(build, tmp_path):
    data = build([3], [True])
    with pytest.raises(Mistake, match="did you mean minari"):
        data.save(tmp_path / "a", "minary")
    data.save(tmp_path / "hopper.npz", "npz")
    with pytest.raises(Mistake, match=r"did you mean hopper\.npz"):
        Dataset(tmp_path / "hoper.npz")
    np.savez(tmp_path / "b.npz", observations=STREAM, reward=REWARDS, terminals=REWARDS)
    with pytest.raises(Mistake, match="no array 'actions' or 'action'"):
        Dataset(tmp_path / "b.npz")
    (tmp_path / "c.txt").write_text("no data")
    with pytest.raises(Mistake, match="in no known format; there are sterling, minari"):
        Dataset(tmp_path / "c.txt")
    path = d4rl(tmp_path / "d.hdf5", observations=STREAM, actions=ZEROS[:4], terminals=REWARDS)
    with pytest.raises(Mistake, match="no array 'rewards'"):
        Dataset(path)
    d4rl(path, observations=STREAM, actions=ZEROS[:4], terminals=REWARDS, rewards=REWARDS)
    with pytest.raises(Mistake, match="4 actions for 6 observations"):
        Dataset(path)


def test_minari_with_an_episode_too_short_names_it(build, tmp_path):
    path = build([3, 4], [True, False]).save(tmp_path / "a", "minari")
    with h5py.File(path / "data" / "main_data.hdf5", "a") as file:
        del file["episode_1/observations"]
        file["episode_1/observations"] = np.zeros((4, 3), np.float32)
    with pytest.raises(Mistake, match="episode_1: column 'obs' has 4 entries where 5 belong"):
        Dataset(path)


@pytest.mark.parametrize("name", ["sterling", "npz", "d4rl"])
def test_a_crash_while_writing_leaves_the_old_file_whole(build, same, tmp_path, name, monkeypatch):
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


def test_writing_over_a_dataset_leaves_nothing_of_the_old(build, same, tmp_path):
    build([3, 4], [True, False], extras=("log_prob",)).save(tmp_path / "a")
    new = build([5], [True], seed=1)
    new.save(tmp_path / "a")
    same(new, Dataset(tmp_path / "a"))
    assert len(list((tmp_path / "a").glob("*.npy"))) == len(new.columns) + 1


def test_a_folder_of_something_else_is_not_written_over(build, tmp_path):
    (tmp_path / "thesis.tex").write_text("precious")
    with pytest.raises(Mistake, match="choose another name"):
        build([3], [True]).save(tmp_path)


def test_equal_datasets_are_equal_files(build, tmp_path):
    for name in ("one.npz", "two.npz"):
        build([3, 4], [True, False]).save(tmp_path / name, "npz")
    assert (tmp_path / "one.npz").read_bytes() == (tmp_path / "two.npz").read_bytes()


def test_importing_joins_files_and_takes_an_environments_spaces(tmp_path):
    for name in ("a", "b"):
        np.savez(
            tmp_path / f"{name}.npz",
            observations=np.zeros((4, 3), np.float32),
            actions=np.zeros((4, 1), np.float32),
            rewards=np.arange(4.0),
            terminals=np.array([0, 0, 0, 1]),
        )
    files = [tmp_path / "a.npz", tmp_path / "b.npz"]
    data = formats.convert(files, tmp_path / "out", environment="Pendulum-v1", reference=(0.0, 9.0))
    assert data.action_space == spaces.Box(-2.0, 2.0, (1,), np.float32)
    assert [one.source.name for one in data] == ["a.npz", "b.npz"]
    assert data.facts.reference == (0, 9)
    with pytest.raises(Mistake, match="did you mean Pendulum-v1"):
        formats.convert(files, tmp_path / "out", environment="Pendulun-v1")
    with pytest.raises(Mistake, match=r"the file's obs space is Box.*, the environment's Box"):
        formats.convert(files, tmp_path / "out", environment="CartPole-v1")
