"""The chances of arms, by hand."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.special import softmax

from sterling.experience.language.task_curriculum import Curriculum
from sterling.types import Mistake


def told(kind, value, count):
    return Curriculum(jnp.asarray(value), jnp.asarray(count), kind)


def test_curriculum_advantage_probabilities_follow_a_ucb_bandit():
    """softmax((mean + sqrt(2 ln(n + 1) / (n_arm + 1))) / 0.2), n over the seed's own arms."""
    value, count = np.array([[0.3, 0.1, 0.0], [0.2, 0.2, 0.9]]), np.array([[3, 8, 0], [1, 1, 1]])
    found = told("advantage", value, count.astype(np.float32)).probabilities()
    total = count.sum(1, keepdims=True)
    wanted = softmax((value + np.sqrt(2.0 * np.log(total + 1.0) / (count + 1.0))) / 0.2, 1)
    np.testing.assert_allclose(found, wanted, rtol=1e-5)


def test_curriculum_learnable_weight_is_the_solve_rate_variance_plus_floor():
    found = told("learnable", [[0.5, 1.0, 0.9], [0.0, 0.0, 0.0]], np.zeros((2, 3), np.float32))
    worth = np.array([[0.26, 0.01, 0.1], [1.0, 1.0, 1.0]])
    wanted = worth / worth.sum(1, keepdims=True)
    np.testing.assert_allclose(found.probabilities(), wanted, rtol=1e-5)


@pytest.mark.parametrize(
    ("kind", "first"), [("uniform", 0.0), ("advantage", 0.0), ("learnable", 0.5)]
)
def test_curriculum_begins_with_uniform_probabilities(kind, first):
    made = Curriculum.create(kind, 2, 4)
    np.testing.assert_array_equal(made.value, np.full((2, 4), first))
    np.testing.assert_allclose(made.probabilities(), np.full((2, 4), 0.25), rtol=1e-6)
    np.testing.assert_allclose(Curriculum.create(kind, 2, 1).probabilities(), np.ones((2, 1)))


def test_curriculum_solve_rate_moves_by_a_tenth_and_counts_answers():
    """Arm 0: 3 of 4 right; arm 1: not asked."""
    before = told("learnable", [[0.5, 0.4]], np.asarray([[10.0, 7.0]], np.float32))
    after = before.record_answers(
        np.asarray([[3.0, 0.0]], np.float32), np.asarray([[4.0, 0.0]], np.float32)
    )
    np.testing.assert_allclose(after.value, [[0.9 * 0.5 + 0.1 * 0.75, 0.4]], rtol=1e-6)
    np.testing.assert_allclose(after.count, [[14.0, 7.0]])


def test_curriculum_averages_advantages_over_a_batch_with_rejected_rows():
    """Rows of arms 0, 0, 1 and none; two answers of arm 1 were left out, as advantages of 0."""
    before = told("advantage", [[1.0, 2.0]], np.asarray([[0.0, 5.0]], np.float32))
    asked, advantage = jnp.asarray([[0, 0, 1, -1]], jnp.int32), jnp.asarray([[0.2, 0.6, 0.9, 7.0]])
    after = before.heed(asked, advantage, jnp.asarray([[0.0, 2.0]]))
    np.testing.assert_allclose(after.value, [[0.9 + 0.1 * 0.4, 1.8 + 0.1 * 0.3]], rtol=1e-6)
    np.testing.assert_allclose(after.count, [[2.0, 8.0]])


def test_each_curriculum_kind_learns_from_its_own_signal_alone():
    news = np.ones((1, 2), np.float32)
    rows = jnp.asarray([[0]], jnp.int32), jnp.ones((1, 1)), jnp.zeros((1, 2))
    for kind in ("uniform", "advantage"):
        made = Curriculum.create(kind, 1, 2)
        assert made.record_answers(news, news) is made
    for kind in ("uniform", "learnable"):
        made = Curriculum.create(kind, 1, 2)
        assert made.heed(*rows) is made


def test_curriculum_levels_are_drawn_by_their_probabilities():
    made = told("learnable", [[0.5, 1.0], [1.0, 0.5]], np.zeros((2, 2), np.float32))
    drawn = made.choose(jax.random.split(jax.random.key(0), 2), 4_000)
    share = drawn.mean(1)  # of arm 1: 0.01 of 0.27, and 0.26 of 0.27
    np.testing.assert_allclose(share, [0.01 / 0.27, 0.26 / 0.27], atol=0.015)


def test_curriculum_refuses_an_unknown_kind():
    with pytest.raises(Mistake, match="learnable"):
        Curriculum.create("learnabel", 1, 2)
