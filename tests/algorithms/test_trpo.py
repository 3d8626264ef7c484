"""TRPO: the policy's step keeps its limit, for all kinds of actions."""

import dataclasses
import sys
from pathlib import Path

import jax
import numpy as np
import pytest
from gymnasium import spaces

sys.path.insert(0, str(Path(__file__).parents[1] / "contract"))
import mid_run
import updates

from sterling.algorithms.on_policy import trpo
from sterling.types import Rollouts, Spec

LENGTH = 6
SEVERAL = spaces.MultiDiscrete([3, 2])


@pytest.mark.parametrize("action", [SEVERAL, updates.BOX])
@pytest.mark.parametrize("limit", [0.01, 0.3])
def test_trpo_kl_after_a_step_is_positive_and_within_the_limit(action, limit):
    config = trpo.Config(
        width=6, length=LENGTH, minibatch=8, target_kl=limit, damping=1e-3, critic_epochs=1
    )
    spec = Spec(updates.OBS, action, mid_run.ENVS, iterations=10)
    state = trpo.init(jax.random.key(0), spec, config)
    batch = mid_run.make_batch(Rollouts(LENGTH), action is not SEVERAL, garbage=0.0)
    chosen, extras = trpo.act(state, batch.obs, jax.random.key(1), True)
    batch = dataclasses.replace(batch, action=chosen, extras=extras)
    after, signals = jax.jit(trpo.learn)(state, batch, jax.random.key(2))
    assert 0.2 * limit < float(signals.metrics["policy/kl"]) <= limit
    pi, moved = (each.nets for each in (state, after))
    old, new = (nets.distribution(nets.torso(batch.obs), None) for nets in (pi, moved))
    found = np.asarray(old.kl(new))[np.asarray(batch.mask)].mean()
    np.testing.assert_allclose(found, signals.metrics["policy/kl"], rtol=1e-3)
