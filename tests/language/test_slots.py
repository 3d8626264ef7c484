"""Answers written in slots against the plain way: the whole sequence again for every token."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from sterling.language.engine import slots
from sterling.language.engine.ask import Ask, chance_of
from sterling.language.engine.local_sampler import LocalSampler
from sterling.language.engine.slots import SlotShapes
from sterling.language.models.causal_lm import LanguageModel, qwen3_form, tiny, with_remat
from sterling.language.models.length_rounding import round_up_length
from sterling.types import Mistake

VOCABULARY, STOPS, LIMIT = 12, (2, 5, 8), 9
SHAPES = SlotShapes(3, 48, LIMIT, STOPS)


def make(scale=8.0):
    """Sharp enough that every token depends on those before it."""

    def create(key):
        return LanguageModel.create(key, VOCABULARY, 16, qwen3_form(16, 2, 1), 2)

    model = jax.jit(create)(jax.random.key(4))
    return LanguageModel(model.embedding * scale, model.stack, model.head)


def prompts():
    """Shorter than a chunk that is read at once, as long as one, and longer than two."""
    assert SHAPES.chunk == 16
    ids = np.random.default_rng(0).integers(3, VOCABULARY, 39)
    return [tuple(ids[:length].tolist()) for length in (1, 2, 5, 15, 16, 17, 32, 33, 39)]


def answers(model, temperature=1.0, shapes=SHAPES, **how):
    stacked = jax.tree.map(lambda x: x[None], model)
    sampler = LocalSampler(slots.for_decoding(stacked, 0), shapes)
    asks = [
        Ask(ids, chance_of((0, 1), (row,), ids), LIMIT, temperature, **how)
        for row, ids in enumerate(prompts())
    ]
    found = [each.result() for each in sampler.ask(asks)]
    sampler.close()
    return found


def padded(ids):
    return jnp.asarray([list(ids) + [0] * (48 - len(ids))], jnp.int32)  # what comes later is unseen


@pytest.mark.slow
def test_greedy_answers_equal_those_without_a_cache():
    model = make()
    likeliest = jax.jit(lambda ids: jnp.argmax(model(ids)[0], -1))
    for ids, said in zip(prompts(), answers(model, 0.0), strict=True):
        seen = list(ids)
        for token in said.ids:
            assert int(likeliest(padded(seen))[len(seen) - 1]) == token
            seen.append(token)
        assert said.stopped == (seen[-1] in STOPS)
        assert said.stopped or len(said.ids) == LIMIT
        assert set(said.log_prob) == {0.0}


def test_log_probs_of_answers_equal_the_learners():
    model = make(3.0)
    found = answers(model, 0.7)
    learners = jax.jit(lambda ids: model.log_prob(ids, 0.7))
    for ids, said in zip(prompts(), found, strict=True):
        begin, end = len(ids), len(ids) + len(said.ids)
        log_prob, entropy = learners(padded([*ids, *said.ids]))
        np.testing.assert_allclose(
            log_prob[0, begin - 1 : end - 1], said.log_prob, rtol=1e-4, atol=1e-5
        )
        assert (entropy >= 0.0).all()
    assert len({len(said.ids) for said in found}) > 2  # some are done before others


def test_answers_with_cuts_keep_to_the_likeliest_tokens():
    model = make(3.0)
    shapes = SlotShapes(3, 48, LIMIT, STOPS, has_cuts=True)
    order = jax.jit(lambda ids: jnp.argsort(-model(ids)[0], -1))
    for ids, said in zip(prompts(), answers(model, shapes=shapes, top_k=2), strict=True):
        whole = [*ids, *said.ids]
        likeliest = np.asarray(order(padded(whole)))[:, :2]
        for at in range(len(ids), len(whole)):
            assert whole[at] in likeliest[at - 1]
    assert answers(model, shapes=shapes, top_k=1) != answers(model, shapes=shapes, top_k=2)


def test_slots_read_long_prompts_in_few_larger_chunks():
    sizes = {length: SlotShapes(1, length, 1, ()) for length in (9, 128, 256, 1000, 10_000)}
    assert [each.chunk for each in sizes.values()] == [16, 16, 32, 128, 256]
    assert [each.prompts for each in sizes.values()] == [16, 16, 8, 2, 1]
    assert all(each.room % each.chunk == 0 and each.room >= n for n, each in sizes.items())


@pytest.mark.slow
def test_token_log_probs_in_chunks_equal_those_at_once(monkeypatch):
    model = make()
    ids = jax.random.randint(jax.random.key(0), (7, 6), 3, VOCABULARY, jnp.int32)

    def total(model):
        return jnp.sum(model.log_prob(ids)[0]), model.log_prob(ids)

    whole = jax.grad(lambda m: total(m)[0])(model), total(model)[1]
    monkeypatch.setattr("sterling.language.models.causal_lm.LOGITS_AT_ONCE", 5 * VOCABULARY)
    monkeypatch.setattr("sterling.language.models.causal_lm.LEAST_ROWS", 1)
    cut = jax.grad(lambda m: total(with_remat(m))[0])(model), total(model)[1]
    for one, other in zip(jax.tree.leaves(whole), jax.tree.leaves(cut), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5)


def test_rounded_lengths_are_few_and_large_enough():
    sizes = [round_up_length(n) for n in range(1, 2049)]
    assert all(size >= n for n, size in enumerate(sizes, 1))
    assert all(size <= 1.5 * n for n, size in enumerate(sizes, 1) if n > 8)
    assert sorted(set(sizes))[:6] == [8, 12, 16, 24, 32, 48]


def test_unknown_model_size_is_refused():
    with pytest.raises(Mistake, match="nano, tiny, small"):
        tiny(10, "huge")
