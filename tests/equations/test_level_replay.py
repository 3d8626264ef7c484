"""Prioritised level replay against numbers worked out by hand from the paper's equations."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from constants import constant_array

from sterling.equations import level_scores as plr

SCORE = constant_array([0.2, 0.9, 0.0, 0.5])  # of level 2, which was never seen, nothing is known
LAST = constant_array([3, 7, 0, 8], np.int32)
SEEN = constant_array(np.asarray(LAST) > 0)


def test_level_replay_rank_priorities_match_hand_values():
    """Ranks 3, 1, -, 2; with beta 0.5 weights 1/9, 1, 0, 1/4, which are 4, 36, 0, 9 of 49."""
    found = plr.rank_probabilities(SCORE, SEEN, 0.5)
    np.testing.assert_allclose(found, np.array([4, 36, 0, 9]) / 49, rtol=1e-6)
    ties = plr.rank_probabilities(jnp.array([0.3, 0.3]), jnp.ones(2, bool), 1.0)
    np.testing.assert_allclose(ties, [2 / 3, 1 / 3], rtol=1e-6)
    sharp = plr.rank_probabilities(SCORE, SEEN, 0.1)  # 3^-10, 1, 0, 2^-10
    total = 1 + 2.0**-10 + 3.0**-10
    np.testing.assert_allclose(sharp, np.array([3.0**-10, 1, 0, 2.0**-10]) / total, rtol=1e-5)


def test_level_replay_staleness_matches_hand_values():
    """After 10 episodes levels are 7, 3, - and 2 episodes old."""
    found = plr.staleness_probabilities(jnp.int32(10), LAST, SEEN)
    np.testing.assert_allclose(found, np.array([7, 3, 0, 2]) / 12, rtol=1e-6)
    new = plr.staleness_probabilities(
        jnp.int32(4), jnp.array([4, 4, 0], jnp.int32), jnp.array([1, 1, 0]) > 0
    )
    np.testing.assert_allclose(new, [0.5, 0.5, 0.0])


def test_level_replay_probabilities_mix_rank_and_staleness():
    """Three of four are seen: 3/4 of the mixture, and 1/4 for the one that is not."""
    found = plr.level_probabilities(SCORE, LAST, jnp.int32(10), beta=0.5, rho=0.1)
    rank, stale = np.array([4, 36, 0, 9]) / 49, np.array([7, 3, 0, 2]) / 12
    expected = 0.75 * (0.9 * rank + 0.1 * stale) + [0, 0, 0.25, 0]
    np.testing.assert_allclose(found, expected, rtol=1e-6)
    assert float(found.sum()) == pytest.approx(1.0)


def test_level_replay_probabilities_when_all_or_no_levels_are_new():
    none = plr.level_probabilities(
        jnp.zeros(5), jnp.zeros(5, jnp.int32), jnp.int32(0), beta=0.1, rho=0.1
    )
    np.testing.assert_allclose(none, np.full(5, 0.2), rtol=1e-6)
    every = jnp.arange(1, 6, dtype=jnp.int32)
    found = plr.level_probabilities(jnp.arange(5.0), every, jnp.int32(5), beta=0.1, rho=0.0)
    assert float(found[4]) > 0.99


def test_level_scores_are_the_mean_absolute_error_of_each_level():
    error = jnp.array([[1.0, -3.0, 9.0], [0.5, -0.5, 2.0]])
    level = jnp.array([[1, 1, 1], [3, 3, 0]], jnp.int32)
    mask = jnp.array([[True, True, False], [True, True, True]])
    found = plr.updated_scores(jnp.array([7.0, 7.0, 7.0, 7.0]), error, level, mask, 1.0)
    np.testing.assert_allclose(found, [2.0, 2.0, 7.0, 0.5])
    slow = plr.updated_scores(jnp.array([7.0, 7.0, 7.0, 7.0]), error, level, mask, 0.1)
    np.testing.assert_allclose(slow, [6.5, 7 - 0.19 * 5, 7.0, 7 - 0.19 * 6.5], rtol=1e-6)


def test_levels_are_drawn_by_their_replay_probabilities():
    chance = jnp.array([0.0, 0.5, 0.0, 0.3, 0.2, 0.0])
    share = jax.random.uniform(jax.random.key(0), (20_000,))
    found = (
        np.bincount(np.asarray(plr.levels_from_uniform(jnp.cumsum(chance), share)), minlength=6)
        / 20_000
    )
    np.testing.assert_allclose(found, chance, atol=0.01)
    ends = plr.levels_from_uniform(jnp.cumsum(chance), jnp.array([0.0, 0.4999, 0.5, 0.7999, 1.0]))
    np.testing.assert_array_equal(ends, [1, 1, 3, 3, 4])


def test_distinct_levels_are_drawn_without_replacement():
    """Second is one of the others by its share of what is left: of 0.5, 0.3 and 0.2 in turn."""
    chance = jnp.array([0.5, 0.0, 0.3, 0.2])
    own = jax.random.split(jax.random.key(0), 20_000)
    number, drawn = jax.vmap(lambda key: plr.draw_distinct_levels(chance, key, 2))(own)
    assert drawn.all()
    assert (number[:, 0] != number[:, 1]).all()
    first = np.bincount(np.asarray(number[:, 0]), minlength=4) / 20_000
    np.testing.assert_allclose(first, chance, atol=0.015)
    after = np.asarray(number[:, 1])[np.asarray(number[:, 0]) == 0]
    np.testing.assert_allclose(np.bincount(after, minlength=4) / after.size, [0, 0, 0.6, 0.4],
                               atol=0.02)  # fmt: skip
    number, drawn = plr.draw_distinct_levels(chance, jax.random.key(1), 4)
    assert sorted(np.asarray(number[:3])) == [0, 2, 3]
    np.testing.assert_array_equal(drawn, [True, True, True, False])
