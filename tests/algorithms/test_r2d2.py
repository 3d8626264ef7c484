"""R2D2: learning repeats acting, what is rescaled comes back, envs explore by their own shares."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium import spaces

from sterling import envs, random_keys
from sterling.algorithms.online import r2d2
from sterling.equations.sequence_rows import time_major
from sterling.equations.value_losses import rescale_value, stretch_n_step_returns, unrescale_value
from sterling.experience.replay.kept_extras import read_past
from sterling.experience.replay.replay_buffer import Replay
from sterling.experience.replay.ring_buffer import Place
from sterling.experience.rollouts.rollout import Rollout
from sterling.training.agent import Agent
from sterling.types import Mistake, Spec

CONFIG = r2d2.Config(
    width=4, batch=64, burn_in=2, length=6, collect=30, capacity=200, warmup=0, priority=None
)
SEEDS, ENVS = (0, 1), 3


@pytest.mark.parametrize("world", ["memory", pytest.param("cut", marks=pytest.mark.slow)])
def test_r2d2_learning_repeats_the_recurrent_state_of_acting(world):
    """Of every row that is learned from, also after a reset within burn-in or stretch."""
    lived = envs.make(f"probe:{world}", SEEDS, ENVS)
    spec = dataclasses.replace(lived.spec, envs=ENVS)
    start = random_keys.for_seeds(jnp.asarray(SEEDS), "begun", 0)
    agent = Agent.create(r2d2, start, spec, CONFIG, "vmap")
    needs = r2d2.needs(CONFIG)
    source = Rollout.create(lived, needs.collect, start, agent)
    replay = Replay.create(source, needs, 1, start, actor=agent)
    _, draws = jax.jit(lambda replay: replay.collect(agent, start))(replay)
    feed = needs.feeds[0]
    chances = draws.presample(feed, start)
    batch = jax.jit(lambda chance: draws.draw(feed, jnp.asarray(1), None, chance))(chances[1, 0])
    net = jax.tree.map(lambda x: x[1], agent.state.net)
    rows = time_major(batch)
    found = np.asarray(jax.jit(lambda net: r2d2.unroll_memory(net, rows, CONFIG.burn_in))(net))
    begins = np.asarray(rows.extras["begins"])
    assert begins.any()
    assert np.asarray(batch.mask).mean() > 0.5
    first = np.asarray(chances[1, 0])
    at = (first // ENVS + np.arange(1 + CONFIG.burn_in, feed.length)[:, None]) % draws.ring.rows
    place = Place(jnp.asarray(1), jnp.asarray(at), jnp.asarray(first % ENVS))
    wanted = np.asarray(read_past(draws.past_form, draws.ring, place).memory)
    goes_on = ~begins[1 + CONFIG.burn_in :]
    assert goes_on.mean() > 0.3
    np.testing.assert_allclose(found[:-2][goes_on], wanted[goes_on], atol=1e-5)
    assert np.ptp(wanted) > 0.1


def test_r2d2_value_rescaling_is_inverted_by_unrescaling():
    values = jnp.asarray([-1e4, -30.0, -1.0, -1e-4, 0.0, 1e-5, 0.3, 7.0, 500.0, 1e6])
    for eps in (0.0, 1e-3, 0.1):
        back = unrescale_value(rescale_value(values, eps), eps)
        np.testing.assert_allclose(back, values, rtol=1e-5, atol=1e-9)
    exact = np.sign(values) * (np.sqrt(np.abs(values) + 1.0) - 1.0) + 1e-3 * np.asarray(values)
    np.testing.assert_allclose(rescale_value(values, 1e-3), exact, rtol=1e-3, atol=1e-6)
    assert abs(float(rescale_value(jnp.asarray(99.0), 1e-3)) - 9.099) < 1e-5


def test_n_step_returns_within_a_sequence_stop_at_its_end_or_the_episode_end():
    reward = jnp.asarray([1.0, 2.0, 4.0, 8.0, 16.0])
    trace = jnp.asarray([True, True, False, True, False])  # the third row is its episode's last
    total, decay, steps = stretch_n_step_returns(reward, jnp.full(5, 0.5), trace, 3)
    assert steps.tolist() == [3, 2, 1, 2, 1]
    assert total.tolist() == [3.0, 4.0, 4.0, 16.0, 16.0]
    assert decay.tolist() == [0.125, 0.25, 0.5, 0.25, 0.5]


def test_r2d2_every_env_explores_with_its_own_epsilon():
    config = r2d2.Config(exploration=0.4, spread=7.0)
    found = np.asarray(r2d2.epsilon(config, 8))
    np.testing.assert_allclose(found[[0, 1, 7]], [0.4, 0.4**2, 0.4**8], rtol=1e-5)
    np.testing.assert_allclose(r2d2.epsilon(config, 1), [0.4**4.5], rtol=1e-5)


def test_r2d2_refuses_continuous_actions():
    box = spaces.Box(-1.0, 1.0, (2,), np.float32)
    with pytest.raises(Mistake, match=r"r2d2 does not support .* actions. Use recurrent-ppo"):
        r2d2.init(jax.random.key(0), Spec(box, box), r2d2.Config())
