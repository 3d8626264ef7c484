"""Credit across turns: against GAE on rows without the world's tokens, and by hand."""

import jax.numpy as jnp
import numpy as np
import pytest
from constants import constant_array

from sterling.equations import returns, turn_credit

GAMMA, LAM = 0.9, 0.7
# Two turns with a tool's answer between; the second row has one turn and is padded.
MASK = constant_array([[1, 1, 0, 0, 1, 1, 0], [0, 1, 1, 1, 0, 0, 0]], bool)
TURN = constant_array([[0, 0, 0, 1, 1, 1, 1], [-1, 0, 0, 0, -1, -1, -1]], np.int32)
rng = np.random.default_rng(0)
VALUE = constant_array(rng.normal(size=MASK.shape), np.float32)
REWARD = constant_array(np.where(MASK, rng.normal(size=MASK.shape), 0.0))
LAST = constant_array([0.0, 0.4])


def dense(row, gamma, lam):
    """GAE of one row as if the world's tokens were not there."""
    own = np.asarray(MASK[row])
    value = VALUE[row][own]
    ahead = jnp.concatenate([value[1:], LAST[row : row + 1]])
    going = jnp.asarray(np.arange(own.sum()) < own.sum() - 1)
    discount = jnp.full(value.shape, gamma, jnp.float32)
    return returns.gae(REWARD[row][own], discount, value, ahead, going, lam=lam)


@pytest.mark.parametrize(("gamma", "lam"), [(GAMMA, LAM), (1.0, 1.0), (0.5, 0.0)])
def test_turn_credit_masked_gae_equals_gae_of_own_tokens_alone(gamma, lam):
    spoiled = jnp.where(MASK, VALUE, jnp.nan)  # the world's tokens are never read
    found = turn_credit.masked_gae(REWARD, spoiled, MASK, LAST, gamma=gamma, lam=lam)
    for row in range(2):
        own = np.asarray(MASK[row])
        np.testing.assert_allclose(found[row][own], dense(row, gamma, lam), rtol=1e-5, atol=1e-6)
        np.testing.assert_array_equal(found[row][~own], 0.0)


def test_turn_credit_masked_gae_differs_from_zeroing_environment_tokens():
    """What stacks do that multiply rewards and values by the mask and go through every column."""
    ahead = jnp.concatenate([jnp.where(MASK, VALUE, 0.0)[:, 1:], LAST[:, None]], 1)
    through = returns.gae(
        *(each.T for each in (REWARD, jnp.full(MASK.shape, GAMMA), jnp.where(MASK, VALUE, 0.0))),
        ahead.T,
        jnp.ones(MASK.shape[::-1], bool),
        lam=LAM,
    ).T
    found = turn_credit.masked_gae(REWARD, VALUE, MASK, LAST, gamma=GAMMA, lam=LAM)
    assert np.abs(through - found)[0, 0] > 0.05


def test_turn_credit_moves_tool_token_rewards_to_the_own_token_before():
    on_tool = jnp.zeros(MASK.shape).at[0, 3].set(2.0).at[1, 6].set(1.0)
    on_own = jnp.zeros(MASK.shape).at[0, 1].set(2.0).at[1, 3].set(1.0)
    of = [
        turn_credit.masked_gae(each, VALUE, MASK, LAST, gamma=GAMMA, lam=LAM)
        for each in (on_tool, on_own)
    ]
    np.testing.assert_allclose(of[0], of[1], rtol=1e-6)


def test_returns_to_go_by_hand():
    reward = jnp.zeros(MASK.shape).at[0, 1].set(1.0).at[0, 5].set(4.0).at[1, 3].set(2.0)
    found = turn_credit.returns_to_go(reward, MASK, 0.5)
    np.testing.assert_allclose(found[0], [0.5 + 0.5, 1.0 + 1.0, 0.0, 0.0, 2.0, 4.0, 0.0])
    np.testing.assert_allclose(found[1], [0.0, 0.5, 1.0, 2.0, 0.0, 0.0, 0.0])


def test_turn_level_gae_by_hand():
    reward = jnp.asarray([[1.0, 3.0], [2.0, 0.0]])
    found = turn_credit.turn_gae(reward, VALUE, TURN, MASK, LAST, gamma=GAMMA, lam=LAM)
    first, second, only = VALUE[0, 0], VALUE[0, 4], VALUE[1, 1]
    late = 3.0 - second
    early = 1.0 + GAMMA * second - first + GAMMA * LAM * late
    alone = 2.0 + GAMMA * 0.4 - only
    expected = np.zeros(MASK.shape)
    expected[0, :2], expected[0, 4:6], expected[1, 1:4] = early, late, alone
    np.testing.assert_allclose(found, expected, rtol=1e-5)


def test_turn_returns_discount_by_turn_and_not_by_token():
    found = turn_credit.turn_returns(jnp.asarray([[1.0, 4.0], [2.0, 0.0]]), TURN, MASK, 0.5)
    np.testing.assert_allclose(found[0], [3.0, 3.0, 0.0, 0.0, 4.0, 4.0, 0.0])
    np.testing.assert_allclose(found[1], [0.0, 2.0, 2.0, 2.0, 0.0, 0.0, 0.0])


def test_turn_returns_skip_turns_without_tokens():
    found = turn_credit.turn_returns(
        jnp.asarray([[1.0, 4.0, 8.0], [2.0, 6.0, 0.0]]), TURN, MASK, 0.5
    )
    np.testing.assert_allclose(found[0, [0, 4]], [1.0 + 0.5 * 12.0, 12.0])
    np.testing.assert_allclose(found[1, 1], 8.0)


def test_undiscounted_turn_returns_equal_token_returns_to_go():
    reward = jnp.asarray([[0.0, 1.0], [1.0, 0.0]])
    at_end = jnp.zeros(MASK.shape).at[0, 5].set(1.0).at[1, 3].set(1.0)
    found = turn_credit.turn_returns(reward, TURN, MASK)
    np.testing.assert_allclose(found, turn_credit.returns_to_go(at_end, MASK))


def test_turn_credit_sums_tokens_by_turn_and_spreads_them_back():
    of_turn = turn_credit.sum_by_turn(REWARD, TURN, MASK, 3)
    expected = [
        [REWARD[0, :2].sum(), REWARD[0, 4:6].sum(), 0.0],
        [REWARD[1, 1:4].sum(), 0.0, 0.0],
    ]
    np.testing.assert_allclose(of_turn, expected, rtol=1e-6)
    opening, there = turn_credit.first_token_of_turn(VALUE, TURN, MASK, 3)
    np.testing.assert_array_equal(there, [[True, True, False], [True, False, False]])
    np.testing.assert_allclose(opening, [[VALUE[0, 0], VALUE[0, 4], 0.0], [VALUE[1, 1], 0.0, 0.0]])
    spread = turn_credit.spread_to_tokens(of_turn, TURN, MASK)
    np.testing.assert_allclose(spread[0, :2], [of_turn[0, 0]] * 2)
    assert not np.asarray(spread)[~np.asarray(MASK)].any()


def test_turn_credit_first_token_of_turn_may_be_the_last_token():
    turn = jnp.asarray([[0, 0, 1]], jnp.int32)
    mask = jnp.asarray([[True, True, True]])
    found, there = turn_credit.first_token_of_turn(jnp.asarray([[5.0, 6.0, 7.0]]), turn, mask, 3)
    np.testing.assert_array_equal(found, [[5.0, 7.0, 0.0]])
    np.testing.assert_array_equal(there, [[True, True, False]])
