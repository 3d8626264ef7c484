"""Rows, episodes, selections: no transition joins two episodes, whatever is asked for."""

import os
import subprocess
import sys
import textwrap

import jax
import numpy as np
import pytest
from gymnasium import spaces
from hypothesis import given, settings
from hypothesis import strategies as some

from sterling.data import Dataset, concatenate
from sterling.data.device_dataset import DeviceDataset, to_device
from sterling.data.episode_columns import Block
from sterling.data.formats import check_destination
from sterling.types import Mistake

EPISODES = some.lists(some.tuples(some.integers(0, 5), some.booleans()), min_size=2, max_size=8)


def check_rows(data, record):
    """The observations are (episode, step, noise): see conftest."""
    obs, following = np.asarray(record.obs), np.asarray(record.next_obs)
    np.testing.assert_array_equal(obs[:, 0], following[:, 0])
    np.testing.assert_array_equal(obs[:, 1] + 1, following[:, 1])
    numbers = [int(one.obs[0, 0]) for one in data if len(one)]
    assert list(dict.fromkeys(obs[:, 0].astype(int).tolist())) == numbers
    last = np.concatenate([np.arange(n) == n - 1 for n in data.lengths] or [np.zeros(0, bool)])
    assert np.asarray(record.last).tolist() == last.tolist()
    ends = [one.ended for one in data if len(one)]
    assert (np.asarray(record.discount)[last] == 0).tolist() == ends


@settings(max_examples=40)
@given(EPISODES, some.data())
def test_no_transition_joins_two_episodes(build, episodes, choose):
    data = build(*zip(*episodes, strict=True))
    check_rows(data, data.transitions())
    mask = choose.draw(some.lists(some.booleans(), min_size=len(data), max_size=len(data)))
    part = data[np.array(mask)]
    assert len(part) == sum(mask)
    assert part.rows == sum(n for (n, _), kept in zip(episodes, mask, strict=True) if kept)
    if part.rows:
        check_rows(part, part.transitions())
    rows = [block.rows for block in part.blocks(4)]
    assert sum(rows) == part.rows


def test_dataset_transitions_are_in_agent_units(build):
    data = build([4, 3], [True, False], extras=("log_prob", "info"))
    assert data.spec.action.low.tolist() == [-1, -1]
    record = data.transitions(np.array([[6, 0], [3, 3]]))
    assert record.reward.shape == (2, 2)
    stored = np.stack([data[1].action[2], data[0].action[0]])
    np.testing.assert_allclose(record.action[0], stored / 2, rtol=1e-6)  # the space is [-2, 2]
    assert record.reward.dtype == np.float32
    assert set(record.extras) == {"log_prob"}
    assert np.asarray(record.last).tolist() == [[True, False], [True, True]]
    assert np.asarray(record.discount).tolist() == [[1, 1], [0, 0]]
    assert record.mask.all()
    choices = build([4], [True], discrete=True).transitions().action
    assert set(np.asarray(choices).tolist()) <= {0, 1, 2}  # stored from 2
    with pytest.raises(Mistake, match="Row numbers lie between 0 and 6"):
        data.transitions(np.array([7]))


def test_dataset_rows_are_selected_by_indices_or_a_mask(build):
    data = build([4, 3], [True, False])
    chosen = np.arange(7) % 3 == 2
    for mask in (chosen, chosen.tolist()):
        picked = data.transitions(mask)
        np.testing.assert_array_equal(picked.obs, data.transitions(np.array([2, 5])).obs)
    assert data.transitions(np.zeros(7, bool)).reward.shape == (0,)
    assert data.transitions([]).obs.shape == (0, 3)
    for wrong, said in (
        (chosen[:6], r"one boolean for each of the 7 rows; got shape \(6,\)"),
        ([1.5], "by integers or a boolean mask; got float64"),
    ):
        with pytest.raises(Mistake, match=said):
            data.transitions(wrong)


