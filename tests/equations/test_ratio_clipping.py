"""Clip rules: each number and gradient by hand."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from constants import constant_array

from sterling.equations import ratio_clipping
from sterling.types import Mistake

RATIO = constant_array([[0.5, 0.9, 1.0, 1.25, 6.0]])
LOG_PROB = constant_array(np.log([[0.1, 0.2, 0.3, 0.4, 0.5]]))
UP, DOWN = constant_array(np.ones((1, 5))), constant_array(np.full((1, 5), -1.0))


def loss(rule, advantage, **limits):
    return ratio_clipping.surrogate_loss(jnp.log(RATIO), LOG_PROB, advantage, rule, **limits)


def gradient(rule, advantage, **limits):
    """By log pi, through the ratio and the log-probability alike; divided by -A."""

    def total(log_prob):
        ratio = jnp.log(RATIO) + log_prob - jax.lax.stop_gradient(log_prob)
        return ratio_clipping.surrogate_loss(ratio, log_prob, advantage, rule, **limits)[0].sum()

    return jax.grad(total)(LOG_PROB) / -advantage


@pytest.mark.parametrize(
    ("rule", "advantage", "kept", "cut"),
    [
        ("none", UP, [0.5, 0.9, 1.0, 1.25, 6.0], [0, 0, 0, 0, 0]),
        ("clip", UP, [0.5, 0.9, 1.0, 1.25, 1.3], [0, 0, 0, 0, 1]),
        ("clip", DOWN, [0.8, 0.9, 1.0, 1.25, 6.0], [1, 0, 0, 0, 0]),
        ("dual", UP, [0.5, 0.9, 1.0, 1.25, 1.3], [0, 0, 0, 0, 1]),
        ("dual", DOWN, [0.8, 0.9, 1.0, 1.25, 3.0], [1, 0, 0, 0, 1]),
    ],
)
def test_ratio_clipping_losses_match_hand_values(rule, advantage, kept, cut):
    found, limited = loss(rule, advantage, low=0.2, high=0.3, dual=3.0)
    np.testing.assert_allclose(found, -np.asarray([kept]) * advantage, rtol=1e-6)
    np.testing.assert_array_equal(limited[0], np.asarray(cut, bool))
    passed = np.where(cut, 0.0, np.asarray(kept))  # what is cut passes no gradient
    slope = gradient(rule, advantage, low=0.2, high=0.3, dual=3.0)
    np.testing.assert_allclose(slope[0], passed, rtol=1e-6)


def test_cispo_clip_bounds_are_offsets_from_one_and_keep_gradients():
    weight = [0.8, 0.9, 1.0, 1.25, 4.0]
    found, limited = loss("cispo", UP, low=0.2, high=3.0)
    np.testing.assert_allclose(found, -np.asarray([weight]) * LOG_PROB, rtol=1e-6)
    np.testing.assert_array_equal(limited[0], [True, False, False, False, True])
    np.testing.assert_allclose(gradient("cispo", UP, low=0.2, high=3.0)[0], weight, rtol=1e-6)
    unbounded = loss("cispo", UP, low=1.0, high=3.0)[1]
    np.testing.assert_array_equal(unbounded[0], [False, False, False, False, True])


def test_reinforce_rule_loss_is_the_score_function():
    found, limited = loss("reinforce", DOWN)
    np.testing.assert_allclose(found, LOG_PROB, rtol=1e-6)
    np.testing.assert_allclose(gradient("reinforce", DOWN), np.ones((1, 5)))
    assert not limited.any()


@pytest.mark.parametrize("rule", ratio_clipping.CLIP_RULES)
def test_ratio_clipping_gradient_on_policy_is_the_score_function(rule):
    advantage = jnp.asarray([[1.0, -2.0, 0.5, -0.1, 3.0]])

    def total(log_prob):
        ratio = log_prob - jax.lax.stop_gradient(log_prob)
        return ratio_clipping.surrogate_loss(ratio, log_prob, advantage, rule)[0].sum()

    np.testing.assert_allclose(jax.grad(total)(LOG_PROB), -advantage, rtol=1e-6)


@pytest.mark.parametrize("rule", ratio_clipping.CLIP_RULES)
@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_ratio_clipping_of_extreme_ratios_is_finite(rule, sign):
    far = jnp.asarray([[1000.0, -1000.0]])

    def total(log_ratio):
        return ratio_clipping.surrogate_loss(log_ratio, log_ratio, jnp.full((1, 2), sign), rule)[
            0
        ].sum()

    value, slope = jax.value_and_grad(total)(far)
    assert np.isfinite(value)
    assert np.all(np.isfinite(slope))


def test_advantages_pass_no_gradient():
    slope = jax.grad(
        lambda a: ratio_clipping.surrogate_loss(jnp.log(RATIO), LOG_PROB, a, "clip")[0].sum()
    )(UP)
    np.testing.assert_array_equal(slope, np.zeros((1, 5)))


def test_ratio_clipping_does_not_count_ratios_exactly_on_the_bound():
    """Ratio 1 at bounds of 0; and a ratio that is exactly the dual bound."""
    one = jnp.zeros((1, 2))
    advantage = jnp.asarray([[1.0, -1.0]])
    for rule in ("clip", "dual", "cispo"):
        _, limited = ratio_clipping.surrogate_loss(one, one, advantage, rule, low=0.0, high=0.0)
        assert not limited.any()
    at = jnp.full((1, 2), 2.0)
    loss, limited = ratio_clipping.surrogate_loss(
        at, at, -jnp.ones((1, 2)), "dual", dual=jnp.exp(at[0, 0])
    )
    np.testing.assert_allclose(loss, np.full((1, 2), np.exp(2.0)), rtol=1e-6)
    assert not limited.any()


def test_ratio_clipping_refuses_unknown_rules_and_names_the_nearest():
    with pytest.raises(Mistake, match="did you mean cispo"):
        loss("cipso", UP)


def test_ratio_clipping_counts_nothing_where_the_advantage_is_zero():
    """A ratio beyond the limits times an advantage of 0 is 0 either way."""
    nothing = jnp.zeros_like(UP)
    for rule in ratio_clipping.CLIP_RULES:
        assert not ratio_clipping.surrogate_loss(
            jnp.log(RATIO), LOG_PROB, nothing, rule, low=0.2, high=0.2
        )[1].any()
