"""Files that do not say their spaces: what is guessed, and how an environment's are put instead."""

import numpy as np
import pytest
from gymnasium import spaces

from sterling.cli import main
from sterling.data import Dataset, check
from sterling.data.file_conversion import convert_files
from sterling.data.formats import flat_arrays
from sterling.types import Mistake

ROWS = 8


def npz(path, **arrays):
    """A flat file of two episodes that end."""
    plain = dict(
        observations=np.arange(ROWS, dtype=np.float32)[:, None].repeat(4, 1),
        actions=np.zeros((ROWS, 1), np.float32),
        rewards=np.arange(float(ROWS)),
        terminals=np.arange(ROWS) % 4 == 3,
    )
    np.savez(path, **{**plain, **arrays})
    return path


def notes(data):
    return [note for source in data.facts.sources for note in source.notes]


def test_guessed_action_bounds_are_the_observed_range(tmp_path):
    random = np.random.default_rng(0)
    action = random.normal(30.0, 5.0, (ROWS, 3)).astype(np.float32)
    action[:, 1], action[:, 2] = -7.0, np.linspace(0.0, 0.5, ROWS)
    data = Dataset(npz(tmp_path / "a.npz", actions=action))
    low, high = data.action_space.low, data.action_space.high
    np.testing.assert_array_equal(low[[0, 2]], action.min(0)[[0, 2]])
    np.testing.assert_array_equal(high[[0, 2]], action.max(0)[[0, 2]])
    assert low[1] < -7.0 < high[1]
    assert high[1] - low[1] < 0.1  # what never changed does not change by much
    seen = np.asarray(data.transitions().action)
    for end, edge in ((seen.min(0), -1.0), (seen.max(0), 1.0)):
        np.testing.assert_allclose(end[[0, 2]], edge, rtol=1e-5)
    np.testing.assert_allclose(seen[:, 1], 0.0, atol=1e-3)
    findings = [str(one) for one in check(data)]
    assert sum(flat_arrays.GUESSED_BOUNDS_NOTE in one for one in findings) == 1
    assert not any(one.startswith("error") for one in findings)


def test_guessed_action_bounds_of_small_actions_are_minus_one_to_one(tmp_path):
    data = Dataset(npz(tmp_path / "a.npz", actions=np.full((ROWS, 1), 0.5, np.float32)))
    assert data.action_space == spaces.Box(-1.0, 1.0, (1,), np.float32)
    assert flat_arrays.GUESSED_SPACES_NOTE in notes(data)
    assert flat_arrays.GUESSED_BOUNDS_NOTE not in notes(data)


def test_guessed_action_bounds_ignore_non_finite_values(tmp_path):
    action = np.array([[3.0], [np.nan], [9.0], [np.inf]] * 2)
    data = Dataset(npz(tmp_path / "a.npz", actions=action))
    assert data.action_space == spaces.Box(3.0, 9.0, (1,), np.float64)


def test_joined_datasets_have_guessed_bounds_that_hold_both(tmp_path, capsys):
    files = [
        npz(tmp_path / f"{at}.npz", actions=np.linspace(at, 5 * at, ROWS)[:, None]) for at in (1, 2)
    ]
    assert main(["data", "import", *map(str, files), str(tmp_path / "both")]) == 0
    data = Dataset(tmp_path / "both")
    assert data.action_space == spaces.Box(1.0, 10.0, (1,), np.float64)
    assert capsys.readouterr().out.count(flat_arrays.GUESSED_BOUNDS_NOTE) == 2


@pytest.mark.parametrize("dtype", [np.uint8, np.int16, bool])
@pytest.mark.parametrize("shape", [(), (1,), (2,)])
def test_integer_actions_of_any_dtype_become_discrete(tmp_path, dtype, shape):
    """Also bytes, as small files keep them, and truths."""
    chosen = np.arange(ROWS * int(np.prod(shape))).reshape(ROWS, *shape) % 2
    data = Dataset(npz(tmp_path / "a.npz", actions=chosen.astype(dtype)))
    two = spaces.MultiDiscrete([2, 2]) if shape == (2,) else spaces.Discrete(2)
    assert data.action_space == two
    assert not [one for one in check(data) if one.severity == "error"]
    wanted = chosen.reshape(data.transitions().action.shape)
    np.testing.assert_array_equal(data.transitions().action, wanted)


