"""Replay gives back what was, joined to what followed, and nothing else."""

import dataclasses
import re

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from collected import batches, collect, replayed, tell
from gymnasium import spaces
from hypothesis import given, settings
from hypothesis import strategies as some

from sterling import random_keys
from sterling.experience import store_memory_check
from sterling.experience.replay.priority_tree import NOWHERE, SumTree
from sterling.experience.replay.replay_buffer import Replay
from sterling.experience.replay.ring_buffer import Place, Ring
from sterling.experience.rollouts.rollout import Rollout
from sterling.problem.channels import Channel
from sterling.types import Mistake, Needs, Record, Spec, Step, Transitions

FIELDS = 5  # of an observation: seed, env, episode, step, clock


def length(seed, env, episode):
    """How long an episode is: from one step up."""
    return 1 + (5 * episode + 3 * env + seed) % 7


class Counter:
    """Observations say which seed, env, episode and step it is, and how often it was stepped."""

    exact = True

    def __init__(self, seeds=(0,), envs=1, stack=0, traced=True, first=0):
        self.names, self.seeds, self.stack, self.traced = seeds, len(seeds), stack, traced
        self.first = first  # episode
        obs = spaces.Box(-np.inf, np.inf, (FIELDS,), np.float32)
        if stack:
            obs = spaces.Box(0, 255, (stack, FIELDS, 1), np.uint8)
        self.spec = Spec(obs, spaces.Discrete(9), envs)

    def reset(self, keys):
        shape = (self.seeds, self.spec.envs)
        seed = jnp.broadcast_to(jnp.asarray(self.names, jnp.int32)[:, None], shape)
        env = jnp.broadcast_to(jnp.arange(self.spec.envs, dtype=jnp.int32)[None], shape)
        zero = jnp.zeros(shape, jnp.int32)
        now = jnp.stack([seed, env, zero + self.first, zero, zero], -1)
        past = jnp.repeat(self.frame(now)[:, :, None], max(self.stack, 1), 2)
        return (now, past, jnp.zeros(shape, bool)), past if self.stack else now.astype(jnp.float32)

    def frame(self, now):
        return now[..., None].astype(jnp.uint8)

    def step(self, state, action, keys):
        now, past, ended = state
        seed, env, episode, step, clock = (now[..., i] for i in range(FIELDS))
        reward = jnp.where(ended, 0.0, (10 * episode + step).astype(jnp.float32))
        episode, step = jnp.where(ended, episode + 1, episode), jnp.where(ended, 0, step + 1)
        last = ~ended & (step == length(seed, env, episode))
        discount = jnp.where(last & (episode % 2 == 0), 0.0, 1.0)
        now = jnp.stack([seed, env, episode, step, clock + 1], -1)
        newest = self.frame(now)[:, :, None]
        moved = jnp.concatenate([past[:, :, 1:], newest], 2)
        past = jnp.where(ended[..., None, None, None], jnp.broadcast_to(newest, past.shape), moved)
        obs = past if self.stack else now.astype(jnp.float32)
        return (now, past, last), Step(obs, reward, discount, last, ~ended)

    def close(self):
        pass


class Host(Counter):
    """The same on the host: NumPy in, NumPy out."""

    def __init__(self, **options):
        super().__init__(**options, traced=False)
        self.compiled = jax.jit(super().step)

    def step(self, state, action, keys):
        assert isinstance(action, np.ndarray)
        return jax.tree.map(np.asarray, self.compiled(state, action, keys))


class Teller(eqx.Module):
    """Acts by what it sees, so that actions can be checked."""

    def act(self, obs, keys, explore):
        newest = obs[:, :, -1, :, 0] if obs.ndim == 5 else obs
        return (newest[..., 2].astype(jnp.int32) + newest[..., 3].astype(jnp.int32)) % 9, {}


def make(world, steps=None, **needs):
    """A replay of a world whose seeds' keys follow their names."""
    needs = Transitions(**{"batch": 64, "collect": 4, "capacity": 30, **needs})
    start = random_keys.for_seeds(jnp.asarray(world.names, jnp.int32), "start", 0)
    return Replay.create(
        Rollout.create(world, needs.collect, start), needs, world.stack or 1, start, steps
    )


