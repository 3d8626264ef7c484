"""FastTD3 and D4PG: sizes of exploration noise, and what they refuse. Their equations have oracles
(tests/contract/oracles/continuous/)."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium import spaces

from sterling.algorithms.continuous import d4pg, fast_td3
from sterling.algorithms.online import td3
from sterling.types import Mistake, Spec

BOX = spaces.Box(-1.0, 1.0, (2,), np.float32)
SPEC = Spec(spaces.Box(-np.inf, np.inf, (3,), np.float32), BOX)
ENVS = 100


@pytest.fixture(scope="module", name="state")
def _state():
    config = fast_td3.Config(width=4, critic_width=4, noise_min=0.05, noise_max=0.25)
    return jax.jit(lambda key: fast_td3.init(key, SPEC, config))(jax.random.key(0))


def test_sizes_of_noise_are_spread_evenly_between_the_bounds(state):
    """Between the 100 sizes and a uniform distribution lies less than a step of 1 / 50."""
    sizes = np.sort(np.asarray(fast_td3.noise_sizes(state, ENVS)))
    assert sizes[0] >= 0.05
    assert sizes[-1] <= 0.25
    even = 0.05 + 0.2 * (np.arange(ENVS) + 0.5) / ENVS
    assert np.abs(sizes - even).max() < 0.2 / 50


def test_each_env_keeps_its_own_size_of_noise(state):
    """The deviation of its actions over 400 steps is its size, to four standard errors; without
    exploration there is none."""
    actor = jax.tree.map(jnp.zeros_like, state.nets.actor)  # so that bounds cut off little
    still = fast_td3.State(**vars(state) | {"nets": td3.Nets(actor, state.nets.critics)})
    obs, keys = jnp.zeros((ENVS, 3)), jax.random.split(jax.random.key(1), 400)
    acted = jax.jit(jax.vmap(lambda key: fast_td3.act(still, obs, key, True)[0]))(keys)
    assert not np.any(fast_td3.act(still, obs, keys[0], False)[0])
    spread = np.sqrt(np.square(np.asarray(acted)).mean((0, 2)))
    sizes = np.asarray(fast_td3.noise_sizes(state, ENVS))
    np.testing.assert_allclose(spread, sizes, rtol=4.0 / np.sqrt(2 * 800))


def test_observations_are_normalised_wherever_they_are_read(state):
    """Acting and values do not change where observations and their statistics are scaled."""
    moments = state.normaliser.moments[0]
    scaled = type(moments)(moments.mean + 5.0, moments.variance * 9.0, moments.count)
    normaliser = type(state.normaliser)((scaled,), state.normaliser.clip)
    other = fast_td3.State(**vars(state) | {"normaliser": normaliser})
    obs, key = jax.random.normal(jax.random.key(2), (6, 3)), jax.random.key(3)
    far, action = 3.0 * obs + 5.0, jnp.full((6, 2), 0.5)
    for found, wanted in (
        (fast_td3.act(other, far, key, False)[0], fast_td3.act(state, obs, key, False)[0]),
        (fast_td3.value(other, far), fast_td3.value(state, obs)),
        (fast_td3.action_value(other, far, action), fast_td3.action_value(state, obs, action)),
    ):
        np.testing.assert_allclose(found, wanted, atol=2e-4)


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"noise_min": 0.5}, "noise_min=0.5 is above noise_max=0.4"),
        ({"v_min": 300.0}, "v_min=300 must be below v_max=250"),
        ({"atoms": 1}, "atoms=1 is no distribution"),
    ],
)
def test_intervals_that_are_none_are_refused(fields, words):
    with pytest.raises(Mistake, match=words):
        fast_td3.init(jax.random.key(0), SPEC, fast_td3.Config(**fields))


def test_d4pg_refuses_the_same_atoms():
    with pytest.raises(Mistake, match="v_min=150 must be below"):
        d4pg.init(jax.random.key(0), SPEC, d4pg.Config(v_min=150.0))
