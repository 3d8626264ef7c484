"""A source behind a change is the same source, and its draws are changed seed by seed."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from collected import batches, collect, tell
from gymnasium import spaces

from sterling.data import Dataset
from sterling.data.device_dataset import HostDataset
from sterling.data.episode_columns import Block
from sterling.equations.transition_augmentation import Gaussian, reflection
from sterling.experience.offline.batch_augmentation import Augment
from sterling.experience.offline.dataset_batches import DatasetSource
from sterling.experience.offline.mixed_sources import Mix
from sterling.types import Sequences, Transitions

LENGTHS = np.array([4, 1, 6, 3])


@pytest.fixture(name="data")
def _data():
    """Observation (episode, step); the reward of a row is 1 + its number."""
    rows = int(LENGTHS.sum())
    number = np.repeat(np.arange(4), LENGTHS + 1)
    step = np.concatenate([np.arange(n + 1) for n in LENGTHS])
    count = np.arange(1, rows + 1, dtype=np.float32)
    arrays = {
        "obs": np.stack([number, step], 1).astype(np.float32),
        "action": count[:, None] / 100,
        "reward": count,
        "discount": np.ones(rows, np.float32),
    }
    block = Block(arrays, LENGTHS, np.zeros(4, np.int32))
    whole = spaces.Box(-np.inf, np.inf, (2,), np.float32)
    return Dataset.from_block(block, whole, spaces.Box(-1.0, 1.0, (1,), np.float32))


class Nobody:
    """A log is drawn from without acting."""

    def act(self, obs, keys, explore):
        raise AssertionError


drawn = eqx.filter_jit(lambda source, keys: collect(source, Nobody(), keys))


def keys(at=0, seeds=2):
    return jax.random.split(jax.random.key(at), seeds)


@pytest.mark.parametrize("needs", [Transitions(64, updates=2), Sequences(16, 5)], ids=type)
def test_batch_augmentation_uses_a_separate_key_per_seed(data, needs):
    source = DatasetSource.create(data, needs)
    _, plain = drawn(source, keys())
    after, record = drawn(Augment(source, Gaussian(0.1)), keys())
    noise = np.asarray(record.obs - plain.obs)
    assert 0.09 < noise.std() < 0.11
    assert not np.allclose(noise[0], noise[1])
    for name in ("action", "reward", "discount", "last", "mask"):
        np.testing.assert_array_equal(getattr(record, name), getattr(plain, name))
    _, later = drawn(after, keys(1))
    assert not np.allclose(later.obs, record.obs)


def test_batch_augmentation_is_equal_for_compiled_and_memory_mapped_datasets(data):
    needs = Transitions(8)
    source = Augment(DatasetSource.create(data, needs), reflection((-1, 1), (-1,)))
    mapped = Augment(DatasetSource(HostDataset(data), None, None, None, needs), source.change)
    assert source.traced
    assert not mapped.traced
    compiled = jax.jit(lambda source, keys: collect(source, Nobody(), keys)[1])
    one, other = compiled(source, keys()), collect(mapped, Nobody(), keys())[1]
    jax.tree.map(lambda x, y: np.testing.assert_allclose(x, y, atol=1e-6), one, other)
    assert (np.asarray(one.action) < 0).any()
    assert (np.asarray(one.action) > 0).any()


def test_batch_augmentation_draws_of_a_seed_are_independent_of_other_seeds(data):
    source = Augment(DatasetSource.create(data, Transitions(8)), Gaussian(0.1))
    _, both = drawn(source, keys())
    _, alone = drawn(source, keys()[1:])
    np.testing.assert_array_equal(both.obs[1:], alone.obs)


def test_batch_augmentation_passes_other_calls_to_its_source(data):
    told = []

    class Told(DatasetSource):
        def heed(self, feed, heard, signals, batch):
            told.append((signals.samples["td_error"].shape, batch.reward.shape))
            return heard

    made = DatasetSource.create(data, Transitions(8))
    hears = Told(made.data, None, None, None, made.needs)
    source = Augment(Mix((hears, hears)), Gaussian())
    assert source.tally is None
    after, draws = source.collect(Nobody(), keys())
    record = batches(draws, keys())
    assert record.obs.shape == (2, 1, 16, 2)
    after = tell(after, draws, record, {"td_error": jnp.zeros((2, 1, 16))})
    assert isinstance(after, Augment)
    assert set(told) == {((8,), (8,))}
    kept = source.reset_statistics().to_checkpoint()
    assert not jax.tree.leaves(kept)  # nothing that the file does not hold
    again = kept.from_checkpoint(source)
    np.testing.assert_array_equal(collect(again, Nobody(), keys())[1].obs, record.obs)
    again.close()
