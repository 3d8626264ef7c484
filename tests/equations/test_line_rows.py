"""Lines of several rows: sums and shares by loops, and answers that count once."""

import jax.numpy as jnp
import numpy as np
import pytest
from constants import constant_array

from sterling.equations import line_rows, token_averages

BEFORE = constant_array([0, 0, 1, 2, 0, 1], np.int32)  # lines of one, three and two rows
LINES = ([0], [1, 2, 3], [4, 5])
X = constant_array([1.0, 2.0, 4.0, 8.0, -3.0, 0.5])


def by_line(of):
    """Each row's ``of(values of its line)``, by a loop."""
    found = np.zeros(6)
    for rows in LINES:
        found[rows] = of(np.asarray(X)[rows])
    return found


def test_line_sums_minima_and_shares_equal_loops():
    np.testing.assert_allclose(line_rows.line_sum(X, BEFORE), by_line(np.sum))
    np.testing.assert_allclose(line_rows.line_min(X, BEFORE), by_line(np.min))
    np.testing.assert_allclose(line_rows.row_shares(BEFORE), by_line(lambda x: 1 / len(x)))
    assert line_rows.first_rows(BEFORE).tolist() == [0, 1, 1, 1, 4, 4]
    assert line_rows.is_last(BEFORE).tolist() == [True, False, False, True, False, True]


def test_minibatch_with_less_than_one_answer_has_the_weights_of_its_part():
    """Two of the ten rows of an answer: a mean over them, not a fifth of it."""
    mask, portion = jnp.ones((2, 3), bool), jnp.full(2, 0.1)
    group = jnp.zeros(2, jnp.int32)
    found = token_averages.token_weights(mask, group, "sequence", portion=portion)
    np.testing.assert_allclose(found, 1 / 6, rtol=1e-6)


@pytest.mark.parametrize("how", token_averages.AGGREGATIONS)
def test_answer_in_several_rows_weighs_as_one_answer(how):
    """The weights of a line's tokens add up to those of the same tokens in one row."""
    mask = jnp.asarray([[1, 1, 1, 0], [1, 1, 0, 0], [1, 1, 0, 0], [1, 1, 0, 0]], bool)
    before, group = jnp.asarray([0, 0, 1, 0], jnp.int32), jnp.asarray([3, 3, 3, 1], jnp.int32)
    portion = line_rows.row_shares(before)
    found = token_averages.token_weights(mask, group, how, length=5.0, portion=portion)
    whole = jnp.asarray([[1, 1, 1, 0], [1, 1, 1, 1], [1, 1, 0, 0]], bool)
    group = jnp.asarray([3, 3, 1], jnp.int32)
    expected = token_averages.token_weights(whole, group, how, length=5.0).sum(1)
    np.testing.assert_allclose(
        [found[0].sum(), found[1:3].sum(), found[3].sum()], expected, rtol=1e-6
    )