def test_device_dataset_equals_host_dataset(build):
    data = build([4, 0, 3, 6], [1, 0, 0, 1], nested=True, discrete=True, extras=("log_prob",))[1:]
    there = to_device(data)
    assert isinstance(there, DeviceDataset)
    index = np.array([[0, 8, 3], [2, 2, 5]])
    ours = data.transitions(index)
    theirs = jax.jit(lambda d, i: d.transitions(i))(there, index)
    assert jax.tree.structure(ours) == jax.tree.structure(theirs)
    for one, other in zip(jax.tree.leaves(ours), jax.tree.leaves(theirs), strict=True):
        assert one.dtype == other.dtype
        np.testing.assert_array_equal(one, other)
    assert to_device(data, memory=10).dataset is data


def test_dataset_64_bit_integer_observations_become_floats():
    columns = {
        "obs": np.array([[2**33], [5], [2**40]]),
        "action": np.array([0, 1]),
        "reward": np.zeros(2, np.float32),
        "discount": np.ones(2, np.float32),
    }
    block = Block(columns, np.array([2]), np.zeros(1, np.int32))
    data = Dataset.from_block(block, spaces.Box(0, 2**40, (1,), np.int64), spaces.Discrete(2))
    assert data.spec.obs.dtype == np.float32
    for one in (data, to_device(data)):
        rows = one.transitions(np.arange(2))
        assert np.asarray(rows.obs).tolist() == [[2.0**33], [5.0]]
        assert np.asarray(rows.next_obs).tolist() == [[5.0], [2.0**40]]


def test_dataset_top_and_where_keep_the_episode_order(build):
    data = build([2] * 10, [True] * 10)
    best = data.top(0.3)
    assert len(best) == 3
    threshold = np.sort(data.returns)[-3]
    assert best.returns.min() == threshold
    assert best.returns.tolist() == [r for r in data.returns if r >= threshold]
    assert len(data.where(lambda one: one.total >= threshold)) == 3
    assert data[2:5].top(1.0).hash == data[2:5].hash
    assert len(data.top(0.01)) == 1
    with pytest.raises(Mistake, match="above 0 and at most 1"):
        data.top(10.0)


def test_joining_keeps_the_source_of_every_episode(build):
    world = {"environment": "Hopper-v5", "options": {"frame_skip": 2}}
    one = build([2, 3], [1, 0], reference=(0.0, 1.0), **world)
    other = build([4], [1], seed=1, reference=(0.0, 2.0), **world)
    both = concatenate([one, other[:], one[1:]])
    assert both.lengths.tolist() == [2, 3, 4, 3]
    assert both.metadata.sources.tolist() == [0, 0, 1, 2]
    assert both.facts.environment == "Hopper-v5"
    assert both.facts.options == {"frame_skip": 2}
    assert both.facts.reference is None  # they disagree
    elsewhere = build([4], [1], environment="Hopper-v5")
    assert concatenate([one, elsewhere]).facts.environment == ""  # other options: another world
    np.testing.assert_array_equal(both[2].obs, other[0].obs)
    with pytest.raises(Mistake, match="datasets have different spaces"):
        concatenate([one, build([2], [1], discrete=True)])
    with pytest.raises(Mistake, match="no dataset to join"):
        concatenate([])


@settings(max_examples=40)
@given(some.data())
def test_the_hash_changes_with_any_number(build, choose):
    data = build([3, 4], [True, False], nested=True, extras=("log_prob", "info"))
    block = next(data.blocks())
    name = choose.draw(some.sampled_from(sorted(block.arrays)))
    arrays = {key: array.copy() for key, array in block.arrays.items()}
    at = choose.draw(some.integers(0, arrays[name].size - 1))
    arrays[name].flat[at] += 1
    other = Dataset.from_block(type(block)(arrays, block.lengths, block.sources), *spaces_of(data))
    assert other.hash != data.hash
    assert data[:].hash == data.hash
    assert data[::-1].hash != data.hash


def spaces_of(data):
    return data.obs_space, data.action_space


def test_the_hash_changes_with_lengths(build):
    data = build([3, 4], [False, False])
    block = next(data.blocks())
    other = type(block)(block.arrays, np.array([4, 3]), block.sources)
    assert Dataset.from_block(other, *spaces_of(data)).hash != data.hash