def drawn(replay, rounds, compiled=True):
    """Draw again and again, as NumPy records."""
    names = jnp.asarray(replay.world.names, jnp.int32)
    if compiled:
        replay, stacked = draws(replay, names, jnp.arange(rounds, dtype=jnp.int32))
        stacked = jax.tree.map(np.asarray, stacked)
        return replay, [jax.tree.map(lambda x, r=r: x[r], stacked) for r in range(rounds)]
    batches = []
    for round_ in range(rounds):
        replay, batch = collect(replay, Teller(), random_keys.for_seeds(names, "draw", round_))
        batches.append(jax.tree.map(np.asarray, batch))
    return replay, batches


@eqx.filter_jit
def draws(replay, names, rounds):
    """Several rounds in one program."""

    def draw(replay, round_):
        return collect(replay, Teller(), random_keys.for_seeds(names, "draw", round_))

    return jax.lax.scan(draw, replay, rounds)


def flat(batch):
    """Every leaf ``(rows, ...)``."""
    return jax.tree.map(lambda x: x.reshape(-1, *x.shape[3:]), batch)


def check(batch, now, rows, n_step=1, gamma=1.0):
    """Every transition is one that happened, whole, within one episode, and still remembered."""
    rowed = flat(batch)
    seed, env, episode, step, clock = rowed.obs.astype(int).T
    size = length(seed, env, episode)
    np.testing.assert_array_equal(rowed.mask, step < size)
    taken = np.minimum(n_step, size - step)
    ahead = np.arange(n_step)[None]
    rewards = (10 * episode + step)[:, None] + ahead
    expected = (gamma**ahead * rewards * (ahead < taken[:, None])).sum(1)
    over = step + taken == size
    world = np.where(over & (episode % 2 == 0), 0.0, 1.0)
    then = np.stack([seed, env, episode, step + taken, clock + taken], 1)
    for found, right in (
        (rowed.next_obs, then),
        (rowed.reward, expected),
        (rowed.discount, world * gamma ** (taken - 1.0)),
        (rowed.last, over),
        (rowed.action, (episode + step) % 9),
    ):
        np.testing.assert_allclose(found[rowed.mask], right[rowed.mask], rtol=1e-5)
    assert clock.max() <= now - n_step
    assert clock.min() >= max(0, now - rows + 1)


@pytest.mark.parametrize(
    ("n_step", "gamma", "priority"),
    [
        *((1, 1.0, 0.0), (3, 0.5, 0.7)),
        *(
            pytest.param(*case, marks=pytest.mark.slow)
            for case in ((1, 1.0, 0.7), (3, 0.5, 0.0), (4, 0.9, 0.0), (4, 0.9, 0.7))
        ),
    ],
)
def test_replay_transitions_join_no_episodes_or_ring_laps(n_step, gamma, priority):
    world = Counter(seeds=(0, 5), envs=2)
    replay = make(world, capacity=46, n_step=n_step, gamma=gamma, priority=priority)
    rows, seen = 23, 0
    _, batches = drawn(replay, 40)
    for round_, batch in enumerate(batches):
        now = 4 * (round_ + 1)
        check(batch, now, rows, n_step, gamma)
        seen += batch.mask.sum()
    assert seen > 40 * 100


@settings(max_examples=4)
@given(
    n_step=some.integers(1, 4),
    collect=some.integers(1, 5),
    envs=some.integers(1, 3),
    spare=some.integers(0, 9),
)
@pytest.mark.slow
def test_replay_transitions_join_no_episodes_for_any_ring_size(n_step, collect, envs, spare):
    rows = collect + n_step + 2 + spare
    replay = make(
        Counter(envs=envs), n_step=n_step, gamma=0.5, collect=collect, capacity=rows * envs
    )
    for round_, batch in enumerate(drawn(replay, 12)[1]):
        now = collect * (round_ + 1)
        if now >= n_step:
            check(batch, now, rows, n_step, 0.5)
        else:
            assert not batch.mask.any()


