"""Rows of a team in a replay: what each agent saw and did, who was there, what critics saw."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from marked_team import (
    CHOICES,
    CUT,
    ENVS,
    NAMES,
    SEEDS,
    Counting,
    FirstAllowed,
    MarkedTeam,
    length,
    paid,
    seen,
)

from sterling.experience.replay.replay_buffer import Replay
from sterling.experience.replay.ring_buffer import Place
from sterling.experience.rollouts.rollout import Rollout
from sterling.types import Feed, Needs

GAMMA = 0.5


def replay_of(actor, keep, warmup=0, **feed):
    """An empty replay, and the keys of its seeds."""
    needs = Needs(24, (Feed(batch=200, gamma=GAMMA, **feed),), 300, warmup, keep)
    keys = jax.random.split(jax.random.key(0), SEEDS)
    rollout = Rollout.create(MarkedTeam(), needs.collect, keys, actor)
    return Replay.create(rollout, needs, 1, keys, actor=actor), keys


def drawn(actor, keep, **feed):
    """Rows of the second seed, drawn after 24 steps, and their marks ``(mark, row)``."""
    replay, keys = replay_of(actor, keep, **feed)
    _, draws = replay.collect(actor, keys)
    own = draws.needs.feeds[0]
    which = draws.presample(own, keys)[1, 0]
    batch = jax.jit(lambda which: draws.draw(own, jnp.ones((), jnp.int32), None, which))(which)
    batch = jax.tree.map(np.asarray, batch)
    mark = np.moveaxis(batch.obs["state"], -1, 0).astype(np.int32)
    return batch, mark


@pytest.fixture(name="told", scope="module")
def _told():
    """What the second seed sees, does and is paid, ``(env, episode, step, ...)``."""
    grid = jnp.meshgrid(*(jnp.arange(size) for size in (ENVS, 9, 6)), indexing="ij")
    obs = seen(jnp.ones_like(grid[0]), *grid)
    action = jnp.argmax(obs["action_mask"], -1)
    return jax.tree.map(np.asarray, (obs, action, paid(obs, action)))


@pytest.mark.parametrize("n", [1, 3])
def test_replayed_rows_of_a_team_are_what_happened(n, told):
    """Sums of n steps end where an agent is cut off alone: its last observation is only there."""
    batch, mark = drawn(FirstAllowed(), ("reward",), n_step=n)
    obs, action, reward = told
    rows = np.flatnonzero(batch.mask)
    assert {*mark[3][rows]} == {0, 1, 2, 3, 4}
    assert len(rows) < 200  # of masked rows only what they observe is known
    for row in rows:
        _, *where, step = mark[:, row]
        env, episode = where
        end = length(1, env, episode)
        stops = min(step + n, end, CUT if step < CUT else end)
        decay = GAMMA ** np.arange(stops - step)
        own = decay @ reward[env, episode, step:stops]
        now, after = ({name: x[(*where, at)] for name, x in obs.items()} for at in (step, stops))
        expected = (now, action[env, episode, step], after, own.sum(), own)
        got = (batch.obs, batch.action, batch.next_obs, batch.reward, batch.extras["reward"])
        for one, other in zip(*map(jax.tree.leaves, (expected, got)), strict=True):
            np.testing.assert_array_equal(other[row], one)
        over = stops == end
        assert batch.last[row] == over
        terminates = over and episode % 2 == 0
        assert batch.discount[row] == (0.0 if terminates else decay[-1])


def test_random_warm_up_of_a_team_obeys_the_mask_of_every_agent():
    replay, keys = replay_of(FirstAllowed(), (), warmup=180)
    ring = replay.warm_up(FirstAllowed(), keys).ring
    row, env = jnp.meshgrid(jnp.arange(60), jnp.arange(ENVS), indexing="ij")
    for seed in range(SEEDS):
        place = Place(jnp.asarray(seed), row, env)
        obs, action = ring.obs(place), np.asarray(ring.action(place))
        counts = np.asarray(ring.mask(place)[..., None] & (obs["alive"] > 0))
        allowed = np.take_along_axis(np.asarray(obs["action_mask"]), action[..., None], -1)[..., 0]
        assert allowed[counts].all()
        for agent in range(len(NAMES)):
            tried = action[..., agent][counts[..., agent]]
            assert np.unique(tried).tolist() == list(range(CHOICES))


def test_sequences_of_a_team_begin_with_the_memory_of_every_agent(told):
    """It counts an episode's steps and sums the agent's own actions."""
    batch, mark = drawn(Counting(), ("memory",), length=3)
    assert batch.start.memory.shape == (200, len(NAMES), 2)
    for row in range(200):
        _, *where, step = mark[:, row, 0]
        assert batch.mask[row, 0] == (step < length(1, *where))
        done = told[1][(*where,)][:step]  # of the newest action the memory knows nothing yet
        memory = np.stack([np.full(len(NAMES), step), done[:-1].sum(0)], -1)
        np.testing.assert_array_equal(batch.start.memory[row], memory)
        np.testing.assert_array_equal(batch.start.action[row], done[-1] if step else 0)
        assert batch.start.first[row] == (step == 0)
