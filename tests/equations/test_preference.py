"""Preference losses on numbers a person can check (TRL's are in test_trl.py)."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from constants import constant_array

from sterling.equations import preference_losses

CHOSEN, REJECTED = constant_array([2.0, 0.0, -1.0]), constant_array([-1.0, 0.0, 1.0])
Z = 0.5 * np.asarray([3.0, 0.0, -2.0])


def logistic(z):
    return np.log1p(np.exp(-z))


def test_answer_log_prob_sums_and_means_ignore_masked_tokens():
    log_prob = jnp.asarray([[-1.0, -3.0, jnp.nan], [jnp.nan, jnp.nan, jnp.nan]])
    mask = jnp.asarray([[True, True, False], [False, False, False]])
    np.testing.assert_allclose(preference_losses.sequence_log_prob(log_prob, mask), [-4.0, 0.0])
    np.testing.assert_allclose(preference_losses.mean_log_prob(log_prob, mask), [-2.0, 0.0])


def test_dpo_and_its_smoothing():
    np.testing.assert_allclose(preference_losses.dpo(CHOSEN, REJECTED, 0.5), logistic(Z), rtol=1e-6)
    smooth = preference_losses.dpo(CHOSEN, REJECTED, 0.5, 0.1)
    np.testing.assert_allclose(smooth, 0.9 * logistic(Z) + 0.1 * logistic(-Z), rtol=1e-6)


def test_dpo_label_smoothing_minimum_is_at_the_true_log_odds():
    right = jnp.asarray([np.log(0.8 / 0.2)], jnp.float32)
    slope = jax.grad(lambda c: preference_losses.dpo(c, jnp.zeros(1), 1.0, 0.2).sum())(right)
    np.testing.assert_allclose(slope, [0.0], atol=1e-6)


def test_ipo_with_and_without_lengths():
    found = preference_losses.ipo(CHOSEN, REJECTED, 0.25)
    np.testing.assert_allclose(found, (np.asarray([3.0, 0.0, -2.0]) - 2.0) ** 2)
    lengths = (jnp.asarray([4.0, 1.0, 2.0]), jnp.asarray([2.0, 5.0, 1.0]))
    found = preference_losses.ipo(CHOSEN, REJECTED, 0.25, lengths)
    np.testing.assert_allclose(found, (np.asarray([1.0, 0.0, -1.5]) - 2.0) ** 2)


def test_hinge_preference_loss_matches_hand_values():
    np.testing.assert_allclose(preference_losses.hinge(CHOSEN, REJECTED, 0.5), [0.0, 1.0, 2.0])


def test_kto_pulls_good_answers_up_and_bad_ones_down():
    gain, kl = jnp.asarray([1.0, 1.0, 3.0]), jnp.asarray(1.0)
    desirable = jnp.asarray([True, False, False])
    found = preference_losses.kto(gain, desirable, kl, 0.5, weight_desirable=2.0)
    np.testing.assert_allclose(found, [1.0, 0.5, 1 / (1 + np.exp(-1.0))], rtol=1e-6)
    slope = jax.grad(lambda g: preference_losses.kto(g, desirable, kl, 0.5).sum())(gain)
    assert slope[0] < 0.0 < slope[1]


def test_ktos_reference_is_a_constant_and_never_negative():
    def reference(gain):
        return preference_losses.kto_reference(gain)

    assert float(reference(CHOSEN)) == pytest.approx(1 / 3)
    assert float(reference(-CHOSEN)) == 0.0
    np.testing.assert_array_equal(jax.grad(reference)(CHOSEN), np.zeros(3))
    slope = jax.grad(lambda kl: preference_losses.kto(CHOSEN, CHOSEN > 0.0, kl).sum())(
        jnp.asarray(0.5)
    )
    assert float(slope) == 0.0


def test_orpo_loss_is_the_log_ratio_of_odds():
    chosen, rejected = np.asarray([0.9, 0.5, 0.2]), np.asarray([0.6, 0.5, 0.4])
    ratio = (chosen / (1 - chosen)) / (rejected / (1 - rejected))
    of = [jnp.log(jnp.asarray(each, jnp.float32)) for each in (chosen, rejected)]
    found = preference_losses.orpo(*of, 0.2)
    np.testing.assert_allclose(found, -0.2 * np.log(ratio / (1 + ratio)), rtol=1e-5)


def test_orpo_is_finite_for_certain_and_for_hopeless_answers():
    log_prob = jnp.asarray([-1e-9, 0.0, -200.0, -1e-4])

    def loss(chosen):
        return preference_losses.orpo(chosen, jnp.full(4, -1.0)).sum()

    value, slope = jax.value_and_grad(loss)(log_prob)
    assert np.isfinite(value)
    assert np.all(np.isfinite(slope))


def test_orpo_is_exact_for_an_answer_that_is_almost_certain():
    """In single precision 1 - exp(-1e-6) is 5 percent off."""
    found = preference_losses.orpo(jnp.asarray([-1.0]), jnp.asarray([-1e-6]), 1.0)
    odds = -1.0 + 1e-6 - (np.log(-np.expm1(-1.0)) - np.log(-np.expm1(-1e-6)))
    np.testing.assert_allclose(found, [np.log1p(np.exp(-odds))], rtol=1e-5)


def test_simpo_loss_matches_hand_values():
    found = preference_losses.simpo(CHOSEN, REJECTED, 0.5, 0.25)
    np.testing.assert_allclose(found, logistic(Z - 0.25), rtol=1e-6)


def test_bradley_terry_with_margin_and_centring():
    np.testing.assert_allclose(
        preference_losses.bradley_terry(CHOSEN, REJECTED), logistic(2 * Z), rtol=1e-6
    )
    margin = jnp.asarray([0.0, 1.0, 2.0])
    found = preference_losses.bradley_terry(CHOSEN, REJECTED, margin, 0.1)
    expected = logistic(2 * Z - np.asarray(margin)) + 0.1 * np.asarray([1.0, 0.0, 0.0])
    np.testing.assert_allclose(found, expected, rtol=1e-6)


def test_orpo_loss_caps_the_odds_of_a_certain_answer():
    """log odds of exp(-1e-7): -1e-7 - ln(1 - exp(-1e-7)) = 16.118."""
    sure, even = jnp.zeros(1), jnp.full(1, -np.log(2.0))  # log odds of a half: 0
    np.testing.assert_allclose(preference_losses.orpo(even, sure, 0.5), 0.5 * 16.11810, rtol=1e-4)
