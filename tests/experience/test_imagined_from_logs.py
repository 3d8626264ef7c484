"""Model rollouts that begin at rows of a log."""

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from marked_log import marked_log

from sterling.data.device_dataset import HostDataset
from sterling.experience.offline.dataset_batches import DatasetSource
from sterling.experience.replay.imagined_rollouts import Dream, needs_without_dreams
from sterling.needs.feed import DREAM
from sterling.types import Dreams, Feed, Needs, Record

LENGTHS = np.array((3, 8, 20))
BEGINS = np.cumsum(LENGTHS) - LENGTHS  # rows at which episodes begin
SEEDS, BRANCHES, STEPS = 2, 6, 3
KEYS = jax.random.wrap_key_data(np.array([[0, 3], [0, 5]], np.uint32))  # of two seeds


class Counting(eqx.Module):
    """A model in which the step falls by one from -1, and the reward is that of the real row."""

    def imagine(self, rows, valid, keys):
        falls = -1.0 - jnp.arange(STEPS + 1, dtype=jnp.float32)
        step = jnp.broadcast_to(falls[None, :, None], (*rows.mask.shape[:1], STEPS + 1, BRANCHES))
        number = jnp.broadcast_to(rows.obs[:, None, :, 0], step.shape)
        seen = jnp.stack([number, step], -1)
        shape = (SEEDS, STEPS, BRANCHES)
        reward = jnp.broadcast_to(rows.reward[:, None], shape)
        last = jnp.broadcast_to(jnp.arange(STEPS)[None, :, None] == STEPS - 1, shape)
        mask = jnp.broadcast_to(valid[:, None], shape)
        action = jnp.zeros((*shape, 1))
        return Record(seen[:, :-1], action, reward, reward, seen[:, 1:], last, mask)


def dreaming(**more):
    dreams = Dreams(BRANCHES, STEPS, size=BRANCHES * STEPS, real=0.25)
    needs = Needs(0, (Feed(DREAM, batch=200, updates=2, dreams=dreams, **more),))
    stored = DatasetSource.create(marked_log(LENGTHS), needs_without_dreams(needs))
    return Dream.create(stored, needs.feeds[0], KEYS)


def drawn(source):
    """Two batches of every seed, as NumPy."""
    source, draws = source.collect(Counting(), KEYS)
    chances = draws.presample(source.feed, KEYS)
    seeds = jnp.arange(SEEDS, dtype=jnp.int32)
    each = jax.vmap(lambda chance, seed: draws.draw(source.feed, seed, None, chance), (0, None))
    return jax.tree.map(np.asarray, jax.vmap(each)(chances, seeds))


def test_model_rollouts_begin_at_rows_of_the_log_and_mix_with_them():
    batch = drawn(dreaming())
    real = batch.obs[..., 1] >= 0
    np.testing.assert_array_equal(real.sum(-1), np.full((SEEDS, 2), 50))
    number, step = (batch.obs[real][:, i].astype(int) for i in range(2))
    np.testing.assert_array_equal(batch.reward[real], BEGINS[number] + step)
    made = batch.obs[~real]
    assert set(np.unique(made[:, 1])) == {-1.0, -2.0, -3.0}
    # what an imagined row earns is what its real row earned, which lies in the same episode
    number = made[:, 0].astype(int)
    steps = batch.reward[~real] - BEGINS[number]
    assert ((steps >= 0) & (steps < LENGTHS[number])).all()
    assert np.unique(steps).size > 5
    assert batch.mask.all()


def test_model_rollouts_of_a_log_begin_at_rows_with_what_is_kept_of_them():
    costs = {"extra/cost": 2.0 * np.arange(LENGTHS.sum(), dtype=np.float32)}
    log = marked_log(LENGTHS, columns=costs)
    rows, valid = DatasetSource.create(log, Needs(0, (Feed(batch=1),), keep=("cost",))).starts(
        5, KEYS
    )
    np.testing.assert_array_equal(rows.extras["cost"], 2.0 * rows.reward)
    assert valid.all()


def test_model_rollouts_of_a_log_are_equal_in_memory_and_on_disk():
    fast = dreaming()
    on_disk = HostDataset(marked_log(LENGTHS))
    stored = dataclasses.replace(fast.source, data=on_disk)
    slow = dataclasses.replace(fast, source=stored)
    assert fast.traced
    assert not slow.traced
    dreams = [each.collect(Counting(), KEYS)[0].dreams for each in (fast, slow)]
    jax.tree.map(np.testing.assert_array_equal, *dreams)


def test_sequences_of_model_rollouts_of_a_log_lie_in_one_of_them():
    batch = drawn(dreaming(length=2))
    made = batch.obs[..., 0, 1] < 0
    ahead = batch.obs[made][:, 1, 1] - batch.obs[made][:, 0, 1]
    np.testing.assert_array_equal(ahead, np.full(ahead.shape, -1.0))


@pytest.mark.parametrize("due", [False, True])
def test_model_rollouts_of_a_log_wait_until_their_feed_is_due(due):
    source, _ = dreaming(every=2).collect(Counting(), KEYS, lambda feed: due)
    assert int(source.dreams.count) == (STEPS + 1) * due
