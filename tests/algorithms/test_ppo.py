"""PPO: every row once an epoch, whatever the minibatches; pads teach nothing; normalisers."""

import dataclasses
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from constants import constant_key
from gymnasium import spaces

sys.path.insert(0, str(Path(__file__).parents[1] / "contract"))
import mid_run
import updates

from sterling.algorithms.online import ppo
from sterling.types import Rollouts, Spec

KEY = constant_key(3)
SMALL = {"width": 8, "length": 10, "epochs": 3, "lr": 0.01, "normalise_obs": False}


def agent(minibatch, **fields):
    config = ppo.Config(**{**SMALL, "minibatch": minibatch, **fields})
    spec = Spec(updates.OBS, spaces.Discrete(3), mid_run.ENVS, iterations=10)
    return ppo.init(jax.random.key(0), spec, config)


def rollout():
    return mid_run.make_batch(Rollouts(SMALL["length"]), False, garbage=0.0)


@pytest.mark.parametrize(
    "minibatch", [5, 24, *(pytest.param(rows, marks=pytest.mark.slow) for rows in (1, 8, 23))]
)
def test_ppo_epoch_goes_through_all_rows_in_minibatches(minibatch):
    """Of 24 rows; a last minibatch with fewer rows learns from these alone. The oracle takes the
    rows of a permutation one minibatch after another, and knows of no pads."""
    fields = updates.PPO | updates.PASSED | {"minibatch": minibatch, "epochs": 1}
    update = updates.Update("ppo", fields, updates.ITERATION, is_continuous=False)
    _, after, signals = updates.by_sterling(update)
    state, metrics, _ = updates.by_oracle(update)
    for path, leaf in mid_run.leaves_of(after).items():
        np.testing.assert_allclose(leaf, state[path], rtol=1e-5, atol=5e-6, err_msg=path)
    for name, value in signals.metrics.items():
        np.testing.assert_allclose(value, metrics[name], rtol=1e-5, atol=5e-6, err_msg=name)


def test_ppo_minibatch_order_depends_on_the_random_key():
    """Another key deals the rows into other minibatches; the same key into the same."""
    state, batch, learn = agent(16), rollout(), jax.jit(ppo.learn)
    found = [learn(state, batch, key)[0].nets.value.layers[0].weight for key in (KEY, KEY)]
    np.testing.assert_array_equal(*found)
    other = learn(state, batch, jax.random.key(4))[0].nets.value.layers[0].weight
    assert jnp.abs(other - found[0]).max() > 1e-6


@pytest.mark.slow
def test_ppo_masked_rows_do_not_change_the_update():
    state, batch = agent(16), rollout()
    assert not batch.mask.all()
    garbage = jnp.where(batch.mask, batch.reward, 50.0)
    dirty = dataclasses.replace(batch, reward=garbage)
    one, other = (ppo.learn(state, each, KEY)[0].nets for each in (batch, dirty))
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6), one, other)


def test_ppo_normalises_a_rollout_by_statistics_of_earlier_ones():
    """The first as it is, the second with the moments of the first's rows that count."""
    state, batch = agent(16, normalise_obs=True), rollout()
    batch = dataclasses.replace(batch, obs=5.0 + 2.0 * batch.obs)
    learned = jax.jit(ppo.learn)(state, batch, KEY)[0]
    obs, mask = np.asarray(batch.obs, np.float64).reshape(-1, 3), np.asarray(batch.mask).ravel()
    centred = (obs - obs[mask].mean(0)) / obs[mask].std(0)
    for agent_then, wanted in ((state, np.clip(obs, -10, 10)), (learned, centred)):
        expected = agent_then.nets.value(jnp.asarray(wanted, jnp.float32))[..., 0]
        found = ppo.value(agent_then, jnp.asarray(obs, jnp.float32))
        np.testing.assert_allclose(found, expected, rtol=1e-3, atol=1e-3)


def test_ppo_policy_and_value_heads_have_orthogonal_initial_gains():
    """Singular values of a layer are its gain: 0.01 and 1 in the last, sqrt(2) before."""
    nets = agent(16).nets
    for net, gain, choices in ((nets.policy, 0.01, 3), (nets.value, 1.0, 1)):
        *hidden, last = (np.linalg.svd(layer.weight, compute_uv=False) for layer in net.layers)
        np.testing.assert_allclose(last, np.full(choices, gain), rtol=1e-5)
        for gains in hidden:
            np.testing.assert_allclose(gains, np.full(len(gains), 2**0.5), rtol=1e-5)
