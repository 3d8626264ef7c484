"""Sequences at the edge of an episode: they cross it, end there, or begin with padding."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from collected import collect
from marked_log import marked_log
from marked_world import ENVS, SEEDS, Idle, Marked, begun, length

from sterling import random_keys
from sterling.equations.sequence_rows import unbroken
from sterling.experience.offline.dataset_batches import DatasetSource
from sterling.experience.replay.replay_buffer import Replay
from sterling.experience.rollouts.rollout import Rollout
from sterling.types import Dreams, Feed, Mistake, Needs

LENGTHS = np.array((1, 4, 9))
KEYS = jax.random.wrap_key_data(np.array([[0, 3], [0, 5]], np.uint32))  # of two seeds
STEPS = 5


def logged(edge, **more):
    """Sequences of a log whose observations are (episode, step), as NumPy."""
    needs = Needs(0, (Feed(batch=400, length=STEPS, edge=edge, **more),))
    _, batch = collect(DatasetSource.create(marked_log(LENGTHS), needs), None, KEYS)
    return jax.tree.map(lambda x: np.asarray(x[0, 0]), batch)


def replayed(edge, rounds=9, **more):
    """Sequences of a replay after so many rounds of four steps, each with the rows given so far and
    those still held."""
    start = random_keys.for_seeds(jnp.arange(SEEDS, dtype=jnp.int32), "start", 0)
    feed = Feed(batch=64, length=STEPS, edge=edge, **more)
    needs = Needs(4, (feed,), capacity=20 * ENVS)
    source = Replay.create(Rollout.create(Marked(), 4, start), needs, 1, start)
    for time in range(rounds):
        keys = random_keys.for_seeds(jnp.arange(SEEDS, dtype=jnp.int32), "round", time)
        source, batch = eqx.filter_jit(collect)(source, Idle(), keys)
        flat = jax.tree.map(lambda x: np.asarray(x).reshape(-1, *x.shape[3:]), batch)
        yield flat, 4 * (time + 1), int(source.ring.row_count)


def test_rows_of_a_sequence_are_unbroken_up_to_the_last_of_an_episode():
    last = jnp.asarray([[0, 1, 0, 0], [0, 0, 0, 0], [1, 0, 0, 0], [0, 0, 1, 0]], bool)
    mask = jnp.asarray([[1, 1, 0, 1], [0, 1, 1, 1], [1, 1, 1, 1], [1, 0, 1, 1]], bool)
    expected = [[1, 1, 0, 0], [0, 0, 0, 0], [1, 0, 0, 0], [1, 0, 0, 0]]
    np.testing.assert_array_equal(unbroken(last, mask), np.asarray(expected, bool))


def test_masked_sequences_of_a_log_end_with_the_episode():
    for edge, crosses in (("mask", False), ("cross", True)):
        batch = logged(edge)
        same = batch.obs[..., 0] == batch.obs[:, :1, 0]
        known = np.diff(batch.reward, axis=1, prepend=-1) > 0  # the last row is repeated
        expected = known & (same | crosses)
        np.testing.assert_array_equal(batch.mask, expected)


def test_padded_sequences_of_a_log_need_no_returns():
    batch = logged("pad")
    assert set(batch.extras) == {"time"}
    np.testing.assert_array_equal(batch.extras["time"], batch.obs[..., 1])
    assert batch.mask[:, -1].all()
    assert (batch.obs[..., 0] == batch.obs[:, :1, 0]).all()
    padding = ~batch.mask
    assert not batch.obs[padding][:, 1].any()  # the first row again
    assert padding.any()


@pytest.mark.parametrize("n_step", [1, 3])
def test_masked_sequences_of_a_replay_end_with_the_episode(n_step):
    ends = 0
    for batch, _, _ in replayed("mask", n_step=n_step):
        seen = batch.obs["observation"].astype(int)
        for row, mask in zip(seen, batch.mask, strict=True):
            if not mask[0]:
                assert not mask.any()
                continue
            total = length(*row[0, :3])
            inside = row[0, 3] + np.arange(STEPS) < total
            np.testing.assert_array_equal(mask, inside)
            assert (row[inside][:, :3] == row[0, :3]).all()
            np.testing.assert_array_equal(row[inside][:, 3], row[0, 3] + np.arange(inside.sum()))
            ends += not inside.all()
    assert ends > 100


def test_padded_sequences_of_a_replay_end_in_the_drawn_row():
    padded = whole = 0
    for batch, given, held in replayed("pad"):
        seen = batch.obs["observation"].astype(int)
        for row, mask, time in zip(seen, batch.mask, batch.extras["time"], strict=True):
            if not mask[-1]:
                assert not mask.any()
                continue
            known = begun(*row[-1, :3]) >= given - held
            steps = np.arange(1 - STEPS, 1) + (row[-1, 3] if known else 0)
            np.testing.assert_array_equal(mask, steps >= 0)
            assert (row[:, :3] == row[-1, :3]).all()
            first = 0 if known else row[-1, 3]
            np.testing.assert_array_equal(row[:, 3], np.maximum(steps, 0) + first)
            np.testing.assert_array_equal(time, np.maximum(steps, 0))
            padded, whole = padded + (steps[0] < 0), whole + (steps[0] >= 0)
    assert padded > 100
    assert whole > 10


@pytest.mark.parametrize(
    ("made", "words"),
    [
        (lambda: Feed(length=3, edge="wrap"), "cross, mask, pad, not 'wrap'"),
        (lambda: Feed(edge="mask"), "give a length"),
        (lambda: Feed("fresh", edge="mask"), "give a length"),
        (lambda: Feed(length=3, edge="pad", n_step=2), "Leave out n_step"),
        (
            lambda: Feed("dream", length=3, edge="pad", dreams=Dreams(1, 3, 9, 0.5)),
            "as they were stored",
        ),
    ],
)
def test_edges_that_sequences_cannot_have_are_refused(made, words):
    with pytest.raises(Mistake, match=words):
        made()
