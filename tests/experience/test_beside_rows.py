"""Rows beside a batch: of which episode, how many steps later, how often which, in every store."""

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from collected import collect
from marked_log import marked_log
from marked_world import ENVS, SEEDS, Idle, Marked, begun, length

from sterling import random_keys
from sterling.data.device_dataset import HostDataset
from sterling.experience.offline.batch_augmentation import Augment
from sterling.experience.offline.beside_log import BesideLog
from sterling.experience.offline.dataset_batches import DatasetSource
from sterling.experience.offline.mixed_sources import Mix
from sterling.experience.replay.replay_buffer import Replay
from sterling.experience.rollouts.rollout import Rollout
from sterling.training.blinded_algorithm import BlindedAlgorithm
from sterling.types import Anywhere, Beside, Feed, Later, Mistake, Needs, SameTask

LENGTHS = np.array((1, 4, 9, 30))
KEYS = jax.random.wrap_key_data(np.array([[0, 3], [0, 5]], np.uint32))  # of two seeds


@pytest.fixture(name="log", scope="module")
def _log():
    return marked_log(LENGTHS)


def needs_of(*beside, batch=4000, collect=0, **more):
    return Needs(collect, (Feed(batch=batch, beside=beside, **more),), capacity=20 * ENVS)


def drawn(source, agent=None):
    """One batch of all seeds, as NumPy with the rows of seeds and updates in one axis."""
    _, batch = eqx.filter_jit(collect)(source, agent, KEYS)
    return jax.tree.map(lambda x: np.asarray(x).reshape(-1, *x.shape[3:]), batch)


def of_log(log, *beside, **more):
    return drawn(DatasetSource.create(log, needs_of(*beside, **more)))


def check_later(batch, beside, left):
    """Every later row is of the row's episode and as many steps later as it says; what is not any
    row's is known to end with the final observation, which is masked."""
    steps, same = beside.extras["steps"], beside.extras["steps"] >= 0
    assert (beside.obs[same, 0] == batch.obs[same, 0]).all()
    assert (beside.obs[same, 1] - batch.obs[same, 1] == steps[same]).all()
    assert (steps[same] <= left[same]).all()
    np.testing.assert_array_equal(beside.mask[same], (steps < left)[same])
    final = same & (steps == left)
    assert not beside.action[final].any()
    assert not beside.reward[final].any()
    np.testing.assert_array_equal(beside.next_obs[final], beside.obs[final])


def left_of(batch):
    return LENGTHS[batch.obs[:, 0].astype(int)] - batch.obs[:, 1].astype(int)


def test_later_rows_of_a_log_are_uniform_up_to_the_final_observation(log):
    batch = of_log(log, Beside("goal", Later()))
    beside, left = batch.beside["goal"], left_of(batch)
    check_later(batch, beside, left)
    first = (batch.obs[:, 0] == 3) & (batch.obs[:, 1] == 0)
    counts = np.bincount(beside.extras["steps"][first].astype(int), minlength=31)
    assert counts[0] == 0
    assert (counts[1:] > 0).all()
    real = beside.mask & (beside.extras["steps"] > 0)
    rows = beside.obs[real, 1] + (np.cumsum(LENGTHS) - LENGTHS)[beside.obs[real, 0].astype(int)]
    np.testing.assert_array_equal(beside.reward[real], rows)  # the row's own, whole


def test_later_rows_with_a_discount_are_geometric(log):
    batch = of_log(log, Beside("goal", Later(discount=0.7)), batch=20_000)
    beside = batch.beside["goal"]
    check_later(batch, beside, left_of(batch))
    early = (batch.obs[:, 0] == 3) & (batch.obs[:, 1] < 10)
    steps = beside.extras["steps"][early]
    expected = 0.3 * 0.7 ** np.arange(5)
    found = np.bincount(steps, minlength=31)[1:6] / steps.size
    np.testing.assert_allclose(found, expected, atol=0.015)


def test_shares_say_how_often_the_row_itself_later_ones_and_any_are_drawn(log):
    batch = of_log(log, Beside("goal", Later(share=(0.2, 0.5, 0.3))), batch=20_000)
    beside = batch.beside["goal"]
    check_later(batch, beside, left_of(batch))
    steps = beside.extras["steps"]
    for share, found in ((0.2, steps == 0), (0.5, steps > 0), (0.3, steps < 0)):
        assert abs(found.mean() - share) < 0.01
    anywhere = beside.obs[steps < 0, 0]
    found = np.bincount(anywhere.astype(int), minlength=4) / anywhere.size
    np.testing.assert_allclose(found, LENGTHS / LENGTHS.sum(), atol=0.02)


