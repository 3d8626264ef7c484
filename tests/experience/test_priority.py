"""Priorities where there is nothing to draw, importance weights by hand, and priorities that new
rows get from their own errors."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from marked_world import ENVS, SEEDS, Marked

from sterling import random_keys
from sterling.experience.replay.priority_tree import Priorities
from sterling.experience.replay.replay_buffer import Replay
from sterling.experience.replay.ring_buffer import Place
from sterling.experience.rollouts.random_actions import RandomActor
from sterling.experience.rollouts.rollout import Rollout
from sterling.types import Feed, Mistake, Needs, Signals


def test_priority_importance_weights_match_hand_values():
    made = Priorities.create(1, 4, 1.0, 0.5)
    made = made.admit(jnp.arange(4), jnp.asarray([[True, True, True, False]]))
    made = Priorities(made.tree.put(jnp.asarray([[0, 1, 2]]), jnp.asarray([[4.0, 1.0, 3.0]])),
                      made.largest, 1.0, 0.5)  # fmt: skip
    place, weight = made.draw(jnp.asarray([[0.1, 0.55, 0.7, 0.99]]))
    assert place.tolist() == [[0, 1, 2, 2]]
    np.testing.assert_allclose(weight, [[0.5, 1.0, 3**-0.5, 3**-0.5]], rtol=1e-6)


def test_priority_tree_without_drawable_rows_gives_finite_weights():
    """0 times infinity would be no number in the loss, though the mask leaves the row out."""
    made = Priorities.create(2, 40, 1.0, 0.5)
    made = made.admit(jnp.asarray([7]), jnp.asarray([[False], [True]]))
    place, weight = made.draw(jnp.full((2, 3), 0.5))
    np.testing.assert_array_equal(place, [[-1] * 3, [7] * 3])
    np.testing.assert_array_equal(weight, np.ones((2, 3)))
    told = made.learn(place, jnp.asarray([[9.0] * 3, [2.0] * 3]))  # nothing is told of no row
    np.testing.assert_allclose(told.tree.total, [0.0, 2.0], rtol=1e-5)
    np.testing.assert_allclose(told.largest, [1.0, 2.0], rtol=1e-5)


STEPS, ROWS = 3, 11


def rounds(count, **drawn):
    """The draws of the last of several iterations of random actions, and its batch of new rows."""
    arrivals, replay = Feed("fresh", "arrivals", add=("place",)), Feed(batch=4, **drawn)
    needs = Needs(STEPS, (arrivals, replay), ROWS * ENVS)
    keys = random_keys.for_seeds(jnp.arange(SEEDS, dtype=jnp.int32), "test", 0)
    world = Marked()
    source = Replay.create(Rollout.create(world, STEPS, keys), needs, 1, keys)
    for at in range(count):
        source, draws = source.collect(
            RandomActor(None, world), random_keys.fold_each(keys, "round", at)
        )
    return arrivals, draws, draws.presample(arrivals, keys)


def test_new_rows_get_the_priorities_of_their_own_errors():
    """In a ring that was written around its end; masked rows have no place."""
    arrivals, draws, batch = rounds(6, priority=0.5)
    place = np.asarray(batch.extras["place"])
    assert batch.mask.shape == place.shape == (SEEDS, STEPS, ENVS)
    np.testing.assert_array_equal(place >= 0, batch.mask)
    assert not batch.mask.all()
    valid = np.argwhere(np.asarray(batch.mask))
    error = np.zeros(place.shape, np.float32)
    error[batch.mask] = 2.0 + np.arange(len(valid))
    before = np.asarray(draws.feedback.tree.levels[0]).reshape(SEEDS, -1)
    for seed in range(SEEDS):
        own, heard, told = jax.tree.map(lambda x, s=seed: x[s], (batch, draws.feedback, error))
        signals = Signals({}, {"td_error": told})
        after = np.asarray(draws.heed(arrivals, heard, signals, own).tree.levels[0]).reshape(-1)
        rows = place[seed][own.mask]
        np.testing.assert_allclose(after[rows], (told[own.mask] + 1e-6) ** 0.5, rtol=1e-5)
        others = np.delete(np.arange(after.size), rows)
        np.testing.assert_array_equal(after[others], before[seed][others])
        stored = draws.ring.scalars(Place(np.int32(seed), *np.divmod(rows, ENVS)))[0]
        np.testing.assert_array_equal(stored, own.reward[own.mask])


def test_new_rows_have_the_largest_priority_without_errors_and_none_before_they_are_complete():
    arrivals, draws, batch = rounds(1, priority=0.5)
    own, heard = jax.tree.map(lambda x: x[0], (batch, draws.feedback))
    assert draws.heed(arrivals, heard, Signals({}), own) is heard
    arrivals, draws, batch = rounds(1, priority=0.5, n_step=2, gamma=0.9)
    own, heard = jax.tree.map(lambda x: x[0], (batch, draws.feedback))
    error = Signals({}, {"td_error": jnp.ones(own.mask.shape)})
    with pytest.raises(Mistake, match="learn_arrivals sets priorities of new rows"):
        draws.heed(arrivals, heard, error, own)
