"""Conjugate gradient against NumPy's solution; the line search's first accepted share; KL."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from sterling.equations.trust_region import backtracking, conjugate_gradient
from sterling.nets.distributions import Categorical, MultiCategorical, Normal


def test_conjugate_gradient_solves_a_positive_definite_system():
    rng = np.random.default_rng(0)
    root = rng.normal(size=(6, 6))
    matrix, target = root @ root.T + 2.0 * np.eye(6), rng.normal(size=6)
    found = conjugate_gradient(
        lambda x: jnp.asarray(matrix, jnp.float32) @ x, jnp.asarray(target, jnp.float32), 30
    )
    np.testing.assert_allclose(found, np.linalg.solve(matrix, target), rtol=1e-3, atol=1e-4)


def test_conjugate_gradient_of_zero_is_zero():
    np.testing.assert_array_equal(conjugate_gradient(lambda x: x, jnp.zeros(3), 5), np.zeros(3))


@pytest.mark.parametrize(
    ("most", "share"), [(2.0, 1.0), (0.5, 0.5), (0.3, 0.25), (0.125, 0.125), (0.1, 0.0)]
)
def test_line_search_takes_the_first_accepted_step(most, share):
    assert float(backtracking(lambda x: x <= most, 0.5, 4)) == share


def test_kl_of_normal_and_categorical_distributions_equals_numeric_integral():
    """Of normals by a fine sum over a line; of choices by the sum of p log(p / q)."""
    x, normal = np.linspace(-20.0, 20.0, 40001), lambda m, s: (m, np.log(s))
    (m, s), (n, t) = normal(0.3, 0.8), normal(-0.5, 1.7)
    one, other = (Normal(jnp.full(1, a), jnp.full(1, b)) for a, b in ((m, s), (n, t)))
    log_p, log_q = (
        -0.5 * ((x - a) / np.exp(b)) ** 2 - b - 0.5 * np.log(2 * np.pi) for a, b in ((m, s), (n, t))
    )
    wanted = np.sum(np.exp(log_p) * (log_p - log_q)) * (x[1] - x[0])
    np.testing.assert_allclose(one.kl(other), wanted, rtol=1e-4)
    p, q = np.array([0.2, 0.3, 0.5]), np.array([0.6, 0.3, 0.1])
    first, second = Categorical(jnp.log(jnp.asarray(p))), Categorical(jnp.log(jnp.asarray(q)))
    np.testing.assert_allclose(first.kl(second), np.sum(p * np.log(p / q)), rtol=1e-5)
    pair = MultiCategorical((first, first)).kl(MultiCategorical((second, first)))
    np.testing.assert_allclose(pair, np.sum(p * np.log(p / q)), rtol=1e-5)
    assert jax.grad(lambda z: first.kl(Categorical(z)))(first.logits).max() < 1e-6