def test_a_later_row_is_not_after_the_one_that_limits_it(log):
    goal = Beside("goal", Later(share=(0.2, 0.5, 0.3)))
    batch = of_log(log, goal, Beside("way", Later(6, not_after="goal")), Beside("far", Later(6)))
    goal, way, far = (batch.beside[name].extras["steps"] for name in ("goal", "way", "far"))
    left = left_of(batch)
    for name in ("way", "far"):
        check_later(batch, batch.beside[name], left)
    np.testing.assert_array_equal(far, np.minimum(6, left))
    limit = np.where(goal < 0, 10**6, goal)  # a row of another episode limits nothing
    np.testing.assert_array_equal(way, np.minimum(far, limit))


def test_rows_from_anywhere_stand_beside_the_whole_batch(log):
    batch = of_log(log, Beside("more", Anywhere(500)), batch=20, updates=2)
    assert batch.beside["more"].obs.shape == (SEEDS * 2 * 500, 2)
    assert np.unique(batch.beside["more"].reward).size == LENGTHS.sum()
    assert batch.beside["more"].mask.all()
    sequences = of_log(log, Beside("more", Anywhere(5)), batch=3, length=4)
    assert sequences.obs.shape == (SEEDS * 3, 4, 2)
    assert sequences.beside["more"].obs.shape == (SEEDS * 5, 2)


def test_rows_beside_are_equal_for_compiled_and_memory_mapped_datasets(log):
    """Also in an iteration in which the feed is not due: then for the shapes."""
    asked = (Beside("goal", Later(share=(0.1, 0.6, 0.3))), Beside("more", Anywhere(7)))
    fast = DatasetSource.create(log, needs_of(*asked, batch=9, updates=2))
    slow = DatasetSource(HostDataset(log), None, None, None, fast.needs, fast.left)
    _, quick = collect(fast, None, KEYS)
    _, read = collect(slow, None, KEYS)
    jax.tree.map(np.testing.assert_array_equal, quick, read)
    _, idle = slow.collect(None, KEYS, lambda feed: False)
    shapes = jax.tree.map(lambda x: (x.shape, x.dtype), (idle.batches[""], quick))
    assert shapes[0] == shapes[1]


def replay(*beside, **more):
    start = random_keys.for_seeds(jnp.arange(SEEDS, dtype=jnp.int32), "start", 0)
    needs = needs_of(*beside, batch=256, collect=4, **more)
    return Replay.create(Rollout.create(Marked(), 4, start), needs, 1, start)


@pytest.mark.parametrize("priority", [0.0, 0.6])
def test_later_rows_of_a_replay_are_of_the_known_part_of_the_episode(priority):
    asked = (Beside("goal", Later(share=(0.2, 0.6, 0.2))), Beside("next", Later(2)))
    source, checked = replay(*asked, priority=priority), 0
    for time in range(14):
        keys = random_keys.for_seeds(jnp.arange(SEEDS, dtype=jnp.int32), "round", time)
        source, batch = eqx.filter_jit(collect)(source, Idle(), keys)
        batch = jax.tree.map(lambda x: np.asarray(x).reshape(-1, *x.shape[3:]), batch)
        given, held = 4 * (time + 1), int(source.ring.row_count)
        for at in np.flatnonzero(batch.mask):
            now = batch.obs["observation"][at].astype(int)
            first = begun(*now[:3])
            known = min(length(*now[:3]), given - first) if first >= given - held else now[3]
            goal, following = batch.beside["goal"], batch.beside["next"]
            steps = int(goal.extras["steps"][at])
            assert following.extras["steps"][at] == min(2, known - now[3])
            for each, ahead in ((goal, steps), (following, min(2, known - now[3]))):
                if ahead < 0:
                    assert (each.obs["observation"][at, 0] == now[0]).all()  # of the same seed
                    continue
                there = each.obs["observation"][at].astype(int)
                np.testing.assert_array_equal(there, [*now[:3], now[3] + ahead])
                assert each.mask[at] == (ahead == 0 or now[3] + ahead < known)
                checked += 1
    assert checked > 3000


def test_rows_beside_a_replays_have_what_is_kept_of_them():
    """Final observations have none of it."""
    needs = needs_of(Beside("goal", Later(share=(0.2, 0.6, 0.2))), batch=256, collect=16)
    needs = dataclasses.replace(needs, keep=("episode/length",))
    start = random_keys.for_seeds(jnp.arange(SEEDS, dtype=jnp.int32), "start", 0)
    source = Replay.create(Rollout.create(Marked(), 16, start), needs, 1, start)
    goal = drawn(source, Idle()).beside["goal"]
    steps = goal.obs["observation"][:, 3] + 1
    np.testing.assert_array_equal(goal.extras["episode/length"][goal.mask], steps[goal.mask])
    final = ~goal.mask & (goal.extras["steps"] > 0)
    assert final.sum() > 20
    assert not goal.extras["episode/length"][final].any()


def test_rows_from_anywhere_in_a_replay_are_of_its_own_seed():
    source = replay(Beside("more", Anywhere(64)))
    for time in range(3):
        keys = random_keys.for_seeds(jnp.arange(SEEDS, dtype=jnp.int32), "round", time)
        source, batch = collect(source, Idle(), keys)
    more = batch.beside["more"]
    seen = np.asarray(more.obs["observation"])
    assert seen.shape == (SEEDS, 1, 64, 4)
    for seed in range(SEEDS):
        assert (seen[seed, ..., 0] == seed).all()
    assert np.unique(seen[0, 0, :, 1]).size == ENVS


