"""One update from the middle of a run: structure preserved, and the numbers of a second writing in
plain NumPy (oracles/) met, leaf by leaf; rows without a mask hold garbage."""

import json

import jax
import mid_run
import numpy as np
import pytest
import updates
from cases import CASES


@pytest.fixture(scope="module", params=updates.BY_LABEL)
def label(request):
    """One update after the other, so that each is compiled once."""
    return request.param


def close(found, wanted, what):
    """Equal up to float32's rounding."""
    scale = max(1.0, float(np.abs(wanted).max(initial=0.0)))
    np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=2e-6 * scale, err_msg=what)


def test_every_algorithm_has_an_oracle():
    assert {update.name for update in updates.UPDATES} == set(CASES)


def test_an_update_preserves_structure_shapes_and_dtypes(label):
    before, after, _ = updates.learned(label)
    assert jax.tree.structure(before) == jax.tree.structure(after)
    described = [jax.tree.map(lambda x: (x.shape, x.dtype), tree) for tree in (before, after)]
    assert described[0] == described[1]


def test_every_leaf_equals_the_oracle(label):
    _, after, _ = updates.learned(label)
    found, state = mid_run.leaves_of(after), updates.expected(label)[0]
    assert list(found) == list(state)
    for path, leaf in found.items():
        close(leaf, state[path], path)


def test_metrics_and_samples_equal_the_oracle(label):
    _, _, signals = updates.learned(label)
    _, metrics, samples = updates.expected(label)
    assert set(signals.metrics) == set(metrics)
    for name, value in signals.metrics.items():
        close(np.asarray(value), metrics[name], name)
    mask = np.asarray(updates.BY_LABEL[label].batch().mask)
    assert set(signals.samples) == set(samples)
    for name, value in signals.samples.items():
        rows = mask if value.shape == mask.shape else ...  # else one number for each stretch
        whole = samples[name].shape == value.shape
        close(np.asarray(value)[rows], samples[name][rows] if whole else samples[name], name)


SCORED = [each for each in updates.UPDATES if hasattr(each.module, "advantage")]


@pytest.mark.parametrize("update", SCORED, ids=lambda update: update.label)
def test_a_rollout_is_scored_without_being_learned_from(update):
    """By the oracle's advantages, which are in the units of rewards after the update: compared
    where these stay as they are."""
    found = jax.jit(update.module.advantage)(update.before, update.batch())
    assert found.shape == update.batch().mask.shape
    if not update.config.normalise_reward:
        mask = np.asarray(update.batch().mask)
        wanted = updates.expected(update.label)[2]["advantage"]
        close(np.asarray(found)[mask], wanted[mask], "advantage")


def test_an_update_gives_the_golden_numbers(label):
    """The oracle's numbers as they were committed: both writings may not change together."""
    _, after, signals = updates.learned(label)
    expected = json.loads(updates.GOLDEN.read_text())[label]
    found = updates.numbers(mid_run.leaves_of(after), signals.metrics)
    assert set(found) == set(expected)
    for key, value in expected.items():
        # processors differ in the last digits (AVX2 and AVX-512 sum in other orders)
        np.testing.assert_allclose(found[key], value, rtol=2e-5, atol=2e-6, err_msg=key)


def test_masked_rows_do_not_teach(label):
    """Other garbage in rows without a mask changes nothing."""
    _, one, _ = updates.learned(label)
    _, other, _ = updates.learned(label, -20.0)
    for first, second in zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True):
        np.testing.assert_allclose(first, second, rtol=1e-5, atol=1e-6)
