"""One update of a language model from the middle of a run: structure preserved, and equal to its
oracle, in plain NumPy; scenes that failed hold garbage."""

import json

import jax
import jax.numpy as jnp
import language_updates
import mid_run
import numpy as np
import pytest
import updates

from sterling import algorithms
from sterling.types import Signals

# DPO's other losses are held by their formulas in tests/algorithms/test_dpo.py; the dual clip, k2
# and averages of prompts in tests/equations
FURTHER = ("dpo ipo", "dpo hinge", "dpo kto", "dpo orpo", "dpo simpo", "grpo dual",
           "gkd forward", "gkd between")  # fmt: skip
LABELS = [
    pytest.param(label, marks=pytest.mark.slow if label in FURTHER else ())
    for label in language_updates.UPDATES
]


def close(found, wanted, what):
    """Equal up to float32's rounding."""
    np.testing.assert_allclose(found, wanted, rtol=2e-5, atol=5e-6, err_msg=what)


def test_every_language_algorithm_has_an_oracle():
    names = {"sft", "dpo", "gkd", "reward", *algorithms.GRADIENT_PRESETS}
    quick = [label for label in language_updates.UPDATES if label not in FURTHER]
    assert {label.split()[0] for label in quick} == names


@pytest.mark.parametrize("label", LABELS)
def test_language_update_equals_its_numpy_oracle(label):
    """All that is asked of an update in one test, so that one process compiles it."""
    found = []
    for check in CHECKS:
        try:
            check(label)
        except AssertionError as error:
            found.append(f"{check.__name__}: {error}")
    assert not found, "\n\n".join(found)


def every_number_equals_the_oracle(label):
    after, signals = language_updates.learned(label)
    state, metrics, samples = language_updates.expected(label)
    found = mid_run.leaves_of(after)
    assert list(found) == list(state)
    for path, leaf in found.items():
        close(leaf, state[path], path)
    assert set(signals.metrics) == set(metrics)
    for name, value in signals.metrics.items():
        close(np.asarray(value), metrics[name], name)
    assert set(signals.samples) == set(samples)
    for name, value in signals.samples.items():
        close(np.asarray(value), samples[name], name)


def an_update_gives_the_golden_numbers(label):
    """The oracle's numbers as they were committed: both writings may not change together."""
    after, signals = language_updates.learned(label)
    expected = json.loads(language_updates.GOLDEN.read_text())[label]
    found = updates.numbers(mid_run.leaves_of(after), signals.metrics)
    assert set(found) == set(expected)
    for name, value in expected.items():
        # processors differ in the last digits (AVX2 and AVX-512 sum in other orders)
        np.testing.assert_allclose(found[name], value, rtol=2e-5, atol=5e-6, err_msg=name)


def shapes_are_preserved_and_failed_rows_teach_nothing(label):
    before, (after, signals) = language_updates.before(label), language_updates.learned(label)
    assert isinstance(signals, Signals)
    assert jax.tree.structure(before) == jax.tree.structure(after)
    for old, new in zip(jax.tree.leaves(before), jax.tree.leaves(after), strict=True):
        assert (jnp.shape(old), jnp.asarray(old).dtype) == (new.shape, new.dtype)
    other, _ = language_updates.learned(label, -20.0)
    for one, two in zip(jax.tree.leaves(after), jax.tree.leaves(other), strict=True):
        np.testing.assert_array_equal(one, two)


CHECKS = (
    every_number_equals_the_oracle,
    an_update_gives_the_golden_numbers,
    shapes_are_preserved_and_failed_rows_teach_nothing,
)
