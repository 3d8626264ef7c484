"""Answers written in slots against the plain way: the whole sequence again for every token."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from sterling.language.models.causal_lm import LanguageModel, qwen3_form, tiny, with_remat
from sterling.language.models.generation import Prompts, generate, round_up_length
from sterling.language.models.token_sampling import Sampling, draw_tokens, log_probs
from sterling.types import Mistake

VOCABULARY, STOPS = 12, (2, 5, 8)


def make(scale=8.0):
    """Sharp enough that every token depends on those before it."""

    def create(key):
        return LanguageModel.create(key, VOCABULARY, 16, qwen3_form(16, 2, 1), 2)

    model = jax.jit(create)(jax.random.key(4))
    return LanguageModel(model.embedding * scale, model.stack, model.head)


def prompts(rows=7, room=6):
    ids = jax.random.randint(jax.random.key(0), (rows, room), 3, VOCABULARY, jnp.int32)
    lengths = jnp.asarray(np.arange(rows) % room + 1, jnp.int32)
    return jnp.where(jnp.arange(room)[None] < lengths[:, None], ids, 0), lengths


def answer(model, slots, temperature=1.0, total=7, limit=9, **cuts):
    ids, lengths = prompts()
    sampling = Sampling.for_rows(7, temperature, **cuts)
    number = jnp.arange(7, dtype=jnp.int32)
    asked = Prompts(ids, lengths, jnp.asarray(total), number, sampling, limit, slots, STOPS)
    return generate(model, asked, jax.random.key(3))


@pytest.mark.slow
def test_greedy_generation_equals_uncached_decoding():
    model = make()
    found, (ids, lengths) = answer(model, 7, 0.0), prompts()
    likeliest = jax.jit(lambda ids: jnp.argmax(model(ids[None])[0], -1))
    for row in range(7):
        seen = list(np.asarray(ids[row, : int(lengths[row])]))
        for place in range(int(found.length[row])):
            padded = jnp.asarray(seen + [0] * (24 - len(seen)))  # what comes later is not seen
            token = int(likeliest(padded)[len(seen) - 1])
            assert token == found.ids[row, place]
            seen.append(token)
        assert bool(found.stopped[row]) == (seen[-1] in STOPS)
        assert found.stopped[row] or found.length[row] == 9
    np.testing.assert_array_equal(found.log_prob, 0.0)


@pytest.mark.parametrize(
    "slots", [1, 3, *(pytest.param(count, marks=pytest.mark.slow) for count in (2, 5))]
)
def test_generation_is_independent_of_the_number_of_slots(slots):
    model = make(1.0)
    alone, shared = answer(model, 7), answer(model, slots)
    for one, other in zip(jax.tree.leaves(alone), jax.tree.leaves(shared), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5)
    assert len(set(np.asarray(alone.length))) > 2  # some rows were done before others


def test_generation_log_probs_equal_the_learners():
    model = make(3.0)
    found, (ids, lengths) = answer(model, 3, 0.7), prompts()
    learners = jax.jit(lambda ids: model.log_prob(ids, 0.7))
    for row in range(7):
        begin, end = int(lengths[row]), int(lengths[row]) + int(found.length[row])
        whole = np.concatenate([ids[row, :begin], found.ids[row]])[:end]
        padded = jnp.asarray(np.pad(whole, (0, 24 - end)))  # what comes later is not seen
        log_prob, entropy = learners(padded[None])
        np.testing.assert_allclose(
            *(log_prob[0, begin - 1 : end - 1], found.log_prob[row, : end - begin]),
            **{"rtol": 1e-4, "atol": 1e-5},
        )
        assert (entropy >= 0.0).all()


def test_generation_answers_only_the_given_number_of_prompts():
    found = answer(make(), 2, total=3)
    assert (found.length[:3] > 0).all()
    assert (found.length[3:] == 0).all()


def test_top_k_and_top_p_keep_the_likeliest_tokens_renormalised():
    scores = jnp.log(jnp.array([[0.1, 0.4, 0.2, 0.3]] * 3))
    two = np.asarray(jnp.exp(log_probs(scores, Sampling.for_rows(3, top_k=2))))
    np.testing.assert_allclose(two[0], [0.0, 4 / 7, 0.0, 3 / 7], rtol=1e-5)
    most = np.asarray(jnp.exp(log_probs(scores, Sampling.for_rows(3, top_p=0.8))))
    np.testing.assert_allclose(most[0], [0.0, 4 / 9, 2 / 9, 3 / 9], rtol=1e-5)
    both = np.asarray(jnp.exp(log_probs(scores, Sampling.for_rows(3, top_k=2, top_p=0.5))))
    np.testing.assert_allclose(both[0], [0.0, 1.0, 0.0, 0.0], rtol=1e-5)
    warm = np.asarray(jnp.exp(log_probs(scores, Sampling.for_rows(3, 2.0))))
    np.testing.assert_allclose(warm[0], np.sqrt([0.1, 0.4, 0.2, 0.3]) / 1.9436, rtol=1e-4)


@pytest.mark.parametrize(
    "size", [1, 103, *(pytest.param(size, marks=pytest.mark.slow) for size in (2, 17, 1000))]
)
def test_token_sampling_inverts_the_cumulative_distribution(size):
    """Found in pieces, against one long sum; no token without probability is ever drawn."""
    scores = 3.0 * jax.random.normal(jax.random.key(size), (50, size))
    chance = jax.random.uniform(jax.random.key(1), (50,)).at[0].set(0.0).at[1].set(1.0 - 2**-23)
    for cuts in ({}, {"top_k": 2}, {"top_p": 0.7}):
        sampling = Sampling.for_rows(50, 0.7, **cuts)
        token, log_prob = draw_tokens(scores, chance, sampling)
        expected = np.asarray(log_probs(scores, sampling), np.float64)
        below = np.cumsum(np.exp(expected), -1)
        shares = below / below[:, -1:]
        np.testing.assert_array_equal(token, (shares <= np.asarray(chance)[:, None]).sum(-1))
        chosen = np.take_along_axis(expected, np.asarray(token)[:, None], 1)[:, 0]
        np.testing.assert_allclose(log_prob, chosen, rtol=1e-5, atol=2e-5)


def test_tokens_are_drawn_by_their_probability():
    chances = np.array([0.05, 0.0, 0.5, 0.3, 0.15], np.float32)
    scores = jnp.broadcast_to(jnp.log(jnp.asarray(chances)), (20_000, 5))
    chance = jax.random.uniform(jax.random.key(1), (20_000,))
    token, log_prob = draw_tokens(scores, chance, Sampling.for_rows(20_000))
    found = np.bincount(np.asarray(token), minlength=5) / 20_000
    np.testing.assert_allclose(found, chances, atol=4 * 0.5 / 20_000**0.5)
    np.testing.assert_allclose(jnp.exp(log_prob), chances[np.asarray(token)], rtol=1e-5)


@pytest.mark.slow
def test_token_log_probs_in_chunks_equal_those_at_once(monkeypatch):
    model, ids = make(), prompts()[0]

    def total(model):
        return jnp.sum(model.log_prob(ids)[0]), model.log_prob(ids)

    whole = jax.grad(lambda m: total(m)[0])(model), total(model)[1]
    monkeypatch.setattr("sterling.language.models.causal_lm.LOGITS_AT_ONCE", 5 * VOCABULARY)
    cut = jax.grad(lambda m: total(with_remat(m))[0])(model), total(model)[1]
    for one, other in zip(jax.tree.leaves(whole), jax.tree.leaves(cut), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5)


def test_generation_length_buckets_are_few_and_large_enough():
    sizes = [round_up_length(n) for n in range(1, 2049)]
    assert all(size >= n for n, size in enumerate(sizes, 1))
    assert all(size <= 1.5 * n for n, size in enumerate(sizes, 1) if n > 8)
    assert sorted(set(sizes))[:6] == [8, 12, 16, 24, 32, 48]


def test_invalid_model_size_and_top_p_are_refused():
    with pytest.raises(Mistake, match="nano, tiny, small"):
        tiny(10, "huge")
    with pytest.raises(Mistake, match="top_p"):
        Sampling.for_rows(1, top_p=0.0)
