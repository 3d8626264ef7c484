"""An evolution strategy over policies that remember learns alone what it does beside others."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium import spaces

import sterling
from sterling.algorithms.evolution import openes


class TwoSeen:
    """OpenES over policies that remember the observation before this one."""

    Config, needs = openes.Config, staticmethod(openes.needs)
    member, learn = staticmethod(openes.member), staticmethod(openes.learn)

    @staticmethod
    def init(key, spec, config):
        low, high = (np.concatenate([x, x]) for x in (spec.obs.low, spec.obs.high))
        wide = spaces.Box(low, high, dtype=np.float32)
        return openes.init(key, dataclasses.replace(spec, obs=wide), config)

    @staticmethod
    def memory(state, envs, key):
        return jnp.zeros((envs, state.nets.policy.layers[0].weight.shape[-2] // 2))

    @staticmethod
    def recall(state, past, obs, key, explore):
        seen = jnp.concatenate([obs, past.memory], -1)
        action, extras = openes.act(state, seen, key, explore)
        return action, obs, extras


@pytest.mark.as_users
@pytest.mark.slow
def test_openes_with_recurrent_members_trains_a_seed_independently():
    how = {"steps": 3 * 8 * 20, "envs": 8, "limit": 20, "evaluate_episodes": 2, "width": 8}
    how |= {"normalise_obs": False, "preset": False}
    many = sterling.train(TwoSeen, "CartPole-v1", seeds=[4, 7], **how)
    alone = sterling.train(TwoSeen, "CartPole-v1", seeds=[7], **how)
    pairs = zip(*(jax.tree.leaves(run.agent.state) for run in (many, alone)), strict=True)
    for x, y in pairs:
        np.testing.assert_array_equal(x[1], y[0])
