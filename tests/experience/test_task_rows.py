"""Rows of the same task beside each row of a batch: which ones, how often, in every store."""

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from collected import collect
from marked_log import marked_log
from marked_world import ENVS, SEEDS, Idle, Marked

from sterling import random_keys
from sterling.data.device_dataset import HostDataset
from sterling.experience.offline.dataset_batches import DatasetSource
from sterling.experience.replay.replay_buffer import Replay
from sterling.experience.replay.ring_buffer import Ring
from sterling.experience.replay.ring_tasks import RingTasks
from sterling.experience.rollouts.rollout import Rollout
from sterling.types import Beside, Feed, Later, Mistake, Needs, Record, SameTask

LENGTHS = np.array((1, 4, 9, 30))
KEYS = jax.random.wrap_key_data(np.array([[0, 3], [0, 5]], np.uint32))  # of two seeds


class Numbered(Idle):
    """Records the number of the episode."""

    def act(self, obs, keys, explore):
        action, _ = super().act(obs, keys, explore)
        return action, {"episode": obs["observation"][..., 2]}


def needs_of(*beside, batch, updates=1):
    return Needs(0, (Feed(batch=batch, updates=updates, beside=beside),))


def replay(law):
    start = random_keys.for_seeds(jnp.arange(SEEDS, dtype=jnp.int32), "start", 0)
    feed = Feed(batch=128, beside=(Beside("context", law),))
    needs = Needs(4, (feed,), capacity=20 * ENVS, keep=(law.task,))
    return Replay.create(Rollout.create(Marked(), 4, start), needs, 1, start, actor=Numbered())


def test_rows_of_the_same_task_stand_beside_each_row_of_a_log():
    """Every row of the task equally often, none of another; also read from a file."""
    log = marked_log(LENGTHS, {"extra/task": np.array([7, 2**33, 7, 5])})  # one for each episode
    asked = (Beside("context", SameTask(40)), Beside("goal", Later(1)))
    source = DatasetSource.create(log, needs_of(*asked, batch=500))
    _, batch = eqx.filter_jit(collect)(source, None, KEYS)
    batch = jax.tree.map(lambda x: np.asarray(x).reshape(-1, *x.shape[3:]), batch)
    context = batch.beside["context"]
    assert context.obs.shape == (SEEDS * 500, 40, 2)
    assert context.mask.all()
    own, beside = batch.obs[:, 0].astype(int), context.obs[..., 0]
    for episode, known in enumerate(((0, 2), (1,), (0, 2), (3,))):
        assert np.isin(beside[own == episode], known).all()
    found = np.bincount(context.reward[np.isin(own, (0, 2))].astype(int).ravel(), minlength=14)
    of_seven = np.r_[0, 5:14]  # rows of episodes 0 and 2, all drawn as often
    assert found.sum() == found[of_seven].sum()
    np.testing.assert_allclose(found[of_seven] / found.sum(), 0.1, atol=0.02)
    slow = DatasetSource.create(log, needs_of(*asked, batch=9, updates=2))
    slow = dataclasses.replace(slow, data=HostDataset(log))
    _, read = collect(slow, None, KEYS)
    assert read.beside["context"].obs.shape == (SEEDS, 2, 9, 40, 2)
    _, idle = slow.collect(None, KEYS, lambda feed: False)
    shapes = jax.tree.map(lambda x: (x.shape, x.dtype), (idle.batches[""], read))
    assert shapes[0] == shapes[1]
    assert (batch.extras["task"] == np.array([7, 2**33, 7, 5], np.float32)[own]).all()


def test_rows_of_the_same_task_in_a_replay_are_experience_of_its_own_seed():
    """The task is the number of the episode, which all envs share. The ring overflows."""
    source = replay(SameTask(32, "episode"))
    for time in range(7):
        keys = random_keys.for_seeds(jnp.arange(SEEDS, dtype=jnp.int32), "round", time)
        source, batch = eqx.filter_jit(collect)(source, Numbered(), keys)
        assert (batch.extras["episode"] == batch.obs["observation"][..., 2]).all()
        own, context = jax.tree.map(np.asarray, (batch, batch.beside["context"]))
        np.testing.assert_array_equal(context.mask, own.mask[..., None] & np.ones(32, bool))
        now, there = own.obs["observation"], context.obs["observation"]
        for entry in (0, 2):  # seed and episode
            assert (there[..., entry] == now[..., None, entry])[own.mask].all()
        assert not own.mask.all()
    assert np.unique(there[own.mask][..., 1]).size == ENVS


def test_rows_of_the_same_task_need_one_number_a_row():
    needs = needs_of(Beside("context", SameTask(3)), batch=4)
    with pytest.raises(Mistake, match="no column 'extra/task'"):
        DatasetSource.create(marked_log(LENGTHS), needs)
    wide = marked_log(LENGTHS, {"extra/task": np.zeros((4, 2), np.float32)})
    with pytest.raises(Mistake, match="one number a row"):
        DatasetSource.create(wide, needs)
    with pytest.raises(Mistake, match="keep names 'task', but the recorded extras are"):
        replay(SameTask(3))


def test_large_rings_are_sorted_now_and_then_and_never_give_rows_of_other_tasks():
    """A ring of 800 rows, sorted anew after every third; tasks change, and rows are overwritten."""
    rng, rows = np.random.default_rng(0), 800
    zeros, law = jnp.zeros((1, 1, 1)), SameTask(30, "task")
    needs = Needs(1, (Feed(batch=1, beside=(Beside("context", law),)),), keep=("task",))
    ring = Ring.create(rows, zeros, zeros, kept={"task": jnp.zeros((1, 1))})
    tasks, known, waits = RingTasks.create(ring, needs), np.full(rows, -1.0), []

    @jax.jit
    def add(ring, tasks, task, mask):
        record = Record(
            *(zeros[None],) * 2, zeros, zeros, zeros[None], zeros > 0, mask, {"task": task}
        )
        tasks = tasks.insert(ring, record)
        ring = ring.insert(record)
        return ring, tasks.sorted_anew(ring)

    draw = jax.jit(lambda ring, tasks, row, key: tasks.draw(ring, law, row, key))
    for time in range(1_000):
        new, lived = float(rng.integers(8) + time // 40 * 4), rng.random() > 0.1
        known[time % rows] = new if lived else -1.0
        ring, tasks = add(ring, tasks, jnp.full((1, 1, 1), new), jnp.full((1, 1, 1), lived))
        known[(time + 1) % rows] = -1.0  # holds an observation alone
        waits.append(int(tasks.left))
        if time % 97 == 0 or time > 995:
            row = np.arange(rows, dtype=np.int32)[None]
            found = np.asarray(draw(ring, tasks, jnp.asarray(row), KEYS[:1]))[0]
            assert (found[known < 0] == -1).all()
            alive = known >= 0
            assert (known[found[alive]] == known[alive, None]).all()
            alone = (found[alive] == row[0, alive, None]).all(1)
            many = np.array([(known == each).sum() > 3 for each in known[alive]])
            assert (alone & many).sum() <= 3  # those newer than the index
    assert sorted(waits[-3:]) == [1, 2, 3]
