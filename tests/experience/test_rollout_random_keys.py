"""Who draws by which chance: nobody's draws are another's."""

import functools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from sterling import envs
from sterling.experience.rollouts.guided_rollout import GuidedRollout, JumpStart
from sterling.experience.rollouts.rollout import Rollout
from sterling.types import Step

ENVS, SEEDS = 3, (0, 1)


@functools.cache
def fixed_keys():
    return jax.random.split(jax.random.key(0), len(SEEDS))


class Noted(eqx.Module):
    """Acts by chance, and records what it drew and whether it was asked to explore."""

    def act(self, obs, keys, explore):
        draw = jax.vmap(lambda key: jax.random.uniform(key, (ENVS, 1)))(keys)
        return draw, {"explored": jnp.full(draw.shape[:2], explore), "drawn": draw[..., 0]}


class Chancy:
    """A world whose rewards are drawn."""

    exact, seeds = True, len(SEEDS)

    def __init__(self, traced):
        self.traced = traced
        self.spec = envs.make("probe:cut-continuous", SEEDS, ENVS).spec

    def reset(self, keys):
        return jnp.zeros(()), jnp.zeros((len(SEEDS), ENVS, 1))

    def step(self, state, action, keys):
        shape = (len(SEEDS), ENVS)
        reward = jax.vmap(lambda key: jax.random.uniform(key, (ENVS, 1)))(keys)[..., 0]
        no = jnp.zeros(shape, bool)
        return state, Step(jnp.zeros((*shape, 1)), reward, jnp.ones(shape), no, ~no)

    def close(self):
        pass


@pytest.mark.parametrize("traced", [True, False])
def test_rollout_gives_policy_and_environment_separate_random_keys(traced):
    _, rows = Rollout.create(Chancy(traced), 5, fixed_keys()).live(Noted(), fixed_keys())
    assert rows.extras["explored"].all()
    drawn, reward = np.asarray(rows.extras["drawn"]), np.asarray(rows.reward)
    assert np.unique(drawn).size == drawn.size
    assert np.unique(reward).size == reward.size
    assert (drawn != reward).all()


def test_guided_rollout_gives_learner_and_guide_separate_random_keys():
    rule = JumpStart.create(len(SEEDS), ENVS, steps=1000, fade=1_000_000)
    source = GuidedRollout(Rollout.create(Chancy(True), 5, fixed_keys()), Noted(), rule)
    _, rows = source.live(Noted(), fixed_keys())
    own, done = np.asarray(rows.extras["drawn"]), np.asarray(rows.action)[..., 0]
    guided = own != done
    assert guided.mean() > 0.9  # the guide acts for almost as long as an episode lasts
    assert np.unique(np.concatenate([own.ravel(), done[guided]])).size == own.size + guided.sum()
