"""Goals told anew in hindsight: of the same episode, judged row by row before they are summed."""

from functools import partial

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from collected import collect
from marked_world import ENVS, SEEDS, Idle, Marked, begun, length

from sterling import random_keys
from sterling.experience.replay.episode_index import EpisodeIndex
from sterling.experience.replay.hindsight_replay import (
    EPISODE,
    FINAL,
    FUTURE,
    RANDOM,
    Hindsight,
)
from sterling.experience.replay.replay_buffer import Replay
from sterling.experience.replay.ring_buffer import Place, Ring
from sterling.experience.rollouts.rollout import Rollout
from sterling.types import Record, Transitions

ROWS = 11


def blocks(rng, count):
    """Rows ``(seed, time, env)`` as worlds make them: after a last one no experience, mostly; now
    and then a crash, which is last and no experience; now and then several rows that are none."""
    before = np.zeros((SEEDS, ENVS), bool)
    for _ in range(count):
        time = rng.choice([1, 4])
        last, mask = np.zeros((2, SEEDS, time, ENVS), bool)
        for t in range(time):
            mask[:, t] = ~before & (rng.random((SEEDS, ENVS)) < 0.95)
            last[:, t] = ~before & (rng.random((SEEDS, ENVS)) < 0.2)
            before = last[:, t] & (rng.random((SEEDS, ENVS)) < 0.7)
        yield last, mask


def expected(rows, held):
    """(elapsed, length) of the newest ``held`` of one env's rows, looked up by walking."""
    found = []
    for at in range(len(rows) - held, len(rows)):
        first = end = at
        while first > 0 and rows[first - 1][1] and not rows[first - 1][0]:
            first -= 1
        while end + 1 < len(rows) and not rows[end][0] and rows[end + 1][1]:
            end += 1
        known = rows[at][1] and first >= len(rows) - held
        found.append((at - first, end - first + 1) if known else (0, 0))
    return found


@eqx.filter_jit
def indexed(ring, index, rows):
    """Ring and index with more rows, and what is looked up of all rows."""
    ring, index = ring.insert(rows), index.insert(ring, rows)
    axes = (jnp.arange(each, dtype=jnp.int32) for each in ring.words.shape[:3])
    place = Place(*jnp.meshgrid(*axes, indexing="ij"))
    return ring, index, jnp.stack(index.lookup(ring, place), -1)


@pytest.mark.parametrize("seed", range(3))
def test_episode_index_equals_a_walk_through_the_ring_buffer(seed):
    """Over several turns of a ring, which grows in one of them."""
    like = jnp.zeros((SEEDS, ENVS, 1))
    ring = Ring.create(ROWS, like, like)
    index, history = EpisodeIndex.create(ring), [[[] for _ in range(ENVS)] for _ in range(SEEDS)]
    for turn, (last, mask) in enumerate(blocks(np.random.default_rng(seed), 30)):
        flat, wide = np.zeros(last.shape, np.float32), np.zeros((*last.shape, 1), np.float32)
        parts = jax.tree.map(jnp.asarray, (wide, wide, flat, flat, wide, last, mask))
        if turn == 20:
            ring, index = ring.with_capacity(ROWS + 6), index.with_capacity(ring, ROWS + 6)
        ring, index, found = indexed(ring, index, Record(*parts, {}))
        here = np.mod(int(ring.head) - ring.row_count + np.arange(ring.row_count), ring.rows)
        for i, j in np.ndindex(SEEDS, ENVS):
            history[i][j] += list(zip(last[i, :, j], mask[i, :, j], strict=True))
            known = [tuple(each) for each in np.asarray(found)[i, here, j].tolist()]
            assert known == expected(history[i][j], ring.row_count)


def judge(achieved, desired):
    """Any rule that both parts count in; reached is ended."""
    there = jnp.all(achieved == desired)
    return 10.0 * achieved[3] + desired[3], jnp.where(there, 0.0, 1.0)


def made(kind=FUTURE, share=1.0, **needs):
    needs = Transitions(**{"batch": 256, "collect": 4, "capacity": 20 * ENVS, **needs})
    start = random_keys.for_seeds(jnp.arange(SEEDS, dtype=jnp.int32), "start", 0)

    def relabel(ring):
        return Hindsight.create(ring, kind, share, judge)

    return Replay.create(
        Rollout.create(Marked(), needs.collect, start), needs, 1, start, relabel=relabel
    )


@eqx.filter_jit
def _round(replay, key):
    return collect(replay, Idle(), key)


def lived(replay, rounds):
    """Batches of so many rounds, each with how many rows the ring has been given."""
    for time in range(rounds):
        replay, batch = _round(
            replay, random_keys.for_seeds(jnp.arange(SEEDS, dtype=jnp.int32), "draw", time)
        )
        flat = jax.tree.map(lambda x: np.asarray(x).reshape(-1, *x.shape[3:]), batch)
        yield flat, 4 * (time + 1), int(replay.ring.row_count)


def right(now, goal, count, gamma):
    """What a window of ``count`` rows from ``now`` on comes to, for a goal of the same episode."""
    seed, env, episode, step = now
    total, rows, there = 0.0, 0, False
    while rows < count and step + rows < length(seed, env, episode) and not there:
        rows += 1
        total += gamma ** (rows - 1) * (10.0 * (step + rows) + goal[3])
        there = step + rows == goal[3]
    return total, 0.0 if there else gamma ** (rows - 1), step + rows, there


