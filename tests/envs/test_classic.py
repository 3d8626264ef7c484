"""The native classic-control worlds against Gymnasium's own, step by step."""

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from sterling.envs.native import classic_control

STATE = {"Pendulum-v1": lambda env: env.state, "MountainCarContinuous-v0": lambda env: env.state}


@pytest.mark.parametrize("name", sorted(classic_control.TASKS))
def test_one_step_equals_gymnasium(name):
    """From 200 states that Gymnasium visits, under random actions."""
    task, limit = classic_control.make(name)
    env = gymnasium.make(name)
    assert env.spec.max_episode_steps == limit
    assert env.observation_space.shape == task.obs.shape
    step = jax.jit(task.step)
    rng, key = np.random.default_rng(0), jax.random.key(0)
    env.reset(seed=0)
    for _ in range(200):
        state = np.asarray(env.unwrapped.state, np.float32)
        if isinstance(env.action_space, gymnasium.spaces.Discrete):
            action = np.int32(rng.integers(env.action_space.n))
        else:
            action = rng.uniform(env.action_space.low, env.action_space.high).astype(np.float32)
        obs, reward, terminated, truncated, _ = env.step(action)
        _, own_obs, own_reward, own_end, _ = step(jnp.asarray(state), jnp.asarray(action), key)
        np.testing.assert_allclose(own_obs, obs, rtol=2e-4, atol=2e-5)
        np.testing.assert_allclose(own_reward, reward, rtol=2e-4, atol=2e-5)
        assert bool(own_end) == terminated
        if terminated or truncated:
            env.reset()


@pytest.mark.parametrize("name", sorted(classic_control.TASKS))
def test_classic_control_start_states_are_distributed_as_in_gymnasium(name):
    """Means and deviations of 2,000 first observations."""
    task, _ = classic_control.make(name)
    own = np.asarray(jax.vmap(task.reset)(jax.random.split(jax.random.key(1), 2000))[1])
    env = gymnasium.make(name)
    theirs = np.stack([env.reset(seed=i)[0] for i in range(2000)])
    np.testing.assert_allclose(own.mean(0), theirs.mean(0), atol=0.06)
    np.testing.assert_allclose(own.std(0), theirs.std(0), atol=0.05)
