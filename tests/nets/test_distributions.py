"""Distributions against SciPy, against integrals, and against their own samples."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium import spaces
from scipy import integrate, stats

from sterling.nets.action_heads import Actions
from sterling.nets.distributions import (
    Categorical,
    MultiCategorical,
    Normal,
    OneHotGroups,
    TanhNormal,
)
from sterling.types import Mistake

MEAN, LOG_STD = np.array([[0.3, -1.2], [2.0, 0.0]]), np.array([[-0.5, 0.4], [0.0, -2.0]])


def normal() -> Normal:
    return Normal(jnp.asarray(MEAN, jnp.float32), jnp.asarray(LOG_STD, jnp.float32))


def test_normal_log_prob_and_entropy_equal_scipy():
    action = np.array([[0.0, 1.0], [2.5, -0.1]])
    truth = stats.norm(MEAN, np.exp(LOG_STD))
    found = normal().log_prob(jnp.asarray(action, jnp.float32))
    np.testing.assert_allclose(found, truth.logpdf(action).sum(-1), rtol=1e-5)
    np.testing.assert_allclose(normal().entropy(), truth.entropy().sum(-1), rtol=1e-5)


def test_normal_samples_follow_the_distribution():
    wide = Normal(jnp.full((20_000, 1), 1.5), jnp.full((20_000, 1), jnp.log(jnp.float32(0.3))))
    sample = np.asarray(wide.sample(jax.random.key(0)))[:, 0]
    assert stats.kstest(sample, stats.norm(1.5, 0.3).cdf).pvalue > 1e-3
    np.testing.assert_array_equal(wide.mode(), wide.mean)


@pytest.mark.parametrize(("mean", "log_std"), [(0.0, 0.0), (0.8, -1.0), (-1.5, 0.3)])
def test_tanh_normal_density_integrates_to_one(mean, log_std):
    """The density at its own samples, put beside the change of variables, and integrated."""
    count = 4_000
    pi = TanhNormal(Normal(jnp.full((count, 1), mean), jnp.full((count, 1), log_std)))
    action, log_prob = (
        np.asarray(x, np.float64) for x in pi.sample_and_log_prob(jax.random.key(1))
    )
    action = action[:, 0]

    def density(a):
        return stats.norm(mean, np.exp(log_std)).pdf(np.arctanh(a)) / (1.0 - a * a)

    inside = np.abs(action) < 0.99  # arctanh of a float32 near 1 is not exact
    np.testing.assert_allclose(np.exp(log_prob[inside]), density(action[inside]), rtol=2e-3)
    order = np.argsort(action)
    area = integrate.trapezoid(np.exp(log_prob[order]), action[order])
    np.testing.assert_allclose(area, 1.0, atol=0.02)


def test_tanh_normal_entropy_of_samples_equals_the_integral():
    pi = TanhNormal(Normal(jnp.full((50_000, 1), 0.5), jnp.full((50_000, 1), -0.5)))
    _, log_prob = pi.sample_and_log_prob(jax.random.key(2))

    def integrand(u):
        normal = stats.norm(0.5, np.exp(-0.5))
        return normal.pdf(u) * (normal.logpdf(u) - np.log(1.0 - np.tanh(u) ** 2))

    expected = -integrate.quad(integrand, -8.0, 8.0)[0]
    np.testing.assert_allclose(-np.mean(log_prob), expected, atol=0.02)


def test_tanh_normal_stays_finite_far_out():
    pi = TanhNormal(Normal(jnp.array([[30.0, -30.0]]), jnp.array([[2.0, 2.0]])))
    action, log_prob = pi.sample_and_log_prob(jax.random.key(0))
    assert (jnp.abs(action) <= 1.0).all()
    assert jnp.isfinite(log_prob).all()
    np.testing.assert_allclose(pi.mode(), jnp.tanh(pi.normal.mean))


def test_categorical_log_prob_and_entropy_equal_scipy():
    logits = np.array([[0.1, 2.0, -1.0], [0.0, 0.0, 0.0]])
    probability = np.exp(logits) / np.exp(logits).sum(-1, keepdims=True)
    pi = Categorical(jnp.asarray(logits, jnp.float32))
    found = pi.log_prob(jnp.array([1, 2]))
    np.testing.assert_allclose(found, np.log(probability[[0, 1], [1, 2]]), rtol=1e-5)
    np.testing.assert_allclose(pi.entropy(), stats.entropy(probability, axis=-1), rtol=1e-5)
    assert pi.mode().tolist() == [1, 0]


def test_categorical_samples_follow_the_probabilities():
    pi = Categorical(jnp.broadcast_to(jnp.log(jnp.array([0.2, 0.5, 0.3])), (20_000, 3)))
    counts = np.bincount(np.asarray(pi.sample(jax.random.key(0))), minlength=3)
    assert stats.chisquare(counts, 20_000 * np.array([0.2, 0.5, 0.3])).pvalue > 1e-3


def test_masked_categorical_never_samples_masked_actions():
    actions = Actions.from_space(spaces.Discrete(4))
    mask = jnp.tile(jnp.array([[True, False, True, False]]), (20_000, 1))
    outputs = jnp.tile(jnp.array([[0.0, 50.0, 0.0, 3.0]]), (20_000, 1))
    pi = actions.distribution(outputs, mask)
    assert set(np.unique(pi.sample(jax.random.key(0)))) == {0, 2}
    assert set(np.unique(pi.mode())) == {0}
    np.testing.assert_allclose(pi.entropy()[0], np.log(2.0), rtol=1e-5)
    np.testing.assert_allclose(pi.log_prob(jnp.full(20_000, 2))[0], -np.log(2.0), rtol=1e-5)

    def entropy_sum(x):
        return actions.distribution(x, mask).entropy().sum()

    assert jnp.isfinite(jax.grad(entropy_sum)(outputs)).all()


def test_multi_categorical_choices_are_independent():
    parts = (Categorical(jnp.zeros((8_000, 2))), Categorical(jnp.zeros((8_000, 3))))
    pi = MultiCategorical(parts)
    sample = np.asarray(pi.sample(jax.random.key(3)))
    assert sample.shape == (8_000, 2)
    joint = np.bincount(sample[:, 0] * 3 + sample[:, 1], minlength=6)
    assert stats.chisquare(joint).pvalue > 1e-3
    np.testing.assert_allclose(pi.log_prob(jnp.asarray(sample))[0], -np.log(6.0), rtol=1e-5)
    np.testing.assert_allclose(pi.entropy()[0], np.log(6.0), rtol=1e-5)


@pytest.mark.parametrize("space", [spaces.MultiBinary([3, 2]), spaces.MultiDiscrete([[2, 3]])])
def test_action_heads_refuse_multidiscrete_grids(space):
    with pytest.raises(Mistake, match="Flatten it to one axis"):
        Actions.from_space(space)


def test_one_hot_groups_have_scipys_divergence_and_a_share_of_uniform_probabilities():
    logits = np.array([[3.0, 0.0, -2.0, 0.0, 90.0, 0.0], [0.0, 0.0, 0.0, -1.0, 1.0, 2.0]])
    q, p = (OneHotGroups.mixed(jnp.asarray(x, jnp.float32), 2) for x in (logits, -logits))
    chances = np.exp(logits.reshape(2, 2, 3))
    chances = 0.99 * chances / chances.sum(-1, keepdims=True) + 0.01 / 3
    np.testing.assert_allclose(np.exp(q.log_p), chances, rtol=1e-5)
    truth = stats.entropy(np.exp(q.log_p), np.exp(p.log_p), axis=-1).sum(-1)
    np.testing.assert_allclose(q.kl(p), truth, rtol=1e-4)


def test_one_hot_groups_draw_one_choice_a_group_with_the_gradient_of_its_probabilities():
    logits, worth = jnp.asarray([1.0, 0.0, -1.0, 0.5, 0.0, 2.0]), jnp.arange(6, dtype=jnp.float32)
    q = OneHotGroups.mixed(jnp.broadcast_to(logits, (20_000, 6)), 2, 0.0)
    drawn = np.asarray(q.sample(jax.random.key(0)))
    np.testing.assert_allclose(drawn.reshape(-1, 2, 3).sum(-1), 1.0, rtol=1e-6)
    np.testing.assert_allclose(drawn.mean(0), np.exp(q.log_p[0]).ravel(), atol=0.015)

    def expected(x):
        return jnp.sum(worth * jax.nn.softmax(x.reshape(2, 3)).ravel())

    def sampled(x):
        return jnp.sum(worth * OneHotGroups.mixed(x, 2, 0.0).sample(jax.random.key(1)))

    np.testing.assert_allclose(jax.grad(sampled)(logits), jax.grad(expected)(logits), rtol=1e-5)