def test_rows_of_the_log_stand_beside_rollouts_and_replays(log):
    beside = (Beside("expert", Anywhere(32), of="log"),)
    for needs in (
        Needs(4, (Feed("fresh", beside=beside),)),
        Needs(4, (Feed(batch=16, updates=3, beside=beside),), capacity=20 * ENVS),
    ):
        start = random_keys.for_seeds(jnp.arange(SEEDS, dtype=jnp.int32), "start", 0)
        own = Rollout.create(Marked(), 4, start)
        own = Replay.create(own, needs, 1, start) if needs.replays else own
        source = BesideLog.create(own, log, needs, "uniform")
        _, batch = eqx.filter_jit(collect)(source, Idle(), KEYS, needs.feeds[0])
        expert = batch.beside["expert"]
        assert expert.obs.shape == (SEEDS, *((3,) if needs.replays else ()), 32, 2)
        assert not np.array_equal(expert.obs[0], expert.obs[1])
        assert set(np.unique(expert.obs[..., 0])) <= {0, 1, 2, 3}


def test_what_changes_a_batch_changes_the_rows_beside_it(log):
    """Augmentation, and the entries that a policy does not see."""
    source = DatasetSource.create(log, needs_of(Beside("goal", Later(1)), batch=8))

    def doubled(record, key):
        both = (2 * record.obs, 2 * record.next_obs)
        return eqx.tree_at(lambda x: (x.obs, x.next_obs), record, both)

    plain, changed = drawn(source), drawn(Augment(source, doubled))
    for name in ("obs", "next_obs"):
        own, its = (getattr(x.beside["goal"], name) for x in (plain, changed))
        np.testing.assert_array_equal(2 * own, its)

    class Watcher:
        def learn(self, state, batch, key):
            return batch

    world = replay(Beside("goal", Later(1)))
    _, batch = collect(world, Idle(), KEYS)
    seen = BlindedAlgorithm(Watcher(), ("desired_goal",)).learn(None, batch, None)
    for record in (seen, seen.beside["goal"]):
        for obs in (record.obs, record.next_obs):
            assert set(obs) == {"observation", "achieved_goal"}


def test_rows_beside_are_divided_among_the_stores_of_a_mixture(log):
    asked = (Beside("goal", Later()), Beside("more", Anywhere(10)))
    parts = needs_of(*asked, batch=8).divided(0.25)
    both = Mix(tuple(DatasetSource.create(log, part) for part in parts))
    _, batch = collect(both, None, KEYS, needs_of(*asked, batch=8).feeds[0])
    assert batch.obs.shape[2] == 8
    assert batch.beside["more"].obs.shape[2] == 10
    rows, goals = np.asarray(batch.obs), np.asarray(batch.beside["goal"].obs)
    np.testing.assert_array_equal(rows[..., 0], goals[..., 0])


@pytest.mark.parametrize(
    ("made", "words"),
    [
        (lambda: Anywhere(0), "a number of rows above 0"),
        (lambda: Later(-1), "steps of at least 0"),
        (lambda: Later(discount=0.0), "a discount above 0"),
        (lambda: Later(share=(0.5, 0.2, 0.2)), "whose sum is 1"),
        (lambda: Later(3, share=(0.5, 0.5, 0.0)), "Leave out share and discount"),
        (lambda: Beside("x", Anywhere(1), of="replay"), "its own store or 'log'"),
        (lambda: Beside("x", Later(), of="log"), "Leave out of"),
        (lambda: Beside("x", SameTask(3), of="log"), "SameTask is a law of the batch's own store"),
        (lambda: SameTask(0), "a number of rows above 0"),
        (lambda: SameTask(3, ""), "the name of a number"),
        (lambda: Feed("fresh", beside=(Beside("x", SameTask(3)),)), "give of='log'"),
        (lambda: Feed(priority=0.6, beside=(Beside("x", SameTask(3)),)), "Leave out priority"),
        (lambda: Feed(beside=(Beside("", Later()),)), "names of their own"),
        (lambda: Feed(beside=(Beside("x", Later()),) * 2), "names of their own"),
        (lambda: Feed(beside=(Beside("x", Later(not_after="y")),)), "must stand before it"),
        (lambda: Feed("fresh", beside=(Beside("x", Later()),)), "give of='log'"),
        (lambda: Feed("texts", beside=(Beside("x", Anywhere(1)),)), "no rows beside it"),
        (lambda: Feed(length=3, beside=(Beside("x", Later()),)), "beside single rows"),
        (lambda: Beside("x", Anywhere(1)).divided(0.5), "needs 2 rows"),
    ],
)
def test_rows_that_cannot_stand_beside_a_batch_are_refused(made, words):
    with pytest.raises(Mistake, match=words):
        made()
