"""GDPO's advantages: each term of a reward normalised by itself, as its equations say."""

import jax.numpy as jnp
import numpy as np
import pytest

from sterling.equations.term_advantages import EPS, term_advantages

RNG = np.random.default_rng(0)
GROUP = np.array([0, 1, 0, 1, 2, 0, 2, 1, 0, 3])
VALID = np.array([True] * 8 + [False, True])
TERMS = np.stack([10.0 * RNG.integers(0, 2, 10), RNG.integers(0, 2, 10), RNG.normal(size=10)], 1)
WEIGHTS = np.tile([[1.0, 0.5, -2.0]], (10, 1))
WEIGHTS[[0, 3, 4], [2, 2, 1]] = 0.0  # these terms do not apply


def oracle(terms, weights):
    """Equations 4 to 7 of arXiv:2601.05242, row by row."""
    total = np.zeros(len(terms))
    for k in range(terms.shape[1]):
        for i in range(len(terms)):
            if not VALID[i] or weights[i, k] == 0.0:
                continue
            own = [
                terms[j, k]
                for j in range(len(terms))
                if GROUP[j] == GROUP[i] and VALID[j] and weights[j, k] != 0.0
            ]
            spread = np.std(own, ddof=1) if len(own) > 1 else 0.0
            alone = (terms[i, k] - np.mean(own)) / (spread + EPS if spread > 0.0 else 1.0)
            total[i] += weights[i, k] * alone
    mean, spread = total[VALID].mean(), total[VALID].std(ddof=1)
    return np.where(VALID, (total - mean) / (spread + EPS), 0.0)


def advantages(terms, weights=WEIGHTS):
    given = (jnp.asarray(x, jnp.float32) for x in (terms, weights))
    return np.asarray(
        term_advantages(*given, jnp.asarray(GROUP), jnp.asarray(VALID), ("mean", "group"))
    )


@pytest.mark.parametrize("weights", [WEIGHTS, np.ones_like(WEIGHTS)], ids=["some", "all"])
def test_term_advantages_equal_the_papers_equations(weights):
    np.testing.assert_allclose(advantages(TERMS, weights), oracle(TERMS, weights), atol=1e-5)


def test_scale_of_a_term_does_not_change_the_advantages():
    """So 0 or 10 for right counts as much as 0 or 1 for the format; a weight does change them."""
    scaled = advantages(TERMS * np.array([0.1, 100.0, 1.0]))
    np.testing.assert_allclose(scaled, advantages(TERMS), atol=2e-3)
    assert np.abs(advantages(TERMS, WEIGHTS * [0.1, 100.0, 1.0]) - scaled).max() > 0.1


def test_term_that_does_not_apply_enters_no_mean():
    other = TERMS.copy()
    other[[0, 3, 4], [2, 2, 1]] = 1e6
    other[8] = np.nan  # not valid
    np.testing.assert_array_equal(advantages(other), advantages(TERMS))


def test_advantages_of_terms_without_differences_are_zero():
    assert not advantages(np.full_like(TERMS, 0.3), np.ones_like(WEIGHTS)).any()
