"""Advantages by group: numbers a person can check, a plain loop, and the edges."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from constants import constant_array

from sterling.equations import group_advantages
from sterling.types import Mistake

# Rows of groups 4, 0 and 2, in no order: (1, 0, 2), (5, 3) and (7) alone.
GROUP = constant_array([4, 0, 4, 2, 4, 0], np.int32)
REWARD = constant_array([1.0, 5.0, 0.0, 7.0, 2.0, 3.0])
ALL = constant_array(np.ones(6, bool))


def test_group_baselines_match_hand_values():
    found = {
        kind: group_advantages.group_baseline(REWARD, GROUP, ALL, kind)
        for kind in group_advantages.BASELINES
    }
    np.testing.assert_allclose(found["none"], np.zeros(6))
    np.testing.assert_allclose(found["mean"], [1.0, 4.0, 1.0, 7.0, 1.0, 4.0])
    np.testing.assert_allclose(found["leave-one-out"], [1.0, 3.0, 1.5, 7.0, 0.5, 5.0])


def test_group_advantage_scales_match_hand_values():
    centred = np.asarray([0.0, 1.0, -1.0, 0.0, 1.0, -1.0])
    found = {
        scale: group_advantages.advantages(REWARD, GROUP, ALL, "mean", scale, eps=0.0)
        for scale in group_advantages.SCALES
    }
    np.testing.assert_allclose(found["none"], centred)
    half = np.sqrt(0.5)  # the deviation of (5, 3) is sqrt 2, of (1, 0, 2) it is 1
    np.testing.assert_allclose(found["group"], [0.0, half, -1.0, 0.0, 1.0, -half], rtol=1e-6)
    np.testing.assert_allclose(found["batch"], centred / np.std(REWARD, ddof=1), rtol=1e-6)
    np.testing.assert_allclose(found["whiten"], centred / np.std(centred, ddof=1), rtol=1e-6)


def plainly(reward, keys, valid, baseline, scale):
    """The docstring as a loop."""
    made, eps = np.zeros(len(reward)), 1e-2
    for row in np.flatnonzero(valid):
        own = [other for other in np.flatnonzero(valid) if keys[other] == keys[row]]
        others = [other for other in own if other != row]
        if baseline == "mean":
            made[row] = reward[row] - reward[own].mean()
        elif baseline == "leave-one-out":
            made[row] = reward[row] - reward[others].mean() if others else 0.0
        else:
            made[row] = reward[row]
    centred = made.copy()
    for row in np.flatnonzero(valid):
        own = [other for other in np.flatnonzero(valid) if keys[other] == keys[row]]
        if scale == "group" and len(own) > 1:
            made[row] /= reward[own].std(ddof=1) + eps
        elif scale == "batch":
            made[row] /= reward[valid].std(ddof=1) + eps
        elif scale == "whiten":
            made[row] = (made[row] - centred[valid].mean()) / (centred[valid].std(ddof=1) + eps)
    return made


@pytest.mark.parametrize("baseline", group_advantages.BASELINES)
@pytest.mark.parametrize("scale", group_advantages.SCALES)
def test_group_advantages_equal_a_plain_loop_with_unscored_rows(baseline, scale):
    rng = np.random.default_rng(1)
    keys = rng.integers(5, size=20)
    reward, valid = rng.normal(size=20), rng.random(20) < 0.8
    expected = plainly(reward, keys, valid, baseline, scale)
    given = jnp.asarray(np.where(valid, reward, np.nan), jnp.float32)
    arrays = (given, jnp.asarray(keys, jnp.int32), jnp.asarray(valid))
    found = group_advantages.advantages(*arrays, baseline, scale, eps=1e-2)
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)
    assert not np.any(np.asarray(found)[~valid])


def test_group_advantages_ignore_row_order_and_group_numbers():
    order, names = np.asarray([5, 2, 0, 3, 1, 4]), np.asarray([3, 9, 1, 9, 0])
    renamed = jnp.asarray(names[np.asarray(GROUP)][order], jnp.int32)
    found = group_advantages.advantages(REWARD[order], renamed, ALL, "leave-one-out", "group")
    expected = group_advantages.advantages(REWARD, GROUP, ALL, "leave-one-out", "group")
    np.testing.assert_allclose(found, np.asarray(expected)[order], rtol=1e-6)


@pytest.mark.parametrize("baseline", ["mean", "leave-one-out"])
@pytest.mark.parametrize("scale", group_advantages.SCALES)
def test_group_advantages_of_equal_rewards_are_exactly_zero(baseline, scale):
    """A rounding error over eps would be a gradient: 0.1 three times has no exact mean."""
    reward = jnp.full(7, 0.1)
    keys = jnp.asarray([0, 0, 0, 1, 1, 1, 1], jnp.int32)
    found = group_advantages.advantages(reward, keys, jnp.ones(7, bool), baseline, scale, eps=1e-9)
    np.testing.assert_array_equal(found, np.zeros(7))


def test_group_advantages_without_baseline_keep_equal_rewards():
    found = group_advantages.advantages(
        jnp.ones(3), jnp.zeros(3, jnp.int32), jnp.ones(3, bool), "none", "batch"
    )
    np.testing.assert_array_equal(found, np.ones(3))


def test_leave_one_out_baseline_is_the_scaled_mean_baseline():
    alike = jnp.asarray([0, 0, 0, 1, 1, 1], jnp.int32)
    by_mean = group_advantages.advantages(REWARD, alike, ALL, "mean", "none")
    found = group_advantages.advantages(REWARD, alike, ALL, "leave-one-out", "none")
    np.testing.assert_allclose(found, 1.5 * by_mean, rtol=1e-5)


def test_group_advantages_without_any_scored_row_are_zero():
    reward = jnp.full(6, jnp.nan)
    for baseline in group_advantages.BASELINES:
        for scale in group_advantages.SCALES:
            found = group_advantages.advantages(reward, GROUP, ~ALL, baseline, scale)
            np.testing.assert_array_equal(found, np.zeros(6))


def test_token_whitening_weighs_by_tokens_and_ignores_masked_ones():
    x = jnp.asarray([[1.0, 1.0, 1.0], [5.0, jnp.nan, jnp.nan]])
    mask = jnp.asarray([[True, True, True], [True, False, False]])
    np.testing.assert_allclose(
        group_advantages.whiten(x, mask), [[-0.5, -0.5, -0.5], [1.5, 0.0, 0.0]], rtol=1e-6
    )  # mean 2, variance (1 + 1 + 1 + 9) / 3


def test_overlong_penalty_falls_linearly_with_length():
    length = jnp.asarray([0, 12, 14, 16, 90], jnp.int32)
    np.testing.assert_allclose(
        group_advantages.overlong_penalty(length, 16, 4), [0.0, 0.0, -0.5, -1.0, -1.0], atol=1e-7
    )


@pytest.mark.parametrize("buffer", [0, 17])
def test_overlong_penalty_refuses_an_impossible_buffer(buffer):
    with pytest.raises(Mistake, match=r"must be in 1\.\.16"):
        group_advantages.overlong_penalty(jnp.asarray([3], jnp.int32), 16, buffer)


def test_group_advantages_refuse_unknown_names_and_name_the_nearest():
    with pytest.raises(Mistake, match="did you mean leave-one-out"):
        group_advantages.advantages(REWARD, GROUP, ALL, "leave_one_out", "none")
    with pytest.raises(Mistake, match="use one of none, group, batch, whiten"):
        group_advantages.advantages(REWARD, GROUP, ALL, "mean", "xyz")


@pytest.mark.parametrize("scale", group_advantages.SCALES)
def test_group_advantages_pass_no_gradient(scale):
    def total(reward):
        found = group_advantages.advantages(reward, GROUP, ALL, "leave-one-out", scale)
        return jnp.sum(found * jnp.arange(6.0))

    np.testing.assert_array_equal(jax.grad(total)(REWARD), np.zeros(6))
