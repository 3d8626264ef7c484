"""Values of several choices against tables of all joint actions, worked out in NumPy."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np

from sterling.equations.factored_values import dueling_choices, max_q, q_of_choices, split_choices
from sterling.equations.soft_values import soft_value_choices

SIZES = (3, 2, 4)
Q = np.random.default_rng(0).normal(size=(5, sum(SIZES))).astype(np.float32)
JOINT = list(itertools.product(*map(range, SIZES)))
STARTS = (0, 3, 5)


def joint(q):
    """Q(s, a) of every joint action, ``(batch, joint)``."""
    columns = [np.mean([q[:, at + a] for at, a in zip(STARTS, x, strict=True)], 0) for x in JOINT]
    return np.stack(columns, 1)


def test_factored_max_q_is_the_best_of_each_choice():
    np.testing.assert_allclose(max_q(jnp.asarray(Q), SIZES), joint(Q).max(1), rtol=1e-6)


def test_factored_q_of_choices_equals_the_joint_action_table():
    for at, action in enumerate(JOINT):
        rows = jnp.broadcast_to(jnp.asarray(action, jnp.int32), (5, 3))
        found = q_of_choices(jnp.asarray(Q), rows, SIZES)
        np.testing.assert_allclose(found, joint(Q)[:, at], rtol=1e-5, atol=1e-6)


def test_factored_soft_value_is_the_expectation_over_joint_actions():
    logits = np.random.default_rng(1).normal(size=Q.shape).astype(np.float32)
    alpha = 0.3
    parts = [np.exp(x) / np.exp(x).sum(1, keepdims=True) for x in np.split(logits, STARTS[1:], 1)]
    pi = np.stack([np.prod([p[:, a] for p, a in zip(parts, x, strict=True)], 0) for x in JOINT], 1)
    expected = (pi * (joint(Q) - alpha * np.log(pi))).sum(1)
    log_prob = [jax.nn.log_softmax(x) for x in split_choices(jnp.asarray(logits), SIZES)]
    found = soft_value_choices(split_choices(jnp.asarray(Q), SIZES), log_prob, alpha)
    np.testing.assert_allclose(found, expected, rtol=1e-5)


def test_factored_dueling_advantages_of_each_choice_have_mean_zero():
    value = jnp.arange(5.0)[:, None]
    found = np.asarray(dueling_choices(value, jnp.asarray(Q), SIZES))
    for part in np.split(found, STARTS[1:], 1):
        np.testing.assert_allclose(part.mean(1), np.arange(5.0), atol=1e-5)
