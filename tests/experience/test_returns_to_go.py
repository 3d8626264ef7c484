"""Returns to go and totals of episodes in a replay: those of a log, once the episode has ended."""

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from collected import collect
from marked_world import ENVS, SEEDS, Idle, Marked, length

from sterling import random_keys
from sterling.data.episode_returns import discounted_returns
from sterling.experience.replay.replay_buffer import Replay
from sterling.experience.replay.returns_to_go import ReturnsToGo
from sterling.experience.replay.ring_buffer import Place, Ring
from sterling.experience.rollouts.rollout import Rollout
from sterling.problem.channels import Channel
from sterling.training.config.hindsight_option import check_hindsight
from sterling.training.config.option_checks import check_log_and_replay
from sterling.training.saving.added_leaves import added_leaves
from sterling.types import Feed, Mistake, Needs, Record

ROWS, CHUNK, CHUNKS = 17, 4, 12
ALL = Place(*np.meshgrid(np.arange(SEEDS), np.arange(ROWS), np.arange(ENVS), indexing="ij"))


def stream(seed=0):
    """Rows ``(seed, time, env)`` with ends, truncations, crashes, and episodes longer than the
    ring in the last env."""
    rng = np.random.default_rng(seed)
    shape = (SEEDS, CHUNK * CHUNKS, ENVS)
    last, mask = rng.random(shape) < 0.2, rng.random(shape) < 0.95
    last[..., -1], mask[..., -1] = False, True
    last[:, 40, -1] = True
    mask[:, 1:] &= ~last[:, :-1]
    last &= mask
    discount = np.where(last & (rng.random(shape) < 0.5), 0.0, 1.0)
    none = np.zeros((*shape, 1), np.float32)
    reward = (rng.normal(size=shape) + 1.5).astype(np.float32)
    return Record(none, none, reward, discount.astype(np.float32), none, last, mask)


def returns_so_far(rows, gamma, bounded):
    """Of every row ``(seed, time, env)``, by the functions of logs."""
    found = np.full(rows.mask.shape, -np.inf)
    found[~rows.mask] = 0.0
    for seed, env in np.ndindex(SEEDS, ENVS):
        reward = np.where(rows.mask[seed], rows.reward[seed], 0.0)
        lowest = min(reward.min(), 0.0) / max(1.0 - gamma, 1e-6) if bounded else 0.0
        begin = 0
        for time in range(rows.mask.shape[1]):
            if not rows.mask[seed, time, env]:
                begin = time + 1
                continue
            ended = rows.last[seed, time, env]
            broken = time + 1 < rows.mask.shape[1] and not rows.mask[seed, time + 1, env]
            if ended or broken:
                own = slice(begin, time + 1)
                paid = reward[own, env].astype(float)
                discount = rows.discount[seed, own, env].astype(float)
                paid[-1] += gamma * discount[-1] * lowest
                found[seed, own, env] = discounted_returns(paid, gamma, discount)
                begin = time + 1
    return found


@pytest.mark.parametrize(("gamma", "edge"), [(0.9, "cross"), (1.0, "cross"), (0.9, "pad")])
def test_returns_to_go_of_a_ring_are_those_of_a_log_of_its_finished_episodes(gamma, edge):
    rows = stream()
    ring = Ring.create(ROWS, rows.obs[:, 0], rows.action[:, 0])
    feed = Feed(
        batch=1, monte_carlo=gamma, **({"length": 2, "edge": edge} if edge == "pad" else {})
    )
    to_go = ReturnsToGo.create(ring, Needs(feeds=(feed,)))
    insert = jax.jit(lambda to_go, ring, new: (to_go.insert(ring, new), ring.insert(new)))
    lookup = jax.jit(lambda to_go, ring: to_go.lookup(ring, ALL))
    checked = 0
    for end in range(CHUNK, CHUNK * CHUNKS + 1, CHUNK):
        known = jax.tree.map(lambda x, end=end: x[:, :end], rows)
        new = jax.tree.map(lambda x, end=end: x[:, end - CHUNK : end], rows)
        to_go, ring = insert(to_go, ring, new)
        wanted = returns_so_far(known, gamma, edge != "pad")
        held = np.arange(max(end - ROWS, 0), end)
        found = np.asarray(lookup(to_go, ring))[:, held % ROWS]
        np.testing.assert_allclose(found, wanted[:, held], rtol=2e-5, atol=1e-5)
        checked += np.isfinite(found).sum()
    assert checked > 500
    assert np.isneginf(wanted[:, -ROWS:]).any()
    grown = to_go.with_capacity(ring, 2 * ROWS)
    kept = np.asarray(grown.lookup(ring.with_capacity(2 * ROWS), ALL))[:, : ROWS - 1]
    np.testing.assert_allclose(kept, wanted[:, 1 - ROWS :], rtol=2e-5, atol=1e-5)
    assert to_go.shapes_with_capacity(2 * ROWS).total.shape == grown.total.shape


