"""Aggregation: denominators by hand, and the same loss and gradient under any split."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from constants import constant_array

from sterling.equations import token_averages
from sterling.types import Mistake

LOSS = constant_array([[1.0, 2.0, 3.0], [10.0, np.nan, np.inf], [4.0, 6.0, np.nan]])
MASK = constant_array([[True, True, True], [True, False, False], [True, True, False]])
GROUP = constant_array([2, 0, 2], np.int32)


@pytest.mark.parametrize(
    ("how", "by_hand"),
    [
        ("token", 26 / 6),
        ("sequence", (2 + 10 + 5) / 3),
        ("sum", 26 / 3),
        ("sum-constant", 26 / (3 * 5)),
        ("prompt", (16 / 5 + 10) / 2),
    ],
)
def test_token_aggregation_matches_hand_values_and_ignores_masked_tokens(how, by_hand):
    def loss(each):
        return token_averages.aggregate(each, MASK, GROUP, how, length=5)

    value, gradient = jax.value_and_grad(loss)(LOSS)
    np.testing.assert_allclose(value, by_hand, rtol=1e-6)
    weight = token_averages.token_weights(MASK, GROUP, how, length=5.0)
    np.testing.assert_array_equal(gradient, weight)
    np.testing.assert_array_equal(weight > 0.0, MASK)


@pytest.mark.parametrize("how", ["token", "sequence", "prompt"])
def test_token_weights_of_a_single_row_sum_to_one(how):
    total = token_averages.token_weights(MASK[1:2], GROUP[1:2], how).sum()
    np.testing.assert_allclose(total, 1.0, rtol=1e-6)


@pytest.mark.parametrize("how", token_averages.AGGREGATIONS)
def test_token_weights_of_mean_aggregations_sum_to_one(how):
    total = token_averages.token_weights(MASK, GROUP, how, length=5.0).sum()
    np.testing.assert_allclose(
        total, {"sum-constant": 6 / 15, "sum": 6 / 3}.get(how, 1.0), rtol=1e-6
    )


def test_token_weights_by_prompt_accept_any_integer_group_keys():
    """A minibatch has the keys of the whole batch, which run on to more than its own rows."""
    for keys in ([17, 900, 17], [3, -1, 3], [2, 3, 2]):
        group = jnp.asarray(keys, jnp.int32)
        found = jax.jit(lambda group: token_averages.token_weights(MASK, group, "prompt"))(group)
        np.testing.assert_array_equal(found, token_averages.token_weights(MASK, GROUP, "prompt"))


@pytest.mark.parametrize("how", token_averages.AGGREGATIONS)
def test_rejected_tokens_stay_in_the_loss_denominator(how):
    """What goes takes its part of the loss away and leaves the others' weights as they were."""
    kept = MASK & jnp.asarray([[True, False, True], [False, True, True], [True, True, True]])
    before = token_averages.token_weights(MASK, GROUP, how, length=5.0)
    after = token_averages.token_weights(kept, GROUP, how, length=5.0, counted=MASK)
    np.testing.assert_array_equal(after, np.where(kept, before, 0.0))


@pytest.mark.parametrize("how", token_averages.AGGREGATIONS)
def test_token_weights_ignore_padding_rows(how):
    more = jnp.concatenate([MASK, jnp.zeros((2, 3), bool)])
    found = token_averages.token_weights(
        more, jnp.asarray([2, 0, 2, 4, 1], jnp.int32), how, length=5.0
    )
    np.testing.assert_array_equal(
        found[:3], token_averages.token_weights(MASK, GROUP, how, length=5.0)
    )
    assert not found[3:].any()


@pytest.mark.parametrize("how", token_averages.AGGREGATIONS)
@pytest.mark.parametrize(
    "parts", [3, *(pytest.param(parts, marks=pytest.mark.slow) for parts in (2, 8))]
)
def test_token_aggregation_is_invariant_to_micro_batch_splits(how, parts):
    """In double precision: rows at random, groups torn apart, in micro-batches of unequal size."""
    rng = np.random.default_rng(parts)
    rows, tokens = 8, 5
    part_of = np.concatenate([np.arange(parts), rng.integers(parts, size=rows - parts)])
    group = jnp.asarray(rng.integers(3, size=rows), jnp.int32)
    mask = jnp.asarray(np.arange(tokens)[None] < rng.integers(1, tokens + 1, (rows, 1)))
    kept = mask & jnp.asarray(rng.random((rows, tokens)) < 0.8)
    with jax.enable_x64(True):
        x, theta = jnp.asarray(rng.normal(size=(rows, tokens, 4))), jnp.asarray(rng.normal(size=4))

        def loss(theta, at):
            return token_averages.weighted_sum(jnp.tanh(x[at] @ theta) ** 2, weight[at])

        weight = token_averages.token_weights(kept, group, how, length=7.0, counted=mask)
        whole = jax.value_and_grad(loss)(theta, np.arange(rows))
        pieces = [
            jax.value_and_grad(loss)(theta, np.flatnonzero(part_of == p)) for p in range(parts)
        ]
        summed = jax.tree.map(lambda *each: sum(each), *pieces)
        assert whole[1].dtype == jnp.float64
    np.testing.assert_allclose(summed[0], whole[0], rtol=1e-13)
    np.testing.assert_allclose(summed[1], whole[1], rtol=1e-12, atol=1e-15)


def test_token_mean_averaged_over_micro_batches_differs():
    """What TRL calls bnpo: the token mean of each micro-batch, averaged."""
    whole = token_averages.aggregate(LOSS, MASK, GROUP, "token")
    split = [
        token_averages.aggregate(LOSS[at], MASK[at], GROUP[at], "token")
        for at in (np.asarray([0, 2]), np.asarray([1]))
    ]
    assert abs(float(whole) - float(sum(split)) / 2) > 1.0


def test_token_aggregation_of_an_empty_batch_is_zero():
    for how in token_averages.AGGREGATIONS:
        found = token_averages.aggregate(LOSS, MASK & False, GROUP, how, length=5.0)
        assert float(found) == 0.0


def test_token_aggregation_refuses_unknown_names_and_missing_length():
    with pytest.raises(Mistake, match="needs a constant"):
        token_averages.token_weights(MASK, GROUP, "sum-constant")
    with pytest.raises(Mistake, match="did you mean sequence"):
        token_averages.token_weights(MASK, GROUP, "sequences")