@pytest.mark.parametrize(
    ("n_step", "priority"),
    [(1, 0.0), pytest.param(3, 0.0, marks=pytest.mark.slow), (2, 0.5)],
)
def test_replay_rebuilds_frame_stacks_exactly(n_step, priority):
    replay = make(Counter(envs=2, stack=3), capacity=50, n_step=n_step, priority=priority)
    for batch in drawn(replay, 40)[1]:
        rows = flat(batch)
        for obs in (rows.obs[rows.mask], rows.next_obs[rows.mask]):
            frames = obs[..., 0].astype(int)  # (rows, stack, fields)
            newest = frames[:, -1]
            for lag in range(3):
                back = np.minimum(lag, newest[:, 3])  # an episode's first frame is repeated
                expected = newest - back[:, None] * np.array([0, 0, 0, 1, 1])
                np.testing.assert_array_equal(frames[:, 2 - lag], expected % 256)
        size = length(0, rows.obs[:, -1, 1, 0], rows.obs[:, -1, 2, 0].astype(int))
        taken = np.minimum(n_step, size - rows.obs[:, -1, 3, 0])
        steps = rows.next_obs[:, -1, 3, 0].astype(int) - rows.obs[:, -1, 3, 0]
        np.testing.assert_array_equal(steps[rows.mask], taken[rows.mask])


class Unsaved(Counter):
    """The same, where episodes cannot be saved."""

    exact = False


@pytest.mark.parametrize(
    ("stack", "before", "n_step", "priority"),
    [
        *((0, 2, 1, 0.0), (3, 20, 3, 0.5)),
        *(
            pytest.param(*case, marks=pytest.mark.slow)
            for case in (
                *((0, 2, 3, 0.0), (0, 2, 1, 0.5), (0, 2, 3, 0.5)),
                *((3, 2, 1, 0.0), (3, 2, 3, 0.0), (3, 2, 1, 0.5), (3, 2, 3, 0.5)),
                *((3, 20, 1, 0.0), (3, 20, 3, 0.0), (3, 20, 1, 0.5)),
            )
        ),
    ],
)
def test_replay_transitions_never_join_rows_across_a_resume(n_step, priority, stack, before):
    """Also where the ring is full, and with every row remembered from before."""
    how = {"capacity": 60, "batch": 512, "n_step": n_step, "priority": priority}
    replay, _ = drawn(make(Unsaved(envs=2, stack=stack), **how), before)
    end = np.asarray(replay.source.obs).reshape(1, 2, -1, FIELDS)[0, :, -1].astype(int)
    fresh = make(Unsaved(envs=2, stack=stack, first=100), **how)
    resumed, batches = drawn(replay.to_checkpoint().from_checkpoint(fresh), 3)
    assert int(resumed.ring.count) == min(4 * before + 1 + 12, 30)
    met = set()
    for batch in map(flat, batches):
        frames = [
            np.reshape(x[batch.mask], (batch.mask.sum(), -1, FIELDS)).astype(int)
            for x in (batch.obs, batch.next_obs)
        ]  # (rows, stack, fields)
        (_, env, episode, step, _), now = frames[0][:, -1].T, frames[1][:, -1]
        cut = episode == end[env, 2]  # under way at the time
        size = np.where(
            cut, np.minimum(end[env, 3], length(0, env, episode)), length(0, env, episode)
        )
        taken = np.minimum(n_step, size - step)
        np.testing.assert_array_equal(now[:, :4].T, [0 * env, env, episode, step + taken])
        for each in frames:
            back = np.minimum(np.arange(each.shape[1])[None, ::-1], each[:, -1:, 3])
            np.testing.assert_array_equal(each[:, :, 3], each[:, -1:, 3] - back)
            np.testing.assert_array_equal(each[:, :, 2], each[:, -1:, 2] + 0 * back)
        over = step + taken == length(0, env, episode)
        np.testing.assert_array_equal(batch.last[batch.mask], over)
        np.testing.assert_array_equal(batch.discount[batch.mask] == 0, over & (episode % 2 == 0))
        met |= set(zip(env, episode, step, strict=True))
    for env in range(2):
        last = (env, end[env, 2], end[env, 3] - 1)
        assert last in met or end[env, 3] == 0


def test_replay_next_action_is_the_taken_one_or_the_row_is_last():
    """Also of the newest row, and of those before a resume."""
    how = {"capacity": 60, "batch": 512, "add": ("next_action",)}
    replay, first = drawn(make(Unsaved(envs=2), **how), 2)
    fresh = make(Unsaved(envs=2, first=100), **how)
    for batch in map(flat, first + drawn(replay.to_checkpoint().from_checkpoint(fresh), 3)[1]):
        _, _, episode, step, _ = batch.obs.astype(int).T
        done = np.where(batch.last, 0, (episode + step + 1) % 9)
        np.testing.assert_array_equal(batch.extras["next_action"][batch.mask], done[batch.mask])
        assert not batch.last[batch.mask].all()