class Costly(Marked):
    """Steps cost more from step to step, and report their number."""

    def __init__(self):
        super().__init__()
        self.spec = dataclasses.replace(self.spec, channels={"spent": Channel()})

    def step(self, state, action, keys):
        number = jnp.where(state[1], 0, state[0][..., 3] + 1).astype(jnp.float32)
        state, step = super().step(state, action, keys)
        reward = jnp.where(step.mask, 1.0 - number, 0.0)
        return state, dataclasses.replace(step, reward=reward, channels={"spent": number})


@eqx.filter_jit
def rounds(replay, keys):
    """The replay after as many iterations as there are keys, and their batches."""
    return jax.lax.scan(lambda replay, key: collect(replay, Idle(), key), replay, keys)


@pytest.mark.parametrize(
    "more", [{"length": 3}, pytest.param({"n_step": 3, "gamma": 0.5}, marks=pytest.mark.slow)]
)
def test_replay_batches_have_returns_to_go_and_kept_totals(more):
    """In a ring that is overwritten more than once."""
    keep = ("episode/return", "episode/length", "episode/spent")
    feed = Feed(batch=64, monte_carlo=0.9, **more)
    needs = Needs(5, (feed,), capacity=20 * ENVS, keep=keep)
    keys = random_keys.for_seeds(jnp.arange(SEEDS, dtype=jnp.int32), "test", 0)
    replay = Replay.create(Rollout.create(Costly(), 5, keys), needs, 1, keys)
    by_round = jnp.stack([random_keys.fold_each(keys, "round", at) for at in range(10)])
    replay, batches = rounds(replay, by_round)
    batch = jax.tree.map(
        lambda x: np.asarray(x[-1]).reshape(-1, *x.shape[4 + len(more) % 2 :]), batches
    )
    own = batch.mask
    seed, env, episode, step = batch.obs["observation"][own].astype(int).T
    size = length(seed, env, episode)
    lowest = float(-replay.to_go.lowest.max())
    assert 0 < lowest < size.max()
    ended = np.array([begun_before(each) for each in zip(seed, env, episode, strict=True)])
    for found, number in (
        ("return", lambda k: k - k * (k + 1) / 2),
        ("length", lambda k: k),
        ("spent", lambda k: k * (k + 1) / 2),
    ):
        np.testing.assert_allclose(batch.extras[f"episode/{found}"][own], number(step + 1))
    ahead = np.arange(7)[None]
    paid = np.where(ahead < (size - step)[:, None], -(step[:, None] + ahead), 0.0)
    wanted = (0.9**ahead * paid).sum(1)
    bound = np.asarray(replay.to_go.lowest)[seed] / 0.1
    wanted += np.where(episode % 2 == 0, 0.0, 0.9 ** (size - step) * bound)
    found = batch.extras["monte_carlo"][own]
    np.testing.assert_allclose(found[ended], wanted[ended], rtol=1e-5)
    assert np.isneginf(found[~ended]).all()
    assert 20 < ended.sum() < ended.size


def begun_before(mark, now=50):
    """Whether an episode has ended after so many steps."""
    seed, env, episode = mark
    return sum(length(seed, env, each) + 1 for each in range(episode + 1)) - 1 <= now


def test_returns_to_go_are_refused_where_they_are_not_known():
    with pytest.raises(Mistake, match="not of 'fresh'"):
        Feed("fresh", monte_carlo=0.9)
    two = Needs(1, (Feed(batch=4, monte_carlo=0.9), Feed(name="a", batch=4, monte_carlo=1.0)))
    with pytest.raises(Mistake, match="returns with several discounts"):
        check_log_and_replay("mine", two, logged=False, acts=True, scored=False)
    one = Needs(1, (Feed(batch=4, monte_carlo=0.9),))
    with pytest.raises(Mistake, match="learns from returns to the episode's end"):
        check_hindsight("future", "mine", one, logged=False)


def test_replay_buffers_of_older_checkpoints_know_no_returns_to_go():
    rows = jax.tree.map(lambda x: x[:, :CHUNK], stream())
    ring = Ring.create(ROWS, rows.obs[:, 0], rows.action[:, 0])
    needs = Needs(feeds=(Feed(batch=1, monte_carlo=0.9),))
    older = ReturnsToGo.create(ring, needs)
    found = older.lookup(ring.insert(rows), ALL)
    assert np.isneginf(found).all()
    names = {"source/ring/words", "source/ring/head"}
    added = {
        f"source/to_go/{f.name}"
        for f in dataclasses.fields(older)
        if f.name not in ("gamma", "bounded")
    }
    assert added_leaves(names, {*names, *added}) == added
