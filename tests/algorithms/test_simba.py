"""SimBa: bounds of the policy, its running statistics, its weight decay."""

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from gymnasium import spaces

from sterling.algorithms.continuous import simba
from sterling.types import Record, Spec

OBS, BOX = spaces.Box(-np.inf, np.inf, (3,), np.float32), spaces.Box(-1.0, 1.0, (2,), np.float32)
SPEC, ROWS = Spec(OBS, BOX, 4, 100), 40


def fresh(**fields):
    config = simba.Config(width=8, critic_width=8, critic_blocks=1, **fields)
    return simba.init(jax.random.key(0), SPEC, config)


def batch(seed):
    rng = np.random.default_rng(seed)
    obs = 100.0 + 7.0 * rng.normal(size=(2, ROWS, 3))
    ones = np.ones(ROWS)
    parts = (obs[0], np.tanh(rng.normal(size=(ROWS, 2))), ones, ones, obs[1])
    rows = [jnp.asarray(x, jnp.float32) for x in parts]
    return Record(*rows, jnp.zeros(ROWS, bool), jnp.ones(ROWS, bool))


def test_simba_log_std_lies_between_minus_10_and_2():
    state = fresh()
    for bias, bound in ((-50.0, -10.0), (50.0, 2.0)):
        far = eqx.tree_at(lambda s: s.actor.net.layers[-1].bias, state, jnp.full(4, bias))
        pi = far.actor(jnp.zeros((1, 3)), jnp.zeros((1, 3)))
        np.testing.assert_array_equal(pi.normal.log_std, jnp.full((1, 2), bound))


def test_simba_normalises_observations_by_all_replayed_ones():
    state, key = fresh(), jax.random.key(1)
    for seed in range(3):
        state, _ = simba.learn(state, batch(seed), key)
    every = np.concatenate([np.asarray(batch(seed).obs) for seed in range(3)])
    seen = state.normaliser(batch(0).obs)
    wanted = (np.asarray(batch(0).obs) - every.mean(0)) / every.std(0)
    np.testing.assert_allclose(seen, wanted, atol=2e-3)
    assert np.abs(np.asarray(state.normaliser(jnp.full((1, 3), 1e4)))).min() > 100  # no clipping


def test_simba_weight_decay_spares_the_temperature():
    """Where Adam has nothing to do: with gradients of 0 parameters shrink by lr * weight_decay."""
    state = fresh(lr=0.1, weight_decay=0.5)
    nothing = jax.tree.map(jnp.zeros_like, state.actor)
    found, _ = simba.decayed_step(state.actor, nothing, state.optimisers[1], state.config)
    for new, old in zip(jax.tree.leaves(found), jax.tree.leaves(state.actor), strict=True):
        np.testing.assert_allclose(new, 0.95 * old, rtol=1e-6)
    masked = dataclasses.replace(batch(0), mask=jnp.zeros(ROWS, bool))
    learned, _ = simba.learn(state, masked, jax.random.key(1))
    np.testing.assert_array_equal(learned.log_alpha, state.log_alpha)