@pytest.mark.parametrize("length", [0, pytest.param(4, marks=pytest.mark.slow)])
def test_replay_rows_have_their_place_and_the_reward_of_their_own_step(length):
    needs = {"add": ("one_step", "place"), "n_step": 3, "gamma": 0.9}
    replay = make(Counter(envs=2), capacity=60, batch=64, **needs)
    feed = dataclasses.replace(replay.needs.feeds[0], length=length)
    replay = dataclasses.replace(replay, needs=Needs(1, (feed,), 60))
    replay, batches = drawn(replay, 12)
    ring, rows = replay.ring, jax.tree.map(lambda x: np.asarray(x[0, 0]), batches[-1])
    start = rows.extras["place"]
    ahead = np.arange(max(length, 1))
    at = (start[:, None] // 2 + ahead) % ring.rows, start[:, None] % 2
    words = np.asarray(ring.words[0]).view(np.float32)
    one = words[at[0], at[1], 0]
    np.testing.assert_array_equal(rows.extras["reward_now"].reshape(one.shape), one)
    assert rows.extras["discount_now"].shape == rows.reward.shape
    assert (rows.reward != rows.extras["reward_now"]).any()


def test_replay_of_frame_stacks_keeps_one_frame_per_step():
    whole, single = make(Counter(stack=3)), make(Counter(stack=3))
    assert single.ring.wide[0].shape == (1, 30, 1, 1, FIELDS, 1)
    assert single.ring.wide[0].dtype == jnp.uint8
    assert whole.source.obs.shape == (1, 1, 3, FIELDS, 1)


def test_replay_draws_rows_uniformly():
    replay = make(Counter(envs=2), capacity=40, batch=4000, n_step=2)
    batch = flat(drawn(replay, 12)[1][-1])
    place = batch.obs[:, 4].astype(int) * 2 + batch.obs[:, 1].astype(int)
    found, counts = np.unique(place, return_counts=True)
    assert len(found) == 2 * (20 - 1 - 1)  # one row half overwritten, one window incomplete
    expected = 4000 / len(found)
    assert np.square(counts - expected).sum() / expected < 75  # chi2, 35 degrees: p < 1e-4


@pytest.mark.parametrize("priority", [pytest.param(0.0, marks=pytest.mark.slow), 0.7])
def test_replay_draws_of_a_seed_are_independent_of_other_seeds(priority):
    together = make(Counter(seeds=(3, 1, 7), envs=2), capacity=46, priority=priority)
    alone = make(Counter(seeds=(1,), envs=2), capacity=46, priority=priority)
    for many, one in zip(drawn(together, 8)[1], drawn(alone, 8)[1], strict=True):
        jax.tree.map(lambda m, o: np.testing.assert_array_equal(m[1], o[0]), many, one)


@pytest.mark.parametrize("priority", [pytest.param(0.0, marks=pytest.mark.slow), 0.7])
def test_replay_of_host_and_compiled_environments_draws_alike(priority):
    needs = {"capacity": 46, "warmup": 6, "priority": priority}
    start = random_keys.for_seeds(jnp.arange(1, dtype=jnp.int32), "warm", 0)
    compiled = make(Counter(envs=2), **needs).warm_up(Teller(), start)
    host = make(Host(envs=2), **needs).warm_up(Teller(), start)
    error = jnp.arange(64, dtype=jnp.float32).reshape(1, 1, 64)
    for _ in range(3):
        compiled, ones = drawn(compiled, 2)
        host, others = drawn(host, 2, compiled=False)
        jax.tree.map(np.testing.assert_array_equal, ones, others)
        told = {"td_error": error}
        compiled, host = (
            tell(replay, replayed(replay), one[-1], told)
            for replay, one in ((compiled, ones), (host, others))
        )


@pytest.mark.parametrize(
    "space",
    [
        pytest.param(spaces.Discrete(4), marks=pytest.mark.slow),
        spaces.MultiDiscrete([2, 3]),
        spaces.Box(-1.0, 1.0, (2, 3)),
    ],
)
def test_replay_warm_up_takes_uniform_random_actions(space):
    world = Counter(envs=3)
    world.spec = dataclasses.replace(world.spec, action=space)
    replay = make(world, capacity=900, warmup=700)
    replay = replay.warm_up(
        Teller(), random_keys.for_seeds(jnp.arange(1, dtype=jnp.int32), "warm", 0)
    )
    assert int(replay.ring.count) == -(-700 // 3)
    row = jnp.arange(233, dtype=jnp.int32).reshape(1, -1)
    place = Place.of_all(row, jnp.zeros_like(row))
    actions = np.asarray(replay.ring.action(place))[0].reshape(233, -1)
    if isinstance(space, spaces.Box):
        assert actions.min() < -0.95
        assert actions.max() > 0.95
        assert np.abs(actions.mean(0)).max() < 0.2
        assert replay.ring.action(place).shape == (1, 233, 2, 3)
    else:
        choices = [4] if isinstance(space, spaces.Discrete) else [2, 3]
        for column, count in zip(actions.T, choices, strict=True):
            counts = np.bincount(column, minlength=count)
            assert len(counts) == count
            assert counts.min() > 0.7 * 233 / count


class Forbidding(Counter):
    """Allows only the action that equals the step modulo nine."""

    def reset(self, keys):
        state, obs = super().reset(keys)
        return state, self.told(obs)

    def step(self, state, action, keys):
        state, step = super().step(state, action, keys)
        return state, dataclasses.replace(step, obs=self.told(step.obs))

    def told(self, obs):
        return {"obs": obs, "action_mask": jax.nn.one_hot(obs[..., 3], 9, dtype=jnp.int8)}


def test_replay_warm_up_respects_and_stores_the_action_mask():
    replay = make(Forbidding(), capacity=300, warmup=200)
    replay = replay.warm_up(
        Teller(), random_keys.for_seeds(jnp.arange(1, dtype=jnp.int32), "warm", 0)
    )
    row = jnp.arange(200, dtype=jnp.int32).reshape(1, -1)
    place = Place.of_all(row, row * 0)
    obs, action = replay.ring.obs(place), replay.ring.action(place)
    np.testing.assert_array_equal(action, obs["obs"][..., 3])
    np.testing.assert_array_equal(action, obs["action_mask"].argmax(-1))


@pytest.mark.slow
def test_ring_buffer_stores_every_dtype_bit_for_bit():
    rng = np.random.default_rng(0)
    shape = (2, 5, 3)  # seed, time, env

    def block(lead):
        return {
            "real": rng.normal(size=(*lead, 4)).astype(np.float32) * 1e-40,  # denormal
            "count": rng.integers(-(2**31), 2**31, size=(*lead, 2)).astype(np.int32),
            "flag": rng.random(lead) < 0.5,
            "little": rng.integers(-128, 128, size=(*lead, 3)).astype(np.int8),
            "half": rng.normal(size=(*lead, 2)).astype(np.float16),
            "grid": rng.random((*lead, 6, 6, 2)) < 0.5,
            "picture": rng.integers(256, size=(*lead, 3, 8, 8)).astype(np.uint8),
        }

    obs, action = block(shape), rng.normal(size=(*shape, 2)).astype(np.float32)
    obs, action = jax.tree.map(jnp.asarray, (obs, action))
    ones, yes = jnp.ones(shape), jnp.ones(shape, bool)
    record = Record(obs, action, ones, ones, obs, yes, yes)
    ring = Ring.create(9, jax.tree.map(lambda x: x[:, 0], obs), action[:, 0])
    assert len(ring.wide) == 3
    insert = jax.jit(lambda ring: ring.insert(record))
    for _ in range(3):
        ring = insert(ring)
    row, env = (x.reshape(-1) for x in np.meshgrid(np.arange(5), np.arange(3)))
    places = [jnp.broadcast_to(jnp.asarray(x, jnp.int32)[None], (2, 15)) for x in (row, env)]
    place = Place.of_all((places[0] + 10) % 9, places[1])  # the third block began at row 10
    back = ring.obs(place)
    jax.tree.map(lambda b, o: np.testing.assert_array_equal(b, o[:, row, env]), back, obs)
    found = ring.action(place)
    np.testing.assert_array_equal(found, action[:, row, env])


@pytest.mark.parametrize(
    "size", [1, 31, 1025, *(pytest.param(x, marks=pytest.mark.slow) for x in (1024, 3000))]
)
def test_sum_tree_finds_places_in_proportion_to_priority(size):
    rng = np.random.default_rng(size)
    values = np.where(rng.random((2, size)) < 0.3, 0.0, rng.random((2, size))).astype(np.float32)
    values[:, 0] = 0.5
    everywhere = jnp.broadcast_to(jnp.arange(size, dtype=jnp.int32)[None], (2, size))
    tree = jax.jit(SumTree.put)(SumTree.zeros(2, size), everywhere, jnp.asarray(values))
    sums = values.astype(np.float64).cumsum(1)
    np.testing.assert_allclose(tree.total, sums[:, -1], rtol=1e-5)
    share = rng.random((2, 50)).astype(np.float32)
    share[:, :2] = [0.0, np.nextafter(np.float32(1), np.float32(0))]
    found = np.asarray(jax.jit(SumTree.find)(tree, jnp.asarray(share)))
    for each in range(2):
        assert (values[each, found[each]] > 0).all()
        before = np.concatenate([[0.0], sums[each]])[found[each]] / sums[each, -1]
        after = sums[each, found[each]] / sums[each, -1]
        assert ((before - 1e-5 <= share[each]) & (share[each] <= after + 1e-5)).all()


def test_sum_tree_put_keeps_the_largest_of_duplicates_and_skips_nowhere():
    put, first = jax.jit(SumTree.put), jnp.asarray([[7, 8, NOWHERE, NOWHERE, NOWHERE]])
    tree = put(SumTree.zeros(1, 100), first, jnp.asarray([[9.0, 1.0, 1.0, 1.0, 1.0]]))
    place = jnp.asarray([[7, 7, 7, NOWHERE, 99]])
    tree = put(tree, place, jnp.asarray([[2.0, 5.0, 3.0, 50.0, 4.0]]))
    np.testing.assert_array_equal(tree.get(jnp.asarray([[7, 8, 99]])), [[5.0, 1.0, 4.0]])
    assert float(tree.total[0]) == 10.0


def test_prioritised_replay_draws_and_weights_rows_by_td_error():
    replay = make(Counter(), capacity=40, batch=2000, priority=0.5, correction=0.8)
    replay, batches = drawn(replay, 5)
    new = flat(batches[-1])
    np.testing.assert_allclose(new.extras["weight"], 1.0)  # all have the same priority
    errors = 1.0 + np.asarray(batches[-1].obs)[..., 4] ** 2
    found = {"td_error": jnp.asarray(-errors)}
    replay = tell(replay, replayed(replay), batches[-1], found)
    assert float(replay.priorities.largest[0]) == pytest.approx(errors.max() ** 0.5, rel=1e-4)
    replay, batches = drawn(replay, 1)
    batch = flat(batches[0])
    clock = batch.obs[:, 4].astype(int)
    assert batch.mask.all()  # rows that are no experience have no priority
    counts = np.bincount(clock, minlength=24)
    priority = np.sqrt(1.0 + np.arange(24.0) ** 2)
    priority[20:] = np.sqrt(errors.max())  # came after the errors: the largest so far
    priority = np.where(counts > 0, priority, 0.0)
    share = priority / priority.sum()
    np.testing.assert_allclose(counts / 2000, share, atol=0.002)  # stratified: hardly any noise
    weight = (priority[clock] / priority[clock].min()) ** -0.8
    np.testing.assert_allclose(batch.extras["weight"], weight, rtol=1e-3)


def test_uniform_replay_gives_no_weights_and_ignores_errors():
    replay, batches = drawn(make(Counter()), 1)
    assert batches[0].extras == {}
    assert tell(replay, replayed(replay), batches[0], {}).priorities is None


def assert_alike(one, other):
    """The same experience, drawn alike."""
    for mine, theirs in zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True):
        np.testing.assert_array_equal(mine, theirs)


@pytest.mark.slow
@pytest.mark.parametrize(("n_step", "priority"), [(1, 0.0), (3, 0.6)])
@pytest.mark.parametrize("stack", [0, 3])
def test_replay_sized_for_few_steps_draws_as_a_large_one(n_step, priority, stack):
    """And one that is given more steps goes on as if it had had them from the start."""
    how = {"capacity": 10_000, "n_step": n_step, "priority": priority}
    worlds = [Counter(seeds=(0, 5), envs=2, stack=stack) for _ in range(2)]
    large, small = make(worlds[0], **how), make(worlds[1], steps=200, **how)
    assert (large.ring.rows, small.ring.rows) == (5_000, 256)
    (large, before), (small, batches) = drawn(large, 25), drawn(small, 25)
    assert_alike(before, batches)
    small = small.to_checkpoint().from_checkpoint(make(worlds[1], steps=2_000, **how))
    assert small.ring.rows == 2_048
    (large, before), (small, batches) = drawn(large, 25), drawn(small, 25)
    assert_alike(before, batches)
    assert (
        small.to_checkpoint().from_checkpoint(make(worlds[1], steps=200, **how)).ring.rows == 2_048
    )


@pytest.mark.parametrize(
    ("n_step", "priority"), [pytest.param(1, 0.0, marks=pytest.mark.slow), (3, 0.6)]
)
def test_replay_grows_its_capacity_without_losing_rows(n_step, priority):
    how = {"n_step": n_step, "priority": priority, "batch": 256}
    replay, _ = drawn(make(Counter(envs=2), capacity=46, **how), 40)
    assert int(replay.ring.count) == replay.ring.rows == 23
    larger, batches = drawn(
        replay.to_checkpoint().from_checkpoint(make(Counter(envs=2), capacity=80, **how)), 3
    )
    assert int(larger.ring.count) == 22 + 3 * 4
    for round_, batch in enumerate(batches):
        check(batch, now := 4 * (41 + round_), rows := 24 + 4 * (1 + round_), n_step)
        oldest = flat(batch).obs[:, 4].min()  # the clock of its row: nothing was dropped
        assert oldest <= now - rows + 2


def test_replay_refuses_invalid_settings_and_misuse():
    with pytest.raises(
        Mistake, match="capacity of 12 is too small for 3 envs; set capacity to at least 21"
    ):
        make(Counter(envs=3), capacity=12)
    source, start = (
        make(Counter(stack=3)).source,
        random_keys.for_seeds(jnp.zeros(1, jnp.int32), "x", 0),
    )
    with pytest.raises(Mistake, match="is a stack of 4 frames"):
        Replay.create(source, Transitions(8, 4), 4, start)
    replay, batches = drawn(make(Counter(), priority=0.5), 1)
    with pytest.raises(Mistake, match="needs the learner's samples"):
        tell(replay, replayed(replay), batches[0], {})


def test_replay_refuses_a_capacity_beyond_free_memory(monkeypatch):
    words = r"of (1|,000)+ transitions for each of 2 seeds needs \S+ GB, but \S+ GB are free;"
    with pytest.raises(Mistake, match=words) as error:
        make(Counter(seeds=(0, 1)), capacity=10**12)
    assert "\n" not in str(error.value)
    monkeypatch.setattr(store_memory_check, "free_bytes", lambda: 1_000)
    with pytest.raises(Mistake, match=r"needs 1\.6e-05 GB, but 1e-06 GB are free; set capacity=20"):
        make(Counter(), capacity=400)
    monkeypatch.setattr(
        store_memory_check, "free_bytes", lambda: None
    )  # where nobody knows nothing is refused
    make(Counter(), capacity=400)


def test_replay_keeps_stacks_of_vectors_whole():
    """Only pictures are wide enough to be stored frame by frame."""
    source, start = make(Counter()).source, random_keys.for_seeds(jnp.zeros(1, jnp.int32), "x", 0)
    stacked, single = (Replay.create(source, Transitions(8, 4), n, start).ring for n in (2, 1))
    assert jax.tree.structure(stacked) == jax.tree.structure(single)


@pytest.mark.parametrize("priority", [0.0, 0.6])
def test_replay_iteration_updates_the_ring_buffer_in_place(priority):
    """The compiled loop writes in place: its time does not grow with the capacity."""
    rows = 70_000
    replay = make(Counter(), capacity=rows, priority=priority, collect=1)

    def body(round_, replay):
        key = random_keys.for_seeds(jnp.zeros(1, jnp.int32), "draw", round_)
        replay, draws = replay.collect(Teller(), key)
        batch = batches(draws, key)
        return tell(replay, draws, batch, {"td_error": batch.reward + 1.0})

    loop = jax.jit(lambda replay: jax.lax.fori_loop(0, 9, body, replay), donate_argnums=0)
    text = loop.lower(replay).compile().as_text()
    large = rf"(u32\[1,{rows},|f32\[1,{-(-rows // 32)},32\])"
    assert re.search(large, text)
    assert not re.findall(rf"= {large}\S* copy\(", text)


class Reporting(Counter):
    """The same, which reports the clock: as a sum, as the last value, and as a row of two."""

    def __init__(self, **options):
        super().__init__(**options)
        channels = {
            "spent": Channel(),
            "place": Channel(reduce="last"),
            "aims": Channel(parts=("near", "far")),
        }
        self.spec = dataclasses.replace(self.spec, channels=channels)

    def step(self, state, action, keys):
        state, step = super().step(state, action, keys)
        clock = jnp.where(step.mask, state[0][..., 4].astype(jnp.float32), 0.0)
        reported = {"spent": clock, "place": clock, "aims": jnp.stack([clock, -clock], -1)}
        return state, dataclasses.replace(step, channels=reported)


@pytest.mark.parametrize("n_step", [pytest.param(1, marks=pytest.mark.slow), 3])
def test_replay_sums_kept_channels_over_the_n_step_window(n_step):
    world, gamma = Reporting(seeds=(0, 1), envs=2), 0.5
    keep = ("spent", "place", "aims")
    needs = Transitions(batch=64, collect=8, capacity=60, n_step=n_step, gamma=gamma, keep=keep)
    start = random_keys.for_seeds(jnp.arange(2, dtype=jnp.int32), "test", 0)
    replay = Replay.create(Rollout.create(world, 8, start), needs, 1, start)
    seeds = jnp.arange(2, dtype=jnp.int32)
    _, found = draws(replay, seeds, jnp.arange(9, dtype=jnp.int32))  # the ring turns more than once
    batch = jax.tree.map(lambda x: np.asarray(x[-1]), found)
    rows = np.flatnonzero(np.asarray(batch.mask[0, 0]))
    assert rows.size > 20
    for row in rows:
        first, final = (np.asarray(x[0, 0, row]) for x in (batch.obs, batch.next_obs))
        clocks = np.arange(first[4], final[4]) + 1.0  # each step reports the clock after it
        total = float((clocks * gamma ** np.arange(clocks.size)).sum())
        np.testing.assert_allclose(batch.extras["spent"][0, 0, row], total, rtol=1e-6)
        np.testing.assert_allclose(batch.extras["aims"][0, 0, row], [total, -total], rtol=1e-6)
        assert float(batch.extras["place"][0, 0, row]) == clocks[0]


def test_replay_refuses_to_keep_undeclared_channels():
    start = random_keys.for_seeds(jnp.arange(1, dtype=jnp.int32), "test", 0)
    needs = Transitions(batch=4, capacity=60, keep=("cost",))
    with pytest.raises(
        Mistake, match="keep names 'cost', but the recorded extras are spent, place"
    ):
        Replay.create(Rollout.create(Reporting(), 1, start), needs, 1, start)


def test_replay_horizon_schedule_sums_equal_smaller_n_and_gamma():
    replay = make(Counter(seeds=(0, 1), envs=2), capacity=60, n_step=4, gamma=0.9)
    replay, _ = drawn(replay, 9)
    _, draws = replay.collect(Teller(), random_keys.for_seeds(jnp.arange(2), "draw", 9))
    feed, seed = replay.needs.feeds[0], jnp.int32(1)
    number = draws.presample(feed, random_keys.for_seeds(jnp.arange(2), "draw", 9))[1, 0]

    @jax.jit
    def draw(*now):
        return draws.draw(dataclasses.replace(feed, n_step_now=now), seed, None, number)

    own = draws.draw(feed, seed, None, number)
    for count, gamma in ((1, 0.9), (2, 0.5), (4, 0.5)):
        found = draw(jnp.int32(count), jnp.float32(gamma))
        fixed = dataclasses.replace(draws.needs, n_step=count, gamma=gamma)
        wanted = dataclasses.replace(draws, needs=fixed).draw(feed, seed, None, number)
        for x, y in zip(jax.tree.leaves(found), jax.tree.leaves(wanted), strict=True):
            np.testing.assert_allclose(x, y, rtol=1e-6)
        assert not np.allclose(found.reward, own.reward)
