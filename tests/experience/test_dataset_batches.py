"""Samples of a log say where they came from: observations name their episode and step."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from collected import batches, collect, tell
from gymnasium import spaces

from sterling.data import Dataset
from sterling.data.device_dataset import HostDataset
from sterling.data.episode_columns import Block
from sterling.data.episode_returns import (
    episode_probabilities,
    monte_carlo_returns,
    steps_into_episode,
    summarise_log,
)
from sterling.experience.offline.dataset_batches import DatasetSource
from sterling.experience.offline.mixed_sources import Mix
from sterling.experience.offline.preloaded_batches import PreloadedBatches
from sterling.types import Feed, Mistake, Needs, Sequences, Transitions

LENGTHS, ENDED = np.array([4, 1, 6, 3]), np.array([True, True, False, False])


@pytest.fixture(name="data")
def _data():
    return dataset()


def dataset(obs=None):
    """Observation (episode, step), or ``obs``; the reward of a row is 1 + its number; action the
    same."""
    rows = LENGTHS.sum()
    number = np.repeat(np.arange(4), LENGTHS + 1)
    step = np.concatenate([np.arange(n + 1) for n in LENGTHS])
    discount = np.ones(rows, np.float32)
    discount[(np.cumsum(LENGTHS) - 1)[ENDED]] = 0.0
    count = np.arange(1, rows + 1, dtype=np.float32)
    arrays = {
        "obs": np.stack([number, step], 1).astype(np.float32) if obs is None else obs,
        "action": count[:, None] / 100,
        "reward": count,
        "discount": discount,
    }
    block = Block(arrays, LENGTHS, np.zeros(4, np.int32))
    whole = spaces.Box(-np.inf, np.inf, (2,), np.float32)
    return Dataset.from_block(block, whole, spaces.Box(-1.0, 1.0, (1,), np.float32))


class Nobody:
    """A log is drawn from without acting."""

    def act(self, obs, keys, explore):
        raise AssertionError


def drawn(source, count=1):
    """Everything that a few draws give for two seeds, rows in one line."""
    parts = []
    for at in range(count):
        _, record = collect(source, Nobody(), jax.random.split(jax.random.key(at), 2))
        parts.append(jax.tree.map(lambda x: np.asarray(x).reshape(-1, *x.shape[3:]), record))
    return jax.tree.map(lambda *x: np.concatenate(x), *parts)


def test_dataset_batches_of_single_steps_are_the_logged_rows(data):
    rows = drawn(DatasetSource.create(data, Transitions(batch=64, updates=2)))
    episode, step = rows.obs.T.astype(int)
    first = np.cumsum(LENGTHS) - LENGTHS
    np.testing.assert_array_equal(rows.reward, 1 + first[episode] + step)
    np.testing.assert_array_equal(
        rows.next_obs, rows.obs + np.array([0, 1])
    )  # also where it was cut
    np.testing.assert_array_equal(rows.last, step == LENGTHS[episode] - 1)
    np.testing.assert_array_equal(rows.discount == 0.0, rows.last & ENDED[episode])
    assert len(np.unique(rows.reward)) == LENGTHS.sum()  # all of them are drawn


@pytest.mark.parametrize("mapped", [False, True])
def test_dataset_n_step_windows_sum_rewards_within_an_episode(data, mapped):
    source = DatasetSource.create(data, Transitions(batch=64, n_step=3, gamma=0.5))
    if mapped:
        source = DatasetSource(HostDataset(data), None, None, None, source.needs)
    rows = drawn(source)
    for obs, after, reward, discount, last in zip(
        rows.obs, rows.next_obs, rows.reward, rows.discount, rows.last, strict=True
    ):
        episode, step = obs.astype(int)
        count = min(3, LENGTHS[episode] - step)
        first = 1 + (np.cumsum(LENGTHS) - LENGTHS)[episode] + step
        assert reward == sum(0.5**k * (first + k) for k in range(count))
        np.testing.assert_array_equal(after, [episode, step + count])
        assert last == (step + count == LENGTHS[episode])
        assert discount == (0.0 if last and ENDED[episode] else 0.5 ** (count - 1))


@pytest.mark.slow
def test_dataset_horizon_schedule_sums_the_given_number_of_rows(data):
    source = DatasetSource.create(data, Transitions(batch=64, n_step=3, gamma=0.5))
    feed, index = source.needs.feeds[0], jnp.arange(14, dtype=jnp.int32)
    live = dataclasses.replace(feed, n_step_now=(jnp.int32(2), jnp.float32(0.25)))
    found = source.draw(live, jnp.int32(0), None, index)
    fixed = dataclasses.replace(feed, n_step=2, gamma=0.25)
    wanted = source.draw(fixed, jnp.int32(0), None, index)
    for x, y in zip(jax.tree.leaves(found), jax.tree.leaves(wanted), strict=True):
        np.testing.assert_allclose(x, y, rtol=1e-6)
    read = PreloadedBatches({"": found})
    with pytest.raises(Mistake, match="larger than memory are summed before the updates"):
        read.draw(live, jnp.int32(0), None, found)


def test_dataset_next_actions_stop_at_an_episode_end(data):
    rows = drawn(DatasetSource.create(data, Transitions(batch=64, add=("next_action",))))
    expected = np.where(rows.last, 0.0, rows.reward + 1)[:, None] / 100
    np.testing.assert_allclose(rows.extras["next_action"], expected, atol=1e-6)


@pytest.mark.parametrize("how", ["windows", "sequences", "sequences of one episode", "mapped"])
def test_dataset_rows_have_their_place_and_the_reward_of_their_own_step(data, how):
    add = ("next_action", "one_step", "place")
    feed = Feed(batch=32, add=add, n_step=3, gamma=0.5, length=3 if "sequences" in how else 0)
    if how == "sequences of one episode":
        feed = dataclasses.replace(feed, n_step=1, edge="pad", monte_carlo=1.0)
    source = DatasetSource.create(data, Needs(feeds=(feed,)))
    if how == "mapped":
        source = DatasetSource(HostDataset(data), None, None, None, source.needs)
    rows = drawn(source)
    number = rows.extras["reward_now"].astype(int) - 1  # of the row in the log
    np.testing.assert_array_equal(rows.action[..., 0], np.float32(1 + number) / 100)
    end = np.isin(number, np.cumsum(LENGTHS) - 1)
    ended = np.isin(number, (np.cumsum(LENGTHS) - 1)[ENDED])
    np.testing.assert_array_equal(rows.extras["discount_now"] == 0, ended)
    expected = np.where(end, 0.0, np.minimum(2 + number, LENGTHS.sum()))[..., None] / 100
    np.testing.assert_allclose(rows.extras["next_action"], expected, atol=1e-6)
    drawn_row = number[:, -1] if feed.edge == "pad" else number[:, 0] if feed.length else number
    np.testing.assert_array_equal(rows.extras["place"], drawn_row)
    if feed.edge != "pad":
        assert (rows.reward[~end] > rows.extras["reward_now"][~end]).all()


def test_dataset_monte_carlo_returns_match_hand_values(data):
    found = monte_carlo_returns(data, 0.5)
    reward, begin = np.arange(1.0, 15.0), 0
    for length in LENGTHS:
        for at in range(begin, begin + length):
            powers = 0.5 ** np.arange(begin + length - at)
            assert found[at] == pytest.approx((powers * reward[at : begin + length]).sum())
        begin += length
    rows = drawn(DatasetSource.create(data, Transitions(batch=64, monte_carlo=0.5)))
    np.testing.assert_allclose(rows.extras["monte_carlo"], found[rows.reward.astype(int) - 1])


def test_dataset_monte_carlo_returns_past_truncation_are_lower_bounds(data):
    """-1 a step: for ever where an episode was cut, to its end where it ended."""
    negative = data.with_rewards(lambda reward: -np.ones_like(reward))
    rows = drawn(DatasetSource.create(negative, Transitions(batch=64, monte_carlo=0.5)))
    episode, step = rows.obs.T.astype(int)
    left = np.where(ENDED, LENGTHS, np.inf)[episode] - step
    np.testing.assert_allclose(rows.extras["monte_carlo"], -2.0 * (1.0 - 0.5**left), rtol=1e-6)


def test_dataset_sequences_end_in_the_drawn_row_and_are_left_padded(data):
    source = DatasetSource.create(data, Sequences(batch=64, length=5, gamma=1.0))
    _, record = collect(source, Nobody(), jax.random.split(jax.random.key(0), 2))
    rows = jax.tree.map(lambda x: np.asarray(x)[0, 0], record)
    episode, step = rows.obs[..., 0], rows.obs[..., 1]
    assert (episode == episode[:, -1:]).all()
    expected = step[:, -1:] + np.arange(-4, 1)
    np.testing.assert_array_equal(rows.mask, expected >= 0)
    np.testing.assert_array_equal(step, np.maximum(expected, 0))
    np.testing.assert_array_equal(rows.extras["time"], step)
    total = monte_carlo_returns(data, 1.0)[rows.reward.astype(int) - 1]
    np.testing.assert_allclose(rows.extras["monte_carlo"], total)


def test_dataset_episodes_are_drawn_by_set_probabilities(data):
    source = DatasetSource.create(data, Transitions(batch=4_000), "episodes")
    rows = drawn(source)
    count = np.bincount(rows.obs[:, 0].astype(int), minlength=4) / len(rows.reward)
    np.testing.assert_allclose(count, 0.25, atol=0.02)
    within = np.bincount(rows.obs[rows.obs[:, 0] == 2, 1].astype(int), minlength=6)
    assert within.min() > 0.8 * within.mean()
    weight = episode_probabilities(data, "return")
    order = np.argsort(data.returns)
    assert (np.diff(weight[order]) > 0).all()
    span = np.ptp(data.returns)
    ratio = np.exp((data.returns[2] - data.returns[3]) / span / 0.1)
    assert weight[2] / weight[3] == pytest.approx(ratio)
    with pytest.raises(Mistake, match="'retrun'; did you mean return"):
        episode_probabilities(data, "retrun")


def test_dataset_log_summary_holds_moments_returns_and_steps(data):
    log = summarise_log(data)
    seen = np.asarray(data.transitions().obs)
    np.testing.assert_allclose(log.obs_mean, seen.mean(0), rtol=1e-6)
    np.testing.assert_allclose(log.obs_std, seen.std(0), rtol=1e-6)
    assert log.reward == pytest.approx((7.5, np.arange(1, 15).std()))
    assert (log.returns, log.longest) == ((data.returns.min(), data.returns.max()), 6)
    np.testing.assert_array_equal(steps_into_episode(data)[:6], [0, 1, 2, 3, 0, 0])


def test_dataset_log_summary_of_numbers_far_from_zero():
    """A constant has no deviation, however large it is."""
    obs = np.full((LENGTHS.sum() + len(LENGTHS), 2), 1e6 + 0.3, np.float32)
    obs[:, 0] += np.random.default_rng(0).normal(size=len(obs))
    data = dataset(obs)
    log, exact = summarise_log(data), np.asarray(data.transitions().obs, np.float64)
    np.testing.assert_allclose(log.obs_mean, exact.mean(0), rtol=1e-12)
    np.testing.assert_allclose(log.obs_std, exact.std(0), rtol=1e-6)


class Told(DatasetSource):
    """Keeps what it is told."""

    def heed(self, feed, heard, signals, batch):
        jax.debug.callback(lambda x: told.append(np.asarray(x)), signals.samples["td_error"])
        return heard


told = []


def test_mixed_sources_concatenate_batches_and_pass_feedback_to_each_source(data):
    parts = [
        DatasetSource.create(data[:2], Transitions(batch=6)),
        DatasetSource.create(data[2:], Transitions(2)),
    ]
    mix = Mix(tuple(Told(*(getattr(p, f) for f in FIELDS)) for p in parts))
    keys = jax.random.split(jax.random.key(0), 3)
    mix, draws = mix.collect(Nobody(), keys)
    record = batches(draws, keys)
    assert record.reward.shape == (3, 1, 8)
    source = np.asarray(record.extras["source"])
    np.testing.assert_array_equal(source, np.broadcast_to([0] * 6 + [1] * 2, (3, 1, 8)))
    np.testing.assert_array_equal(np.asarray(record.obs)[..., 0] >= 2, source == 1)
    tell(mix, draws, record, {"td_error": jnp.arange(24.0).reshape(3, 1, 8)})
    jax.effects_barrier()
    found = sorted(each.tolist() for each in told)
    rows = np.arange(24.0).reshape(3, 8)
    assert found == sorted([*rows[:, :6].tolist(), *rows[:, 6:].tolist()])


FIELDS = ("data", "returns", "time", "episodes", "needs")
