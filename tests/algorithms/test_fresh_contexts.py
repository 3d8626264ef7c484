"""Answers in several contexts: a row each, and the credit of the whole answer."""

import dataclasses
from types import SimpleNamespace

import jax.numpy as jnp
import numpy as np
import pytest

from sterling.algorithms.language import policy_gradient, token_credit
from sterling.types import Record

TURN = ([0, 0, 1, 1], [0, 1, 1, 1], [0, 0, 0, 1], [0, 0, 1, 1])  # of four answers, four tokens each
REWARD = ([0.0, 0.5, 0.0, 1.0], [1.0, 0.0, 0.0, 0.0], [0.0, 0.0, 0.0, 3.0], [0.0, 2.0, 0.0, 0.5])
GROUP = (0, 0, 1, 1)


def record(before, mask, **extras):
    """A batch of rows of four tokens; the model had 4 updates when it sampled them."""
    mask, before = jnp.asarray(mask, bool), jnp.asarray(before, jnp.int32)
    last = mask & ~jnp.roll(mask, -1, 1).at[:, -1].set(False)
    goes_on = (jnp.roll(before, -1) > 0)[:, None]
    reward = jnp.asarray(extras.pop("reward"), jnp.float32)
    extras = {
        **{name: jnp.asarray(extras[name], jnp.int32) for name in ("turn", "group")},
        "score": jnp.asarray(extras["score"], jnp.float32),
        "valid": jnp.ones(len(before), bool),
        "rows_before": before,
        "version": jnp.full(mask.shape, 4, jnp.int32),
    }
    discount, ids = jnp.where(last & ~goes_on, 0.0, 1.0), jnp.zeros(mask.shape, jnp.int32)
    return Record(ids, ids, reward, discount, None, last, mask, extras=extras)


def in_one_row():
    score = [sum(each) for each in REWARD]
    numbers = {"turn": TURN, "reward": REWARD, "group": GROUP, "score": score}
    return record([0] * 4, np.ones((4, 4)), **numbers)


def in_two_rows():
    """The same answers, with the tokens of each turn in a row of its own."""
    parts = [(n, turn, np.equal(TURN[n], turn)) for n in range(4) for turn in (0, 1)]
    return record(
        [turn for _, turn, _ in parts],
        [own for _, _, own in parts],
        turn=[np.where(own, TURN[n], 0) for n, _, own in parts],
        reward=[np.where(own, REWARD[n], 0.0) for n, _, own in parts],
        group=[GROUP[n] for n, _, _ in parts],
        score=[sum(REWARD[n]) for n, _, _ in parts],
    )


def joined(by_row):
    """Values of the rows of :func:`in_two_rows`, in the order of one row an answer."""
    return np.asarray(by_row).reshape(4, 2, 4).sum(1)


def credit(batch, value=None, **fields):
    """The advantages and metrics of a batch; its model has had 7 updates."""
    config = policy_gradient.Config(**fields)
    state = SimpleNamespace(config=config, critic=None, updates=jnp.asarray(7, jnp.int32))
    if value is not None:
        return token_credit.critic_advantages(config, batch, batch.reward, value, batch.mask)
    before = {"model": jnp.zeros(batch.mask.shape), "reference": jnp.zeros(batch.mask.shape)}
    ids = jnp.zeros((len(batch.mask), 5), jnp.int32)
    advantage, _, metrics = token_credit.token_advantages(state, batch, ids, batch.mask, before)
    return advantage, metrics


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"baseline": "leave-one-out", "scale": "none"},
        {"scale": "batch"},
        {"scale": "whiten"},
        {"turns": 2},
        {"turns": 2, "gamma": 0.5, "baseline": "leave-one-out"},
        {"scale": "tokens"},
    ],
)
def test_advantages_of_an_answer_do_not_depend_on_its_contexts(fields):
    """Each group's mean, deviation and return count the answer once, with all its rewards."""
    whole, metrics = credit(in_one_row(), **fields)
    parts, others = credit(in_two_rows(), **fields)
    np.testing.assert_allclose(joined(parts), whole, rtol=1e-5, atol=1e-6)
    assert float(metrics["data/score"]) == pytest.approx(2.0)
    for name in ("data/score", "data/flat", "data/staleness"):
        np.testing.assert_allclose(others[name], metrics[name], rtol=1e-6)
    assert float(metrics["data/staleness"]) == 3.0


def test_terms_of_an_answer_are_normalised_once_whatever_its_contexts():
    terms = jnp.asarray(
        [
            [[1.0, 2.0], [0.0, 1.0]],
            [[0.0, 2.0], [5.0, 0.0]],
            [[3.0, 2.0], [1.0, 1.0]],
            [[1.0, 2.0], [4.0, 1.0]],
        ]
    )
    one, two = in_one_row(), in_two_rows()
    one.extras["part"], two.extras["part"] = terms, jnp.repeat(terms, 2, 0)
    whole, metrics = credit(one)
    parts, others = credit(two)
    np.testing.assert_allclose(joined(parts), whole, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(others["data/flat"], metrics["data/flat"])


def test_flat_groups_are_counted_by_answers_not_by_rows():
    """Of three answers one alone has two rows, and its group has equal scores."""
    batch = in_two_rows()
    some = [0, 1, 2, 4, 6]  # both rows of the first answer, the first rows of the others
    batch = dataclasses.replace(
        batch,
        mask=batch.mask[jnp.asarray(some)],
        extras={name: x[jnp.asarray(some)] for name, x in batch.extras.items()},
    )
    batch.extras["score"] = jnp.asarray([1.0, 1.0, 1.0, 0.0, 2.0])
    assert float(token_credit.uniform_group_share(batch)) == pytest.approx(2 / 4)


def test_overlong_penalty_of_an_answer_is_that_of_its_longest_turn_in_all_rows():
    fields = {"overlong": 3, "limit": 4, "scale": "none"}
    parts, _ = credit(in_two_rows(), **fields)
    longest = np.array([2, 3, 3, 2])  # tokens of each answer's longest turn; 1 is free
    score = np.array([sum(each) for each in REWARD]) - (longest - 1) / 3
    expected = score - np.repeat(score.reshape(2, 2).mean(1), 2)
    np.testing.assert_allclose(joined(parts), np.repeat(expected[:, None], 4, 1), rtol=1e-5)


def test_critic_continues_into_the_next_context_with_its_first_value():
    """GAE of each row by a loop; after an answer's first row comes the value of its second."""
    batch, gamma, lam = in_two_rows(), 0.9, 0.7
    value = jnp.asarray(np.random.default_rng(0).normal(size=(8, 4)), jnp.float32)
    found, _ = credit(batch, value, baseline="critic", gamma=gamma, lam=lam)
    expected = np.zeros((8, 4))
    own = [np.flatnonzero(each) for each in batch.mask]
    for row in range(8):
        after = float(value[row + 1, own[row + 1][0]]) if row % 2 == 0 else 0.0
        advantage = 0.0
        for step in own[row][::-1]:
            delta = float(batch.reward[row, step]) + gamma * after - float(value[row, step])
            advantage = delta + gamma * lam * advantage
            expected[row, step], after = advantage, float(value[row, step])
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)
