"""Go-Explore: what the archive keeps is true, and episodes go on from there."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import sterling
from sterling import envs, random_keys
from sterling.envs.episode_starts import Start
from sterling.experience.levels import go_explore
from sterling.experience.levels.go_explore import EXPLORE_STEPS, SLOTS, Archive, GoExplore, cells
from sterling.experience.rollouts.rollout import Rollout
from sterling.experience.source_layers import NoOptions
from sterling.types import Mistake

SEEDS, ENVS, CELLS = (0, 1), 4, 12


def at(time):
    return random_keys.for_seeds(jnp.asarray(SEEDS, jnp.int32), "test", time)


class Wander:
    """Acts at random."""

    def act(self, obs, keys, explore):
        draw = jax.vmap(lambda key: jax.random.randint(key, (ENVS,), 0, 2, jnp.int32))
        return draw(keys), {}


def lived(steps):
    """A source that has lived so many steps, and its rows."""
    world = envs.make(f"corridor:{CELLS}", SEEDS, ENVS)
    source = GoExplore.create(Rollout.create(world, 50, at(0)), NoOptions(), at(0), Wander())
    live = jax.jit(lambda source, time: source.live(Wander(), at(time)))
    rows = []
    for time in range(1, 1 + steps // 50):
        source, record = live(source, jnp.int32(time))
        rows.append(jax.tree.map(np.asarray, record))
    return source, jax.tree.map(lambda *x: np.concatenate(x, 1), *rows)


def test_go_explore_archive_keeps_shortest_ways_to_every_cell():
    source, rows = lived(1_000)
    archive = source.archive
    assert (rows.reward.sum((1, 2)) > 3).all()  # without one in 4,000 steps: about one time
    for seed in range(2):
        filled = np.asarray(archive.filled[seed])
        cell = np.asarray(archive.start.state[seed])[filled]
        assert sorted(cell) == list(range(CELLS))
        np.testing.assert_array_equal(np.asarray(archive.start.elapsed[seed])[filled], cell)
        shown = np.asarray(archive.start.obs[seed])[filled]
        np.testing.assert_array_equal(shown, np.eye(CELLS)[cell])
        assert (np.asarray(archive.score[seed])[filled] == 0.0).all()


def test_go_explore_returns_envs_to_archived_cells():
    _, rows = lived(500)
    for seed, env in np.ndindex(2, ENVS):
        last, back = (np.flatnonzero(x[seed, :, env]) for x in (rows.last, ~rows.mask))
        left, expected = EXPLORE_STEPS, []
        for time in range(500):
            if left == 0:
                expected.append(time)
                left = EXPLORE_STEPS
            else:
                left = 0 if time in last else left - 1
        np.testing.assert_array_equal(back, expected)
    places = np.argmax(rows.next_obs, -1)[~rows.mask]
    assert len(np.unique(places)) == CELLS  # to all of them


def test_go_explore_archive_replaces_worse_trajectories():
    """One seed, three envs: in cells a, a, b."""
    a, b = (int(cells(jnp.full((1, 1, 1), x))[0, 0]) for x in (0.0, 1.0))
    room = Start(None, jnp.zeros((1, SLOTS)), jnp.zeros((1, SLOTS), jnp.int32),
                 jnp.zeros((1, SLOTS, 1)))  # fmt: skip
    none = jnp.zeros((1, SLOTS), bool)
    archive = Archive(room, jnp.zeros((1, SLOTS)), none, none.astype(jnp.int32))

    def offer(archive, state, elapsed, score, valid=(True, True, True)):
        obs = jnp.array([[[0.0], [0.01], [1.0]]])  # the first two round to the same
        steps = jnp.array([elapsed], jnp.int32)
        here = Start(None, jnp.array([state], jnp.float32), steps, obs)
        return archive.with_candidates(here, jnp.array([score], jnp.float32), jnp.array([valid]))

    def held(archive):
        kept = archive.start
        return [(float(kept.state[0, x]), int(kept.elapsed[0, x]), float(archive.score[0, x]))
                for x in (a, b)]  # fmt: skip

    archive = offer(archive, [1, 2, 3], [5, 4, 9], [0, 0, 0])
    assert held(archive) == [(1, 5, 0), (3, 9, 0)]  # of two in one cell the first
    assert int(archive.filled.sum()) == 2
    assert archive.seen[0, jnp.array([a, b])].tolist() == [2, 1]
    archive = offer(archive, [4, 5, 6], [5, 4, 9], [0, 0, 0])
    assert held(archive) == [(5, 4, 0), (3, 9, 0)]  # fewer steps; as many are no better
    archive = offer(archive, [7, 8, 9], [1, 1, 1], [-1, -1, 0], (True, True, False))
    assert held(archive) == [(5, 4, 0), (3, 9, 0)]  # a smaller return; one that does not count
    archive = offer(archive, [7, 8, 9], [50, 50, 50], [2, 1, 1])
    assert held(archive) == [(7, 50, 2), (9, 50, 1)]


def test_go_explore_cells_are_distinct_and_robust_to_small_changes():
    many = jax.random.uniform(jax.random.key(0), (1, 400, 6), minval=-9.0, maxval=9.0)
    slot = np.asarray(cells(many))
    assert len(np.unique(slot)) > 360  # of 400 in 4,096 slots some 19 meet another
    np.testing.assert_array_equal(cells(many[:, ::-1]), slot[:, ::-1])
    assert (cells(many[..., ::-1]) != slot).mean() > 0.95  # the order of numbers counts
    near = jnp.round(many * 8) / 8
    np.testing.assert_array_equal(cells(near + 0.05), cells(near))


def test_go_explore_selects_seldom_visited_cells_more_often():
    filled, seen = jnp.array([True, False, True, True]), jnp.array([0, 0, 3, 8], jnp.int32)
    found = go_explore._cumulative_weights(filled, seen)
    np.testing.assert_allclose(found, np.cumsum([1, 0, 1 / 2, 1 / 3]), rtol=1e-6)


def test_go_explore_refuses_environments_that_cannot_restore_a_state():
    with pytest.raises(Mistake, match="PoolWorld cannot begin an episode in a given start"):
        sterling.train("ppo", "envpool:CartPole-v1", steps=4_000, sources="go-explore")