def test_dataset_with_inconsistent_episode_lengths_is_refused(build):
    data = build([3, 4], [False, False])
    block = next(data.blocks())
    other = type(block)(block.arrays, np.array([3, 3, 1]), np.zeros(3, np.int32))
    with pytest.raises(Mistake, match=r"Column 'obs' has 9 entries, but 3 episodes .* need 10"):
        Dataset.from_block(other, *spaces_of(data))


def test_dataset_larger_than_memory_is_memory_mapped(build, same, tmp_path):
    data = build([30, 40, 20], [True, False, True])
    data.save(tmp_path / "own")
    data.save(tmp_path / "a.npz", "npz")
    mapped = Dataset(tmp_path / "own", memory=100)
    assert mapped.mapped
    same(data, mapped)
    rows = np.arange(mapped.rows)
    np.testing.assert_array_equal(mapped.transitions(rows).next_obs, data.transitions().next_obs)
    assert to_device(mapped).dataset is mapped
    with pytest.raises(Mistake, match="larger than memory"):
        mapped.transitions()
    with pytest.raises(Mistake, match=r"sterling data import .*a\.npz OUT"):
        Dataset(tmp_path / "a.npz", memory=100)


def test_memory_mapped_dataset_reads_under_a_process_memory_limit(tmp_path):
    """80 MB of data in a process that may take 50 MB more than it has."""
    program = """
        import resource, sys
        import numpy as np
        from gymnasium import spaces
        from sterling.data import Dataset
        from sterling.data.episode_columns import Block, Stream
        from sterling.data.dataset_metadata import Facts
        from sterling.data.formats import sterling_format

        def blocks():
            for part in range(40):
                obs = np.full((2020, 250), part, np.float32)
                arrays = {"obs": obs, "action": np.zeros((2000, 1), np.float32)}
                arrays |= {"reward": np.ones(2000), "discount": np.ones(2000, np.float32)}
                yield Block(arrays, np.full(20, 100), np.zeros(20, np.int32))

        box = spaces.Box(-np.inf, np.inf, (250,), np.float32)
        path = __import__("pathlib").Path(sys.argv[1])
        Dataset.from_block(next(blocks()), box, spaces.Box(-1, 1, (1,))).transitions(np.arange(256))
        used = next(x for x in open("/proc/self/status") if x.startswith("VmData"))
        most = 1024 * int(used.split()[1]) + 50_000_000
        resource.setrlimit(resource.RLIMIT_DATA, (most, most))
        sterling_format.write_blocks(box, spaces.Box(-1, 1, (1,)), Facts(), blocks(), path)
        data = Dataset(path)
        assert data.mapped and data.rows == 80_000, data
        assert abs(data.returns.sum() - 80_000) < 1e-6
        random = np.random.default_rng(0)
        for _ in range(20):
            index = random.integers(0, data.rows, 256)
            record = data.transitions(index)
            assert (np.asarray(record.obs)[:, 0] == index // 2000).all()
            assert (np.asarray(record.next_obs)[:, 0] == index // 2000).all()
        try:
            np.concatenate([block.arrays["obs"] for block in data.blocks()])
        except MemoryError:
            print("limited")
    """
    command = [sys.executable, "-c", textwrap.dedent(program), str(tmp_path / "big")]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=100)
    assert done.stdout.strip() == "limited", done.stderr


def test_dataset_save_accepts_a_folder_with_only_partial_files(tmp_path):
    (tmp_path / ".obs.partial-123").write_bytes(b"unfinished")
    check_destination(tmp_path)
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(Mistake, match="exists and is not a dataset in the format sterling"):
        check_destination(tmp_path)


def test_dataset_save_removes_partial_files_of_dead_processes(build, tmp_path):
    with subprocess.Popen(["true"]) as process:
        pass
    left = tmp_path / f".obs.partial-{process.pid}"
    left.write_bytes(b"unfinished")
    os.utime(left, (0, 0))
    build([3], [True]).save(tmp_path)
    assert not left.exists()
