"""Lines in packs are read as they would be alone, and in fewer tokens."""

import functools
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from sterling.algorithms.language import gradient_accumulation
from sterling.language.models.causal_lm import LanguageModel, qwen3_form
from sterling.language.models.sequence_packing import PackedBatch

VOCABULARY, TIME = 7, 20


@functools.cache
def made_model():
    create = jax.jit(lambda key: LanguageModel.create(key, VOCABULARY, 16, qwen3_form(16, 2, 1), 2))
    with jax.ensure_compile_time_eval():  # programs may ask for it while they are traced
        return create(jax.random.key(0))


def batch(seed, prompts=6, group=5):
    """Lines of groups that answer one prompt in turns; some are alike, some have no tokens."""
    random = np.random.default_rng(seed)
    ids = random.integers(VOCABULARY, size=(prompts * group, TIME)).astype(np.int32)
    mask = np.zeros((prompts * group, TIME - 1), bool)
    for number in range(prompts):
        begin, rows = random.integers(1, 10), slice(number * group, (number + 1) * group)
        ids[rows, :begin] = ids[number * group, :begin]
        for row in range(rows.start, rows.stop):
            mask[row, begin - 1 : random.integers(begin, TIME)] = True
            mask[row, begin + 2 : begin + 4] = mask[row, -1]  # not all that follows is its own
    ids[1], mask[1] = ids[0], mask[0]
    mask[random.integers(len(mask), size=3)] = False
    return jnp.asarray(ids), jnp.asarray(mask)


@jax.jit
def plain(ids, mask):
    def loss(model):
        log_prob, entropy = model.log_prob(ids, 0.7)
        return jnp.sum(jnp.where(mask, log_prob * log_prob + entropy, 0.0))

    return jax.value_and_grad(loss)(made_model())


@partial(jax.jit, static_argnums=(2, 3))
def packed(ids, mask, piece, unit):
    def loss(model, lines, rows):
        log_prob, entropy = lines.log_prob(model, 0.7)
        total = jnp.sum(jnp.where(rows, log_prob * log_prob + entropy, 0.0).ravel())
        return total, {"loss": total}

    def flat(model, lines, rows):
        return loss(model, lines, rows.reshape(-1, TIME - 1))

    rows = mask.reshape(-1, unit, TIME - 1)
    return gradient_accumulation.summed_gradient(made_model(), flat, (ids, mask), rows, piece)


@pytest.mark.parametrize(
    ("piece", "unit"),
    [
        *((0, 1), (4, 1), (3, 2)),
        *(
            pytest.param(*case, marks=pytest.mark.slow)
            for case in ((1, 1), (7, 1), (100, 1), (4, 5))
        ),
    ],
)
def test_packed_sequence_gradients_equal_row_gradients(piece, unit):
    for seed in range(3):
        ids, mask = batch(seed)
        expected, grads = plain(ids, mask)
        found, told = packed(ids, mask, piece, unit)
        np.testing.assert_allclose(told["loss"], expected, rtol=1e-5)
        for one, other in zip(jax.tree.leaves(found), jax.tree.leaves(grads), strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize(
    "seed", [0, *(pytest.param(seed, marks=pytest.mark.slow) for seed in (1, 2))]
)
def test_packed_sequence_log_probs_equal_row_log_probs(seed):
    ids, mask = batch(seed)
    model = made_model()
    found = jax.jit(lambda: gradient_accumulation.token_log_probs(model, (ids, mask), 0.7, 4))()
    expected = jax.jit(lambda: model.log_prob(ids, 0.7)[0])()
    np.testing.assert_allclose(found[mask], expected[mask], rtol=1e-5, atol=1e-5)


def test_packed_sequences_share_a_common_prompt_prefix():
    """Of eight lines of 18 tokens, 16 of them the prompt's: the others repeat its last token."""
    random = np.random.default_rng(0)
    ids = random.integers(VOCABULARY, size=(8, TIME)).astype(np.int32)
    ids[:, :16] = ids[0, :16]
    ids[:, 16] = [0, 1, 2, 3, 4, 5, 6, 6]
    own = (np.arange(1, TIME) >= 16) & (np.arange(1, TIME) < 18)
    mask = jnp.broadcast_to(jnp.asarray(own), (8, TIME - 1))
    packs = PackedBatch.from_lines(jnp.asarray(ids), mask, 4, 1)
    assert packs.sizes == (1, 4 * TIME, 1)
    assert packs.pieces == 1
    place = packs.read(jnp.asarray(0, jnp.int32)).place
    assert np.unique(place[place < 4 * TIME]).size == 18 + 7 * 3


def test_fully_masked_lines_are_not_packed():
    ids, mask = batch(0)
    assert PackedBatch.from_lines(ids, jnp.zeros_like(mask), 4, 1).pieces == 0
    grads, told = packed(ids, jnp.zeros_like(mask), 4, 1)
    assert told["loss"] == 0.0
    assert not any(leaf.any() for leaf in jax.tree.leaves(grads))
