"""Observations centred and scaled by what is known of a log."""

import dataclasses

import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium import spaces

from sterling.nets.normalise import ObsNormaliser
from sterling.types import Log, Spec

PLAIN = Spec(spaces.Box(-np.inf, np.inf, (2,), np.float32), spaces.Discrete(2))
MEAN, STD = np.array([100.0, -2.0], np.float32), np.array([5.0, 0.5], np.float32)
LOGGED = dataclasses.replace(PLAIN, log=Log(MEAN, STD, (0.0, 1.0), (0.0, 1.0), 10))
FAR = jnp.asarray([[0.0, 500.0], [-500.0, 12.5]])


def test_without_a_log_everything_passes():
    """Positions from 0 to 500 stay apart."""
    np.testing.assert_array_equal(ObsNormaliser.of_log(PLAIN)(FAR), FAR)


def test_with_a_log_nothing_is_cut():
    found = ObsNormaliser.of_log(LOGGED)(FAR)
    np.testing.assert_allclose(found, (np.asarray(FAR) - MEAN) / (STD + 1e-3), rtol=1e-5)


def test_agents_of_both_kinds_have_one_form():
    """A run is loaded without its log."""
    one, other = (ObsNormaliser.of_log(spec) for spec in (PLAIN, LOGGED))
    assert jnp.asarray(one.moments[0].mean).shape == jnp.asarray(other.moments[0].mean).shape
    assert one.clip == other.clip


@pytest.mark.parametrize("spec", [PLAIN, LOGGED])
def test_what_is_not_asked_for_passes(spec):
    np.testing.assert_array_equal(ObsNormaliser.of_log(spec, enabled=False)(FAR), FAR)


def test_running_statistics_cut_at_ten_deviations():
    np.testing.assert_allclose(ObsNormaliser.create(PLAIN.obs)(FAR), np.clip(FAR, -10, 10))
