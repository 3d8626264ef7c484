"""How tokens are drawn from logits."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from sterling.language.models.token_sampling import Sampling, draw_tokens, log_probs
from sterling.types import Mistake


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


def test_invalid_top_p_is_refused():
    with pytest.raises(Mistake, match="top_p"):
        Sampling.for_rows(1, top_p=0.0)
