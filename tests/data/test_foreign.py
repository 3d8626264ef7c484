"""Files of others and their traps: episodes begin and end where they did."""

import h5py
import numpy as np
import pytest
from gymnasium import spaces

from sterling.data import Dataset, describe, formats
from sterling.data.file_conversion import convert_files
from sterling.types import Mistake


def d4rl(path, **arrays):
    with h5py.File(path, "w") as file:
        for name, array in arrays.items():
            file[name.replace("__", "/")] = np.asarray(array)
    return path


STREAM = np.arange(6, dtype=np.float32)[:, None]
ZEROS = np.zeros((6, 1), np.float32)
REWARDS = np.arange(6, dtype=np.float32)


def test_d4rl_without_next_obs_drops_the_last_step_of_truncated_episodes(tmp_path):
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


def test_d4rl_without_timeouts_is_cut_at_the_given_limit(tmp_path):
    flags = dict(terminals=np.zeros(6))
    path = d4rl(tmp_path / "a.hdf5", observations=STREAM, actions=ZEROS, rewards=REWARDS, **flags)
    for wrong in (0, -5):
        with pytest.raises(Mistake, match="at least 1 step"):
            convert_files([path], tmp_path / "wrong", limit=wrong)
    data = convert_files([path], tmp_path / "out", limit=3)
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
    assert [formats.detect_format(one.path) for one in read] == ["ogbench"] * 3
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


def test_npz_with_generic_array_names_is_read(tmp_path):
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


CUTS = {name: np.array([0, 0, 1, 0, 0, 0]) for name in ("truncations", "truncateds", "truncated")}


@pytest.mark.parametrize("cut", CUTS)
@pytest.mark.parametrize("known", [("rewards",), (), ("rewards", "masks"), ("masks",)])
def test_npz_with_truncation_flags_is_not_read_as_ogbench(tmp_path, cut, known):
    """Whose terminals are no ends, whatever else there is."""
    more = {"rewards": REWARDS, "masks": np.ones(6)}
    np.savez(
        tmp_path / "a.npz",
        observations=STREAM,
        actions=ZEROS,
        terminals=np.array([0, 0, 0, 0, 0, 1]),
        **{cut: CUTS[cut]},
        **{name: more[name] for name in known},
    )
    data = Dataset(tmp_path / "a.npz")
    assert data.facts.sources[0].format == "npz"
    assert data.lengths.tolist() == [2, 3]  # a cut episode's last row has no successor
    assert data.ended.tolist() == [False, True]
    noted = any("no rewards" in note for note in data.facts.sources[0].notes)
    assert noted == ("rewards" not in known) == (not data.returns.any())


@pytest.mark.parametrize("more", [{}, {"next_observations": STREAM + 1}, {"done": [0, 0, 1] * 2}])
def test_npz_without_truncation_flags_is_noted(tmp_path, more):
    arrays = {"observations": STREAM, "actions": ZEROS, "rewards": REWARDS}
    ends = np.array([0, 0, 0, 0, 0, 1])
    np.savez(tmp_path / "a.npz", **arrays, terminals=ends, **more)
    unknown = [
        note for note in Dataset(tmp_path / "a.npz").facts.sources[0].notes if "--limit" in note
    ]
    assert len(unknown) == (not more)
    cut = convert_files([tmp_path / "a.npz"], tmp_path / "out", limit=3)
    assert not any("--limit" in note for note in cut.facts.sources[0].notes)
    assert len(cut) == 2


@pytest.mark.parametrize("write", [np.savez, np.savez_compressed])
def test_an_npz_is_read_piece_by_piece(tmp_path, monkeypatch, same, write):
    """By rows, or all of it where an array lies by columns."""
    monkeypatch.setattr(formats.flat_arrays, "BLOCK_ROWS", 7)
    random, rows = np.random.default_rng(0), 60
    obs = random.normal(size=(rows, 3))
    arrays = {"actions": random.integers(0, 3, rows), "rewards": random.normal(size=rows)}
    ends = np.arange(rows) % 5 == 4
    flags = {"terminals": ends, "timeouts": np.zeros(rows, bool), "next_observations": obs + 1}
    for name, lying in (("rows", obs), ("columns", np.asfortranarray(obs))):
        write(tmp_path / f"{name}.npz", observations=lying, **arrays, **flags)
    whole = [Dataset(tmp_path / f"{name}.npz") for name in ("rows", "columns")]
    same(*whole)
    assert whole[0].lengths.tolist() == [1] * 60  # its successors are not what follows
    np.testing.assert_array_equal(whole[0].transitions().obs, obs.astype(np.float32))
    whole[0].save(tmp_path / "ours.npz", "npz")
    monkeypatch.setattr(formats.npz, "BLOCK_ROWS", 7)
    taken, read = [], formats.npz_archive.ArrayMember.__getitem__

    def counted(member, rows):
        found = read(member, rows)
        taken.append(len(found) if found.ndim > 1 else 0)
        return found

    monkeypatch.setattr(formats.npz_archive.ArrayMember, "__getitem__", counted)
    for name, successors in (("rows", 0), ("ours", 7)):
        stream = formats.open_stream(tmp_path / f"{name}.npz")
        assert [block.rows for block in stream.blocks] == [7] * 8 + [4]
        assert max(taken) == 7 + successors  # each episode of one row has two observations
    with pytest.raises(Mistake, match=r"larger than memory.*sterling data import"):
        Dataset(tmp_path / "rows.npz", memory=100)


