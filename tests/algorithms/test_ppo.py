"""PPO: every row once an epoch, whatever the minibatches; pads teach nothing; normalisers."""

import dataclasses
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "contract"))
import golden

from sterling.algorithms.online import ppo
from sterling.types import Spec

KEY = jax.random.key(3)
SMALL = {"width": 8, "length": 10, "epochs": 3, "lr": 0.01, "normalise_obs": False}


def agent(minibatch, **fields):
    config = ppo.Config(**{**SMALL, "minibatch": minibatch, **fields})
    obs, action = golden.spaces.Box(-np.inf, np.inf, (3,), np.float32), golden.spaces.Discrete(3)
    return ppo.init(jax.random.key(0), Spec(obs, action, golden.ENVS, iterations=10), config)


def rollout():
    return golden.make_batch((SMALL["length"], golden.ENVS), False, 0.0, True)


@pytest.mark.parametrize("minibatch", [1, 7, 10, 16, 21, 39, 40])
def test_every_epoch_goes_through_all_rows(minibatch):
    order = np.asarray(ppo._order(KEY, 40, agent(minibatch).config))
    for epoch in order.reshape(SMALL["epochs"], -1):
        assert sorted(epoch[epoch >= 0]) == list(range(40))
        pads = -40 % minibatch
        assert (epoch[epoch.size - pads :] == -1).all()
    assert order.shape[1] == minibatch


@pytest.mark.parametrize("minibatch", [16, 20, 21])
@pytest.mark.parametrize(
    "fields", [{}, {"normalise_advantage": False, "clip_value": True, "target_kl": 0.01}]
)
def test_pads_change_nothing(minibatch, fields):
    """Updates by hand, one minibatch after another, each of its own rows alone."""
    state = agent(minibatch, normalise_reward=False, entropy_coef=0.1, **fields)
    batch = rollout()
    learned, signals = jax.jit(ppo.learn)(state, batch, KEY)
    rows = ppo._advantages(state, batch, batch.reward)
    carry, every = (state.nets, state.optimiser, jnp.asarray(True)), []
    for chosen in np.asarray(ppo._order(KEY, 40, state.config)):
        mine = chosen[chosen >= 0]
        part = jax.tree.map(lambda x, mine=mine: x[mine], rows)
        carry, metrics = ppo._update(state, carry, part)
        every.append(metrics)
    pairs = zip(jax.tree.leaves(learned.nets), jax.tree.leaves(carry[0]), strict=True)
    for one, other in pairs:
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5)
    for name, value in signals.metrics.items():
        mean = np.mean([metrics[name] for metrics in every])
        np.testing.assert_allclose(value, mean, rtol=1e-3, atol=1e-5, err_msg=name)


def test_masked_rows_still_teach_nothing():
    state, batch = agent(16), rollout()
    assert not batch.mask.all()
    garbage = jnp.where(batch.mask, batch.reward, 50.0)
    dirty = dataclasses.replace(batch, reward=garbage)
    one, other = (ppo.learn(state, each, KEY)[0].nets for each in (batch, dirty))
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6), one, other)


def test_a_rollout_is_seen_through_the_statistics_of_those_before():
    """The first as it is, the second with the moments of the first's rows that count."""
    state, batch = agent(16, normalise_obs=True), rollout()
    batch = dataclasses.replace(batch, obs=5.0 + 2.0 * batch.obs)
    learned = ppo.learn(state, batch, KEY)[0]
    obs, mask = np.asarray(batch.obs, np.float64), np.asarray(batch.mask)
    centred = (obs - obs[mask].mean(0)) / obs[mask].std(0)
    for agent_then, wanted in ((state, np.clip(obs, -10, 10)), (learned, centred)):
        seen = ppo._advantages(agent_then, batch, batch.reward)["seen"]
        np.testing.assert_allclose(seen, wanted.reshape(-1, 3), rtol=1e-3, atol=1e-3)
