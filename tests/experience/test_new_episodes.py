"""A population in one replay: every iteration begins an episode of each member, and nothing that is
stored joins two episodes."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from constants import constant_array
from gymnasium import spaces

import sterling
from sterling import random_keys
from sterling.algorithms.evolution import cem_rl
from sterling.envs.traced_world import TracedWorld
from sterling.experience.replay.replay_buffer import Replay
from sterling.experience.rollouts.new_episodes import NewEpisodes
from sterling.experience.rollouts.rollout import Rollout
from sterling.training.agent import Agent
from sterling.types import Mistake, Record, Spec

ENVS, SEEDS, LENGTH = 4, constant_array([3, 8], np.int32), 5
FIELDS = {"width": 8, "depth": 1, "members": ENVS, "limit": LENGTH, "batch": 16}


class Walk:
    """An episode of 7 steps, which shows where it is and when; a step moves by its action."""

    obs = spaces.Box(-np.inf, np.inf, (2,), np.float32)
    action = spaces.Box(-1.0, 1.0, (1,), np.float32)

    def reset(self, key):
        state = (jax.random.uniform(key), jnp.zeros(()))
        return state, jnp.stack(state)

    def step(self, state, action, key):
        state = (state[0] + action[0], state[1] + 1.0)
        over = state[1] >= 7.0
        return state, jnp.stack(state), action[0], over, jnp.asarray(False)


@pytest.fixture(params=[True, False], ids=["compiled", "host"])
def collected(request):
    """Two iterations: the source after them, and the rows of the second."""
    world = TracedWorld(Walk(), (3, 8), ENVS, strategy="map")
    world.traced = request.param
    config = cem_rl.Config(**FIELDS)
    keys = random_keys.for_seeds(SEEDS, "agent", 0)
    agent = Agent.create(cem_rl, keys, world.spec, config, "map")
    source = NewEpisodes(Rollout.create(world, LENGTH, keys))
    replay = Replay.create(source, cem_rl.needs(dataclasses.replace(config, capacity=400)), 1, keys)
    for number in range(2):
        replay, draws = replay.collect(agent, random_keys.for_seeds(SEEDS, "draw", number))
    return agent, replay, draws


def test_every_iteration_begins_episodes_of_all_members(collected):
    agent, _, draws = collected
    rows = draws.fresh
    assert rows.mask.shape == (2, LENGTH + 1, ENVS)
    times = np.broadcast_to(np.arange(LENGTH + 1)[None, :, None], rows.mask.shape)
    np.testing.assert_array_equal(rows.obs[..., 1], times)
    assert np.asarray(rows.mask[:, :-1]).all()
    assert not np.asarray(rows.mask[:, -1]).any()
    for seed in range(2):
        state = jax.tree.map(lambda x, seed=seed: x[seed], agent.state)
        for env in range(ENVS):
            actor = jax.tree.map(lambda x, env=env: x[env], state.members)
            wanted = actor(rows.obs[seed, :-1, env])
            np.testing.assert_allclose(rows.action[seed, :-1, env], wanted, atol=1e-5)


def test_no_stored_transition_joins_two_episodes(collected):
    _, replay, draws = collected
    feed = replay.needs.feed("critics")
    own = random_keys.for_seeds(SEEDS, "look", 0)
    sample = draws.presample(feed, own)
    seen = 0
    for update in range(4):
        batch = jax.tree.map(np.asarray, draws.draw(feed, jnp.int32(0), None, sample[0, update]))
        moved = batch.obs[:, 0] + batch.action[:, 0], batch.obs[:, 1] + 1.0
        found = np.stack(moved, -1)[batch.mask]
        np.testing.assert_allclose(batch.next_obs[batch.mask], found, atol=1e-5)
        seen += batch.mask.sum()
    assert seen


def test_a_member_is_scored_by_the_episodes_that_it_ends():
    """Two ended ones; one unfinished; one that broke off; one ended before another broke off."""
    reward = jnp.asarray([[1.0, 1.0, 1.0, 2.0], [2.0, 2.0, 9.0, 9.0], [4.0, 3.0, 1.0, 9.0]])
    last = jnp.asarray(
        [[True, False, False, True], [False, False, True, True], [True] + [False] * 3]
    )
    mask = jnp.asarray([[True] * 4, [True, True, False, False], [True] * 4])
    batch = Record(None, None, reward, jnp.ones_like(reward), None, last, mask, {})
    returns, counts = cem_rl.member_returns(batch)
    np.testing.assert_allclose(returns[jnp.asarray([0, 1, 3])], [(1.0 + 6.0) / 2, 6.0, 2.0])
    np.testing.assert_array_equal(counts, [True, True, False, True])


def test_a_population_in_which_nobody_counts_stays():
    config = cem_rl.Config(**FIELDS)
    spec = Spec(Walk.obs, Walk.action, ENVS)
    state = cem_rl.init(jax.random.key(0), spec, config)
    zero = jnp.zeros((2, ENVS))
    batch = Record(None, None, zero, zero, None, zero == 0.0, zero > 0.0, {})
    learned, signals = cem_rl.learn(state, batch, jax.random.key(1))
    for before, after in zip(
        *(jax.tree.leaves(x.nets.actor) for x in (state, learned)), strict=True
    ):
        np.testing.assert_allclose(before, after, atol=1e-6)
    np.testing.assert_array_equal(state.variance, learned.variance)
    assert all(np.isfinite(x) for x in signals.metrics.values())


@pytest.mark.parametrize(
    ("fields", "envs", "words"),
    [({"members": 5}, 5, "even number of members"), ({"members": 6}, 4, "set members=4")],
)
def test_members_are_even_and_as_many_as_envs(fields, envs, words):
    with pytest.raises(Mistake, match=words):
        cem_rl.init(jax.random.key(0), Spec(Walk.obs, Walk.action, envs), cem_rl.Config(**fields))


def test_sources_and_guides_are_refused(tmp_path):
    how = {"steps": 400, "seeds": 1, "out": tmp_path / "run", "limit": 20}
    with pytest.raises(Mistake, match="sources do not support"):
        sterling.train("cem-rl", "Pendulum-v1", sources="rnd", **how)
    with pytest.raises(Mistake, match="guide needs an off-policy algorithm"):
        sterling.train("cem-rl", "Pendulum-v1", guide=tmp_path, **how)
