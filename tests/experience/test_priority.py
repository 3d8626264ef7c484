"""Priorities where there is nothing to draw, and importance weights by hand."""

import jax.numpy as jnp
import numpy as np

from sterling.experience.replay.priority_tree import Priorities


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
