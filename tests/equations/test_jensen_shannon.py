"""The divergence between a teacher and a student equals its definition, and so does its slope."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from sterling.equations.jensen_shannon import jensen_shannon

RANDOM = np.random.default_rng(2)
TEACHER, STUDENT = RANDOM.normal(size=(2, 3, 5))  # logits


def log_softmax(logits):
    return logits - np.log(np.sum(np.exp(logits), -1, keepdims=True))


def kl(p, q):
    return np.sum(p * np.log(p / q), -1)


def by_definition(teacher, student, beta):
    t, s = np.exp(log_softmax(teacher)), np.exp(log_softmax(student))
    if beta in (0.0, 1.0):
        return kl(s, t) if beta else kl(t, s)
    mixed = beta * t + (1.0 - beta) * s
    return beta * kl(t, mixed) + (1.0 - beta) * kl(s, mixed)


def slopes(beta):
    """Central differences in the student's logits."""
    found = np.zeros_like(STUDENT)
    for place in np.ndindex(STUDENT.shape):
        step = np.zeros_like(STUDENT)
        step[place] = 1e-5
        ends = [by_definition(TEACHER, STUDENT + x, beta).sum() for x in (step, -step)]
        found[place] = (ends[0] - ends[1]) / 2e-5
    return found


@jax.jit
def found(teacher, student, beta):
    """The divergences, and the slopes of their sum in the logits of either."""

    def total(teacher, student):
        each = jensen_shannon(jax.nn.log_softmax(teacher), jax.nn.log_softmax(student), beta)
        return each.sum(), each

    (_, each), derived = jax.value_and_grad(total, (0, 1), has_aux=True)(teacher, student)
    return each, derived


@pytest.mark.parametrize("beta", [0.0, 0.1, 0.5, 1.0])
def test_jensen_shannon_divergence_and_its_slope_equal_their_definition(beta):
    arrays = jnp.asarray(TEACHER, jnp.float32), jnp.asarray(STUDENT, jnp.float32)
    each, (of_teacher, of_student) = found(*arrays, jnp.float32(beta))
    np.testing.assert_allclose(each, by_definition(TEACHER, STUDENT, beta), rtol=1e-5)
    np.testing.assert_allclose(of_student, slopes(beta), rtol=1e-4, atol=1e-6)
    np.testing.assert_array_equal(of_teacher, 0.0)  # the teacher is a constant


def test_jensen_shannon_divergence_of_very_unlike_distributions_is_finite():
    far = jax.nn.log_softmax(jnp.asarray([[200.0, 0.0], [0.0, 200.0]]))
    for beta in (0.0, 0.5, 1.0):
        each, derived = found(far[0], far[1], jnp.float32(beta))
        assert np.isfinite([each, *np.ravel(derived)]).all()
        assert each == pytest.approx(np.log(2.0) if beta == 0.5 else 200.0, rel=1e-5)
