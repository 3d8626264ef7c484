"""SimBa v2: bounds of the policy, the scale of returns, the feeds that it asks for."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium import spaces

from sterling.algorithms.continuous import simba_v2
from sterling.needs.feed import FRESH
from sterling.nets.optimiser import falling_lr
from sterling.nets.running_statistics import ReturnScale
from sterling.types import Spec

OBS, BOX = spaces.Box(-np.inf, np.inf, (3,), np.float32), spaces.Box(-1.0, 1.0, (2,), np.float32)
SPEC = Spec(OBS, BOX, 4, 100)


def fresh(**fields):
    config = simba_v2.Config(width=8, critic_width=8, critic_blocks=1, atoms=5, **fields)
    return simba_v2.init(jax.random.key(0), SPEC, config)


def test_log_deviations_are_squashed_between_minus_10_and_2():
    state = fresh()
    for bias, wanted in ((-50.0, -10.0), (0.0, None), (50.0, 2.0)):
        far = eqx.tree_at(lambda s: s.actor.net.layers[-1].bias, state, jnp.full(2, bias))
        found = far.actor(jnp.zeros((1, 3)), jnp.zeros((1, 3))).normal.log_std
        if wanted is not None:
            np.testing.assert_allclose(found, jnp.full((1, 2), wanted), rtol=1e-5)
        else:
            assert np.all((found > -10.0) & (found < 2.0))


@pytest.mark.parametrize("sign", [1.0, -1.0])  # costs have a size as well
def test_scaled_returns_have_deviation_1_and_never_leave_the_atoms(sign):
    reward, none = jnp.full((50, 2), 3.0 * sign), jnp.zeros((50, 2), bool)
    last = none.at[24].set(True)
    scale = ReturnScale.create(2).update(reward, last, ~none, 0.9)
    returns = 3.0 * (1.0 - 0.9 ** np.arange(1, 26)) / 0.1
    np.testing.assert_allclose(scale.largest, returns[-1], rtol=1e-5)
    np.testing.assert_allclose(scale.divisor(1e6), returns.std(), rtol=1e-4)
    np.testing.assert_allclose(scale.divisor(2.0), returns[-1] / 2.0, rtol=1e-5)
    np.testing.assert_array_equal(ReturnScale.create(2, False).divisor(2.0), 1.0)


def test_values_are_in_the_environments_units():
    state = fresh()
    grown = eqx.tree_at(lambda s: s.returns.largest, state, jnp.asarray(500.0))
    obs = jnp.ones((4, 3))
    found, small = (jax.jit(simba_v2.value)(each, obs) for each in (grown, state))
    np.testing.assert_allclose(found, 100.0 * small, rtol=1e-5)


def test_only_normalised_rewards_need_fresh_rows():
    assert simba_v2.needs(simba_v2.Config()).has_feed(FRESH)
    assert not simba_v2.needs(simba_v2.Config(normalise_reward=False)).has_feed(FRESH)


@pytest.mark.parametrize(("updates", "wanted"), [(0, 2.0), (50, 1.5), (100, 1.0), (900, 1.0)])
def test_step_sizes_fall_in_a_line(updates, wanted):
    found = falling_lr(2.0, 0.5, jnp.asarray(updates), jnp.asarray(100.0))
    np.testing.assert_allclose(found, wanted)
