"""Ratios of answers' probabilities: levels, their gradients, and weights of stale samples."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from constants import constant_array

from sterling.equations import likelihood_ratios, ratio_clipping, token_averages
from sterling.types import Mistake

NEW = constant_array(np.log([[0.5, 0.2, 0.4], [0.1, 0.9, 0.3]]))
OLD = constant_array(np.log([[0.25, 0.4, 0.1], [0.2, 0.3, 0.6]]))
MASK = constant_array([[True, True, True], [True, True, False]])


@pytest.mark.parametrize(
    ("level", "ratio"),
    [
        ("token", [[2.0, 0.5, 4.0], [0.5, 3.0, 1.0]]),
        ("sequence", [[4 ** (1 / 3)] * 3, [1.5**0.5, 1.5**0.5, 1.0]]),
        ("sum", [[4.0] * 3, [1.5, 1.5, 1.0]]),
    ],
)
def test_likelihood_ratios_by_level_match_hand_values(level, ratio):
    found = likelihood_ratios.log_ratio(NEW, OLD, MASK, level)
    np.testing.assert_allclose(jnp.exp(found), ratio, rtol=1e-6)


@pytest.mark.parametrize("level", likelihood_ratios.RATIO_LEVELS)
def test_likelihood_ratio_never_reads_masked_tokens(level):
    filled = jnp.where(MASK, NEW, jnp.nan)

    def loss(log_prob):
        return jnp.sum(jnp.exp(likelihood_ratios.log_ratio(log_prob, OLD, MASK, level)))

    value, gradient = jax.value_and_grad(loss)(filled)
    assert np.isfinite(value)
    assert np.all(np.isfinite(gradient))
    assert gradient[1, 2] == 0.0


def test_likelihood_ratio_passes_no_gradient_to_old_log_probs():
    for level in likelihood_ratios.RATIO_LEVELS:
        found = jax.grad(
            lambda old, how=level: likelihood_ratios.log_ratio(NEW, old, MASK, how).sum()
        )
        np.testing.assert_array_equal(found(OLD), np.zeros((2, 3)))


def gspo(log_prob, advantage, weights, old=OLD, mask=MASK):
    """The paper's own form: one clipped term per row, the gradient through the mean."""
    change = jnp.sum(jnp.where(mask, log_prob - old, 0.0), -1)
    ratio = jnp.exp(change / jnp.sum(mask.astype(jnp.float32), -1))
    kept = jnp.minimum(ratio * advantage, jnp.clip(ratio, 0.8, 1.2) * advantage)
    return -jnp.sum(kept * weights)


@pytest.mark.parametrize("advantage", [[1.0, -1.0], [-1.0, -2.0], [1.0, 2.0]])
@pytest.mark.parametrize("near", [1.0, 0.01])  # beyond the clip, and within it
def test_token_level_gradient_equals_gspo_for_a_shared_row_advantage(advantage, near):
    new, advantage = OLD + near * (NEW - OLD), jnp.asarray(advantage)

    def by_token(log_prob):
        ratio = likelihood_ratios.log_ratio(log_prob, OLD, MASK, "sequence")
        each = jnp.broadcast_to(advantage[:, None], MASK.shape)
        loss, _ = ratio_clipping.surrogate_loss(ratio, log_prob, each, "clip", low=0.2, high=0.2)
        return token_averages.aggregate(loss, MASK, jnp.zeros(2, jnp.int32), "sequence")

    value, gradient = jax.value_and_grad(by_token)(new)
    expected, through_mean = jax.value_and_grad(gspo)(new, advantage, jnp.full(2, 0.5))
    np.testing.assert_allclose(value, expected, rtol=1e-6)
    np.testing.assert_allclose(gradient, through_mean, rtol=1e-5, atol=1e-7)


def test_token_level_gradient_differs_from_gspo_for_unequal_advantages():
    advantage = jnp.asarray([[1.0, 0.0, 0.0], [0.0, 0.0, 0.0]])

    def loss(log_prob):
        return jnp.sum(advantage * likelihood_ratios.log_ratio(log_prob, OLD, MASK, "sequence"))

    np.testing.assert_allclose(jax.grad(loss)(NEW), advantage)  # the mean's would be 1/3 each


