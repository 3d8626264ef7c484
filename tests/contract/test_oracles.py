"""One update from the middle of a run equals a second writing of it in plain NumPy (oracles/)."""

import mid_run
import numpy as np
import pytest
import updates
from cases import CASES


def close(found, wanted, what):
    """Equal up to float32's rounding."""
    scale = max(1.0, float(np.abs(wanted).max(initial=0.0)))
    np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=2e-6 * scale, err_msg=what)


def test_every_algorithm_has_an_oracle():
    assert {update.name for update in updates.UPDATES} == set(CASES)


@pytest.mark.parametrize("label", updates.BY_LABEL)
def test_an_update_equals_its_oracle(label):
    _, after, signals = updates.learned(label)
    state, metrics, samples = updates.expected(label)
    found = mid_run.leaves_of(after)
    assert list(found) == list(state)
    for path, leaf in found.items():
        close(leaf, state[path], path)
    assert set(signals.metrics) == set(metrics)
    for name, value in signals.metrics.items():
        close(np.asarray(value), metrics[name], name)
    mask = np.asarray(updates.BY_LABEL[label].batch().mask)
    assert set(signals.samples) == set(samples)
    for name, value in signals.samples.items():
        rows = np.asarray(value)
        wanted = samples[name] if samples[name].shape == mask.shape else np.asarray(samples[name])
        close(rows[mask], wanted[mask] if wanted.shape == mask.shape else wanted, name)