def test_constant_boolean_action_becomes_discrete_2(tmp_path):
    data = Dataset(npz(tmp_path / "a.npz", actions=np.zeros(ROWS, bool)))
    assert data.action_space == spaces.Discrete(2)


def test_integer_action_column_becomes_discrete(tmp_path):
    chosen = np.arange(ROWS) % 2
    for name, action in (("row", chosen), ("column", chosen[:, None])):
        data = Dataset(npz(tmp_path / f"{name}.npz", actions=action))
        assert data.action_space == spaces.Discrete(2)
        assert next(data.blocks()).arrays["action"].tolist() == chosen.tolist()
        assert not [one for one in check(data) if one.severity == "error"]


@pytest.mark.parametrize("form", ["rows", "column", "floats", "bools"])
def test_discrete_actions_of_any_storage_take_the_environments_space(tmp_path, form):
    chosen = np.arange(ROWS) % 2
    made = {
        "rows": chosen.astype(np.int32),
        "column": chosen[:, None],
        "floats": chosen.astype(np.float32),
        "bools": chosen.astype(bool)[:, None],
    }[form]
    path = npz(tmp_path / "a.npz", actions=made)
    data = convert_files([path], tmp_path / "out", environment="CartPole-v1")
    assert data.action_space == spaces.Discrete(2)
    (action,) = (block.arrays["action"] for block in data.blocks())
    assert (action.dtype, action.tolist()) == (np.int64, chosen.tolist())
    assert notes(data) == [
        flat_arrays.NO_TIMEOUTS_NOTE,
        flat_arrays.COPIED_LAST_NOTE,
    ]  # nothing is guessed any more
    assert not [one for one in check(data, "CartPole-v1") if one.severity == "error"]


def lake(path, observations):
    return npz(path, observations=observations, actions=np.arange(ROWS) % 4)


@pytest.mark.parametrize("dtype", [np.int64, np.float32])
def test_discrete_observations_take_the_environments_space(tmp_path, dtype):
    path = lake(tmp_path / "lake.npz", np.arange(ROWS).astype(dtype))
    data = convert_files([path], tmp_path / "out", environment="FrozenLake-v1")
    assert (data.obs_space, data.action_space) == (spaces.Discrete(16), spaces.Discrete(4))
    assert data[0].obs.tolist() == [0, 1, 2, 3, 3]
    assert not [one for one in check(data, "FrozenLake-v1") if one.severity == "error"]


@pytest.mark.parametrize(
    ("observations", "words"),
    [
        (np.arange(ROWS) + 9, r"'obs' holds 16, which .* Discrete\(16\) does not contain"),
        (np.arange(ROWS) / 2, r"'obs' holds 0\.5, which .* Discrete\(16\) does not contain"),
        (np.arange(ROWS) - 1, r"'obs' holds -1, which .* does not contain"),
        (
            np.zeros((ROWS, 2)),
            r"The file's obs space is Box.*, but the environment's is Discrete\(16\)",
        ),
    ],
)
def test_observations_outside_the_environments_discrete_space_are_refused(
    tmp_path, observations, words
):
    path = lake(tmp_path / "lake.npz", observations)
    with pytest.raises(Mistake, match=words) as error:
        convert_files([path], tmp_path / "out", environment="FrozenLake-v1")
    assert "\n" not in str(error.value)


def test_discrete_actions_are_refused_for_a_box_environment(tmp_path):
    arrays = dict(observations=np.zeros((ROWS, 3)), actions=np.zeros(ROWS, int))
    path = npz(tmp_path / "a.npz", **arrays)
    with pytest.raises(Mistake, match=r"The file's action space is Discrete\(1\), but .* is Box"):
        convert_files([path], tmp_path / "out", environment="Pendulum-v1")