def test_sum_level_ratio_is_the_ratio_of_the_whole_answer():
    def loss(log_prob):
        ratio = jnp.exp(likelihood_ratios.log_ratio(log_prob, OLD, MASK, "sum"))
        return token_averages.aggregate(ratio, MASK, jnp.zeros(2, jnp.int32), "sequence")

    value, gradient = jax.value_and_grad(loss)(NEW)
    np.testing.assert_allclose(value, (4.0 + 1.5) / 2, rtol=1e-6)
    np.testing.assert_allclose(gradient, [[2.0] * 3, [0.75, 0.75, 0.0]], rtol=1e-6)


def test_behaviour_weights_of_stale_samples_are_clipped_and_constant():
    found = likelihood_ratios.behaviour_weight(NEW, OLD, MASK, 2.5)
    np.testing.assert_allclose(found, [[2.0, 0.5, 2.5], [0.5, 2.5, 1.0]], rtol=1e-6)
    whole = likelihood_ratios.behaviour_weight(NEW, OLD, MASK, jnp.inf, "sum")
    np.testing.assert_allclose(whole, [[4.0] * 3, [1.5, 1.5, 1.0]], rtol=1e-6)
    gradient = jax.grad(lambda new: likelihood_ratios.behaviour_weight(new, OLD, MASK).sum())(NEW)
    np.testing.assert_array_equal(gradient, np.zeros((2, 3)))


def test_unclipped_behaviour_weights_make_the_stale_mean_unbiased():
    """E_behaviour[w f] = E_proximal[f], by enumeration of the answers of two tokens."""
    rng = np.random.default_rng(0)
    proximal, behaviour = (
        jax.nn.log_softmax(jnp.asarray(rng.normal(size=(2, 3)), jnp.float32)) for _ in range(2)
    )
    value = jnp.asarray(rng.normal(size=(9,)), jnp.float32)
    answers = np.stack(np.meshgrid(range(3), range(3), indexing="ij"), -1).reshape(-1, 2)
    of = [each[np.arange(2)[None], answers] for each in (proximal, behaviour)]
    weight = likelihood_ratios.behaviour_weight(*of, jnp.ones((9, 2), bool), jnp.inf, "sum")[:, 0]
    chance = [jnp.exp(each.sum(-1)) for each in of]
    np.testing.assert_allclose(
        jnp.sum(chance[1] * weight * value), jnp.sum(chance[0] * value), rtol=1e-5
    )


def test_ratio_bounds_drop_tokens_and_rows_outside():
    token = likelihood_ratios.within_ratio_bounds(NEW, OLD, MASK, low=0.6, high=3.5)
    np.testing.assert_array_equal(token, [[True, False, False], [False, True, False]])
    row = likelihood_ratios.within_ratio_bounds(NEW, OLD, MASK, "sum", low=0.0, high=3.0)
    np.testing.assert_array_equal(row, [[False] * 3, [True, True, False]])


def test_ratio_bounds_include_their_ends():
    same = likelihood_ratios.within_ratio_bounds(OLD, OLD, MASK, low=0.5, high=1.0)
    np.testing.assert_array_equal(same, MASK)
    np.testing.assert_array_equal(
        likelihood_ratios.within_ratio_bounds(OLD, OLD, MASK, low=1.0, high=2.0), MASK
    )


def test_likelihood_ratio_of_a_row_without_tokens_is_one():
    nothing = jnp.zeros((2, 3), bool)
    for level in likelihood_ratios.RATIO_LEVELS:
        found = likelihood_ratios.log_ratio(NEW, OLD, nothing, level)
        np.testing.assert_array_equal(found, np.zeros((2, 3)))


def test_likelihood_ratio_refuses_unknown_levels_and_names_the_nearest():
    with pytest.raises(Mistake, match="did you mean sequence"):
        likelihood_ratios.log_ratio(NEW, OLD, MASK, "seq")
