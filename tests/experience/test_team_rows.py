"""Rows of a team in a replay: what each agent saw and did, who was there, what critics saw."""

import equinox as eqx
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

from sterling.data import Dataset
from sterling.data.episode_columns import join_blocks
from sterling.data.recording.stored_episodes import rows_to_block
from sterling.experience.offline.dataset_batches import DatasetSource
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


@pytest.fixture(name="log", scope="module")
def _log():
    """What every seed did in its first 24 steps, as the episodes of a log."""
    world, actor, keys = MarkedTeam(), FirstAllowed(), jax.random.split(jax.random.key(0), SEEDS)
    _, rows = eqx.filter_jit(Rollout.create(world, 24, keys, actor).live)(actor, keys)
    own = [jax.tree.map(lambda x, seed=seed: np.asarray(x)[seed], rows) for seed in range(SEEDS)]
    block = join_blocks([rows_to_block(each, world, 10**6, 0) for each in own])
    return Dataset.from_block(block, world.spec.obs, world.spec.action)


def counted(reward, discount, cut, n):
    """By hand, of an episode whose agents are cut off before step ``cut``: the sums of n steps, the
    discounts after them, and the returns to go, of which each row after a truncation is unknown."""
    steps, sums, after, to_go = len(reward), [], [], []
    for step in range(steps):
        stop = cut if step < cut < steps else steps
        few = min(step + n, stop)
        sums.append(sum(GAMMA ** (k - step) * reward[k] for k in range(step, few)))
        after.append(GAMMA ** (few - 1 - step) * np.prod(discount[step:few]))
        to_go.append(sum(GAMMA ** (k - step) * reward[k] for k in range(step, stop)))
    return np.array(sums), np.array(after), np.array(to_go)


def test_sums_of_a_log_end_where_an_agent_is_cut_off_alone(log):
    """As those of a replay do; all rewards are above 0, so nothing is added after a truncation."""
    needs = Needs(feeds=(Feed(batch=400, n_step=3, gamma=GAMMA, monte_carlo=GAMMA),))
    source = DatasetSource.create(log, needs, spec=MarkedTeam().spec)
    batch = jax.tree.map(np.asarray, source.draw(needs.feeds[0], None, None, np.arange(log.rows)))
    assert (log.lengths > CUT).any()
    first = np.cumsum(log.lengths) - log.lengths
    for begin, episode in zip(first, log, strict=True):
        rows = slice(begin, begin + len(episode))
        expected = counted(episode.reward, episode.discount, CUT, 3)
        got = (batch.reward, batch.discount, batch.extras["monte_carlo"])
        for one, other in zip(expected, got, strict=True):
            np.testing.assert_allclose(other[rows], one, rtol=1e-5)
        if len(episode) > CUT:  # bootstraps from what it saw when it was cut off
            assert batch.next_obs["truncated"][begin].any()
    alone = DatasetSource.create(log, needs)  # an entry of one agent, which it may call so
    plain = jax.tree.map(np.asarray, alone.draw(needs.feeds[0], None, None, np.arange(log.rows)))
    assert (plain.reward != batch.reward).any()


def test_returns_to_go_of_a_team_end_where_an_agent_is_cut_off_alone():
    """Of every row as soon as it is known: after two steps, the others at the episode's end."""
    batch, mark = drawn(FirstAllowed(), (), n_step=1, monte_carlo=GAMMA)
    rows, steps = np.flatnonzero(batch.mask), 0
    by_place = {tuple(mark[1:, row]): batch.reward[row] for row in rows}
    for row in rows:
        _, env, episode, step = mark[:, row]
        end = length(1, env, episode)
        stop = CUT if step < CUT else end
        own = [by_place.get((env, episode, at)) for at in range(step, stop)]
        if None in own:
            continue
        decay, steps = GAMMA ** np.arange(stop - step), steps + 1
        if np.isfinite(batch.extras["monte_carlo"][row]):
            np.testing.assert_allclose(batch.extras["monte_carlo"][row], decay @ own, rtol=1e-5)
        else:
            assert stop == end
            assert episode == 4  # the last, which has not ended
    assert steps > 100