@pytest.mark.parametrize(("count", "gamma"), [(1, 1.0), (3, 0.9)])
@pytest.mark.parametrize("kind", [FUTURE, FINAL, EPISODE])
def test_hindsight_windows_equal_experience_for_the_achieved_goal(kind, count, gamma):
    told = kept = earlier = 0
    for batch, given, held in lived(made(kind, n_step=count, gamma=gamma), 14):
        for i in np.flatnonzero(batch.mask):
            now = tuple(batch.obs["observation"][i].astype(int))
            goal = tuple(batch.obs["desired_goal"][i].astype(int))
            assert goal == tuple(batch.next_obs["desired_goal"][i].astype(int))
            assert goal[1:3] == now[1:3]  # of its own env and episode
            first = begun(*now[:3])
            if first < given - held:  # its beginning is overwritten
                assert goal[0] == -1
                kept += 1
                continue
            newest = min(length(*now[:3]), given - first)
            assert goal[0] == now[0]
            assert (0 if kind == EPISODE else now[3]) < goal[3] <= newest
            assert kind != FINAL or goal[3] == newest
            earlier += goal[3] <= now[3]
            total, discount, step, there = right(now, goal, count, gamma)
            np.testing.assert_allclose(batch.reward[i], total, rtol=1e-6)
            np.testing.assert_allclose(batch.discount[i], discount, rtol=1e-6)
            assert batch.next_obs["observation"][i][3] == step
            assert batch.last[i] == (there or step == length(*now[:3]))
            told += 1
    assert told > 1000
    assert kept > 100
    assert (earlier > 300) == (kind == EPISODE)


def test_random_goals_are_what_any_row_of_the_seed_achieved():
    """Of all envs and of episodes whose beginning is overwritten too; each row alike."""
    goals, held = [], 0
    for batch, given, held in lived(made(RANDOM), 14):
        seen, rows = batch.obs["desired_goal"].astype(int), np.flatnonzero(batch.mask)
        assert (seen[rows, 0] == batch.obs["observation"][rows, 0]).all()
        for goal in seen[rows]:
            at = begun(*goal[:3]) + goal[3]  # of the observation, counted from the env's first
            assert given - held < at <= given
        achieved = batch.next_obs["observation"][rows]
        wanted = 10.0 * achieved[:, 3] + seen[rows, 3]
        np.testing.assert_allclose(batch.reward[rows], wanted)
        there = (achieved == seen[rows]).all(-1)
        np.testing.assert_array_equal(batch.discount[rows], 1.0 - there)
        goals.append(seen[rows])
    whole = np.concatenate(goals[-3:])
    share = np.bincount(whole[:, 1], minlength=ENVS) / len(whole)
    np.testing.assert_allclose(share, 1 / ENVS, atol=0.05)


def test_hindsight_relabels_the_set_share_of_rows():
    told, all_rows, steps = 0, 0, []
    for batch, given, _ in lived(made(share=0.25, capacity=400 * ENVS), 20):
        anew = batch.obs["desired_goal"][:, 0] >= 0.0
        as_lived = batch.mask & ~anew
        assert (batch.reward[as_lived] == 1000.0).all()
        ends = batch.last & (batch.obs["observation"][:, 2] % 2 == 0)
        np.testing.assert_array_equal(batch.discount[as_lived], np.where(ends, 0.0, 1.0)[as_lived])
        told, all_rows = told + (anew & batch.mask).sum(), all_rows + batch.mask.sum()
        at = batch.obs["observation"]
        whole = [length(*each) == 6 and begun(*each) + 6 <= given for each in at[:, :3].astype(int)]
        pick = anew & batch.mask & np.array(whole) & (at[:, 3] == 0.0)
        steps += batch.obs["desired_goal"][pick, 3].tolist()
    assert abs(told / all_rows - 0.25) < 0.02
    share = np.bincount(np.array(steps, int), minlength=7)[1:] / len(steps)  # each alike
    np.testing.assert_allclose(share, 1 / 6, atol=5 * np.sqrt(5 / 36 / len(steps)))


def test_replay_without_hindsight_keeps_no_episode_index():
    needs = Transitions(batch=8, collect=4, capacity=20 * ENVS)
    start = random_keys.for_seeds(jnp.arange(SEEDS, dtype=jnp.int32), "start", 0)
    plain = Replay.create(Rollout.create(Marked(), 4, start), needs, 1, start)
    assert plain.relabel is None
    assert len(jax.tree.leaves(made())) == len(jax.tree.leaves(plain)) + 2


def test_hindsight_episode_index_separates_episodes_at_a_restart():
    """Rows after a restart are no part of the episode before it."""

    class Simulator(Marked):
        exact = False

    needs = Transitions(batch=8, collect=4, capacity=20 * ENVS)
    start = random_keys.for_seeds(jnp.arange(SEEDS, dtype=jnp.int32), "start", 0)

    def fresh():
        rollout = Rollout.create(Simulator(), 4, start)
        relabel = partial(Hindsight.create, kind=FUTURE, share=1.0, judge=judge)
        return Replay.create(rollout, needs, 1, start, relabel=relabel)

    replay, _ = _round(fresh(), start)
    again = replay.to_checkpoint().from_checkpoint(fresh())
    again, _ = _round(again, start)
    place = Place(*jnp.meshgrid(jnp.arange(SEEDS), jnp.arange(9), jnp.arange(ENVS), indexing="ij"))
    elapsed, known = again.relabel.index.lookup(again.ring, place)
    mask = np.asarray(again.ring.mask(place))
    assert not mask[:, 4].any()
    assert (np.asarray(elapsed)[:, 5] == 0).all()
    assert (np.asarray(known) <= 4).all()
