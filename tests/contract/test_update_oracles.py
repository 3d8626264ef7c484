"""One update from the middle of a run: structure preserved, and the numbers of a second writing in
plain NumPy (oracles/) met, leaf by leaf; rows without a mask hold garbage."""

import json

import jax
import mid_run
import numpy as np
import pytest
import updates
from cases import CASES

LABELS = {  # of each algorithm's updates in make test; updates.FURTHER are slow tests
    name: [u.label for u in updates.UPDATES if u.name == name and u.label not in updates.FURTHER]
    for name in CASES
}


def test_every_algorithm_has_a_numpy_oracle():
    assert {update.name for update in updates.UPDATES} == set(CASES)
    assert all(LABELS.values()), "every algorithm has an update in make test"
    assert set(updates.FURTHER) <= set(updates.BY_LABEL)


@pytest.mark.parametrize("name", LABELS)
def test_its_updates_equal_their_oracles(name):
    """All of an algorithm in one test, so that one process compiles them."""
    found = {label: faults(label) for label in LABELS[name]}
    assert not any(found.values()), "\n\n".join(text for each in found.values() for text in each)


@pytest.mark.slow
@pytest.mark.parametrize("label", updates.FURTHER)
def test_further_updates_equal_their_oracles(label):
    found = faults(label)
    assert not found, "\n\n".join(found)


def faults(label):
    """Return what is wrong with an update, by the names of the checks below."""
    found = []
    for check in CHECKS:
        try:
            check(label)
        except AssertionError as error:
            found.append(f"{label}: {check.__name__}: {error}")
    return found


def close(found, wanted, what):
    """Equal up to float32's rounding."""
    scale = max(1.0, float(np.abs(wanted).max(initial=0.0)))
    np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=2e-6 * scale, err_msg=what)


def an_update_preserves_structure_shapes_and_dtypes(label):
    before, after, _ = updates.learned(label)
    assert jax.tree.structure(before) == jax.tree.structure(after)
    described = [jax.tree.map(lambda x: (x.shape, x.dtype), tree) for tree in (before, after)]
    assert described[0] == described[1]


def every_leaf_equals_the_oracle(label):
    _, after, _ = updates.learned(label)
    found, state = mid_run.leaves_of(after), updates.expected(label)[0]
    assert list(found) == list(state)
    for path, leaf in found.items():
        close(leaf, state[path], path)


def metrics_and_samples_equal_the_oracle(label):
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


def a_rollout_is_scored_without_being_learned_from(label):
    """By the oracle's advantages, which are in the units of rewards after the update: compared
    where these stay as they are."""
    update = updates.BY_LABEL[label]
    if not hasattr(update.module, "advantage"):
        return
    found = jax.jit(update.module.advantage)(update.before, update.batch())
    assert found.shape == update.batch().mask.shape
    if not update.config.normalise_reward:
        mask = np.asarray(update.batch().mask)
        wanted = updates.expected(label)[2]["advantage"]
        close(np.asarray(found)[mask], wanted[mask], "advantage")


def an_update_gives_the_golden_numbers(label):
    """The oracle's numbers as they were committed: both writings may not change together."""
    _, after, signals = updates.learned(label)
    expected = json.loads(updates.GOLDEN.read_text())[label]
    found = updates.numbers(mid_run.leaves_of(after), signals.metrics)
    assert set(found) == set(expected)
    for key, value in expected.items():
        # processors differ in the last digits (AVX2 and AVX-512 sum in other orders)
        np.testing.assert_allclose(found[key], value, rtol=2e-5, atol=2e-6, err_msg=key)


def masked_rows_do_not_teach(label):
    """Other garbage in rows without a mask changes nothing."""
    _, one, _ = updates.learned(label)
    _, other, _ = updates.learned(label, -20.0)
    for first, second in zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True):
        np.testing.assert_allclose(first, second, rtol=1e-5, atol=1e-6)


CHECKS = (
    an_update_preserves_structure_shapes_and_dtypes,
    every_leaf_equals_the_oracle,
    metrics_and_samples_equal_the_oracle,
    a_rollout_is_scored_without_being_learned_from,
    an_update_gives_the_golden_numbers,
    masked_rows_do_not_teach,
)