def test_npz_beyond_memory_is_refused_in_one_line(tmp_path, monkeypatch):
    np.savez(tmp_path / "a.npz", observations=STREAM, actions=ZEROS, terminals=np.ones(6))

    def none(*_):
        raise MemoryError

    monkeypatch.setattr(formats.npz_archive.ArrayMember, "__getitem__", none)
    for read in (Dataset, lambda path: convert_files([path], tmp_path / "out")):
        with pytest.raises(Mistake, match=r"Memory does not suffice for .*a\.npz"):
            read(tmp_path / "a.npz")


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
    data = convert_files(files, tmp_path / "out", environment="Pendulum-v1", reference=(0.0, 9.0))
    assert data.action_space == spaces.Box(-2.0, 2.0, (1,), np.float32)
    assert [one.source.name for one in data] == ["a.npz", "b.npz"]
    assert data.facts.reference == (0, 9)
    with pytest.raises(Mistake, match="did you mean Pendulum-v1"):
        convert_files(files, tmp_path / "out", environment="Pendulun-v1")
    with pytest.raises(
        Mistake, match=r"The file's obs space is Box.*, but the environment's is Box"
    ):
        convert_files(files, tmp_path / "out", environment="CartPole-v1")


def test_missing_or_short_dataset_arrays_are_named(tmp_path):
    path = d4rl(tmp_path / "d.hdf5", observations=STREAM, actions=ZEROS[:4], terminals=REWARDS)
    with pytest.raises(Mistake, match="array 'rewards' is missing"):
        Dataset(path)
    d4rl(path, observations=STREAM, actions=ZEROS[:4], terminals=REWARDS, rewards=REWARDS)
    with pytest.raises(Mistake, match="4 actions for 6 observations"):
        Dataset(path)
    with h5py.File(path, "a") as file:
        del file["actions"]
    there = "The array 'actions' is missing. The file has: observations, rewards, terminals"
    with pytest.raises(Mistake, match=there):
        Dataset(path)


PLAIN = {"observations": STREAM, "actions": ZEROS, "rewards": REWARDS, "terminals": REWARDS == 5}
FORMS = {"d4rl": {}, "npz": {"next_observations": STREAM + 1}, "ogbench": {"masks": np.ones(6)}}


def foreign(folder, form, **arrays):
    """A file of one of ``FORMS`` with some of its arrays replaced."""
    made = {**PLAIN, **FORMS[form], **arrays}
    if form == "d4rl":
        return d4rl(folder / "a.hdf5", **made)
    np.savez(folder / "a.npz", **made)
    return folder / "a.npz"


@pytest.mark.parametrize("form", FORMS)
def test_non_numeric_dataset_columns_are_left_out_and_noted(tmp_path, form):
    more = {"goal": ZEROS, "task": np.array([b"a"] * 6), "z": REWARDS * 1j, "gain": np.ones(4)}
    if form == "d4rl":
        more = {f"infos__{name}": array for name, array in more.items()}
    else:
        more["when"] = np.arange(6).astype("datetime64[s]")
        more |= {"infos": np.array([{"a": 1}] * 6, object), "name": np.array("a")}
    path = foreign(tmp_path, form, **more)
    assert formats.detect_format(path) == form
    data = Dataset(path)
    assert [name for name in data.columns if name.startswith("extra/")] == ["extra/goal"]
    (note,) = (one for one in data.facts.sources[0].notes if "left out" in one)
    left = {name.removeprefix("infos__") for name in more} - {"goal"}
    assert set(note.removeprefix("left out, not numbers for every row: ").split(", ")) == left
    assert describe(data).pairs > 1


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (
            {"actions": np.array([b"left"] * 6)},
            r"array 'actions' holds \|S4. Save it as real numbers",
        ),
        ({"terminals": np.where(REWARDS == 3, np.nan, 0)}, "'terminals' is NaN at row 3. Write 0"),
        ({"rewards": np.zeros((6, 2))}, "array 'rewards' has 2 numbers per row. Save it with one"),
        ({"terminals": np.zeros((6, 2))}, "array 'terminals' has 2 numbers per row"),
        ({name: array[:0] for name, array in {**PLAIN, **FORMS["npz"]}.items()}, "no rows"),
    ],
)
def test_unusable_dataset_arrays_are_refused_in_one_line(tmp_path, form, wrong, said):
    if "masks" in FORMS[form] and not len(wrong.get("actions", STREAM)):
        wrong = {**wrong, "masks": np.ones(0)}
    with pytest.raises(Mistake, match=said) as told:
        Dataset(foreign(tmp_path, form, **wrong))
    assert "restore" not in str(told.value)
    assert "\n" not in str(told.value)


def test_nan_timeout_flags_are_refused(tmp_path):
    cut = np.where(REWARDS == 2, np.nan, 0)
    for form in ("d4rl", "npz"):
        with pytest.raises(Mistake, match="array 'timeouts' is NaN at row 2"):
            Dataset(foreign(tmp_path, form, timeouts=cut))


def test_needed_arrays_of_python_objects_are_refused(tmp_path):
    for name, array in PLAIN.items():
        path = foreign(tmp_path, "npz", **{name: array.astype(object)})
        with pytest.raises(Mistake, match=f"array '{name}' holds object. Save it as real numbers"):
            Dataset(path)
