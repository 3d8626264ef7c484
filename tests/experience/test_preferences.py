"""Pairs of stretches that are compared: where they lie, who answers, what is kept and drawn."""

import dataclasses
import functools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from sterling import envs, random_keys
from sterling.algorithms.learned_rewards import pebble
from sterling.experience.preferences import preference_labellers
from sterling.experience.preferences.preference_queries import Preferences, needs_without_labels
from sterling.experience.replay.replay_buffer import Replay
from sterling.experience.rollouts.rollout import Rollout
from sterling.training.agent import Agent
from sterling.types import Mistake, Record

FIELDS = {"queries": 6, "most_labels": 10, "ask_every": 5, "reward_batch": 16}
FIELDS |= {"width": 4, "reward_width": 4, "reward_depth": 1, "batch": 8}


@functools.cache
def begun(world, segment, seeds=(0, 1), **fields):
    """Answers around a replay of a warm-up, and the agent."""
    config = pebble.Config(**{**FIELDS, "warmup": 120, "segment": segment, **fields})
    needs = pebble.needs(config)
    start = random_keys.for_seeds(jnp.asarray(seeds, jnp.int32), "source", 0)
    world = envs.make(f"probe:{world}", tuple(seeds), 2)
    agent = Agent.create(pebble, start, world.spec, config, "map")
    replay = Replay.create(
        Rollout.create(world, 1, start), needs_without_labels(needs), 1, start, 300
    )
    return Preferences.create(replay.warm_up(agent, start), needs.feeds[0]), agent


def visited(source, agent, times=1, seeds=(0, 1)):
    for at in range(times):
        source, _ = source.visit(
            agent, random_keys.for_seeds(jnp.asarray(seeds, jnp.int32), "visit", at)
        )
    return source


def returns(pairs):
    """What the stretches of "both" were worth: 1 for each right action, else -1."""
    right = (np.asarray(pairs.obs)[..., 0] > 0) == (np.asarray(pairs.action) == 1)
    return np.where(right, 1.0, -1.0).sum(-1)


def test_preference_queries_label_the_better_segment_within_the_budget():
    source = visited(*begun("both", 1))
    np.testing.assert_array_equal(source.pairs.count, [6, 6])
    source = visited(source, None, 3)
    np.testing.assert_array_equal(source.pairs.count, [10, 10])
    worth = returns(source.pairs)
    expected = np.where(worth[..., 1] > worth[..., 0], 1.0, 0.0)
    expected = np.where(worth[..., 1] == worth[..., 0], 0.5, expected)
    np.testing.assert_array_equal(source.pairs.label, expected)
    assert set(expected.ravel()) == {0.0, 0.5, 1.0}


def test_preference_labeller_mistakes_flip_labels():
    kept = visited(*begun("both", 1)).pairs
    turned = visited(*begun("both", 1, mistakes=1.0)).pairs
    some = visited(*begun("both", 1, mistakes=0.5)).pairs
    np.testing.assert_array_equal(turned.label[:, :6], 1.0 - kept.label[:, :6])
    different = np.asarray(some.label != kept.label)[np.asarray(kept.label != 0.5)]
    assert 0 < different.sum() < different.size


def seen_by(monkeypatch, source, agent):
    seen = []

    def judge(first, second):
        seen.extend([first, second])
        return 0.5

    monkeypatch.setitem(preference_labellers.BUILT_IN, "return", judge)
    visited(source, agent)
    return seen


def test_preference_query_segments_lie_within_one_episode(monkeypatch):
    seen = seen_by(monkeypatch, *begun("delay", 2))  # two steps, then a row that is a reset
    assert len(seen) == 24
    for each in seen:
        np.testing.assert_array_equal(each.reward, [0.0, 1.0])
        np.testing.assert_array_equal(each.obs[:, 0], [0.0, 1.0])


@pytest.mark.slow
def test_preference_queries_are_skipped_without_a_whole_segment():
    source, agent = begun("delay", 3)  # no episode is as long
    np.testing.assert_array_equal(visited(source, agent).pairs.count, [0, 0])


@pytest.mark.slow
def test_preference_queries_of_a_seed_are_independent_of_other_seeds():
    several = visited(*begun("both", 1)).pairs
    alone = visited(*begun("both", 1, seeds=(1,)), seeds=(1,)).pairs
    for many, one in zip(jax.tree.leaves(several), jax.tree.leaves(alone), strict=True):
        np.testing.assert_array_equal(many[1], one[0])


def drawn(source, agent):
    seeds = jnp.arange(2, dtype=jnp.int32)
    own = jax.tree.map(lambda x: x.copy(), source)  # collecting donates what the tests share
    _, draws = own.collect(agent, random_keys.for_seeds(seeds, "draw", 0))
    chance = draws.presample(source.feed, random_keys.for_seeds(seeds, "draw", 0))
    return draws.draw(source.feed, jnp.asarray(1), None, chance[1, 0])


@pytest.mark.slow
def test_preference_batches_hold_the_labelled_segments():
    source, agent = begun("both", 1)
    batch = drawn(source, agent)
    assert not batch.mask.any()  # nothing was asked yet
    source = visited(begun("both", 1)[0], agent)
    pairs, batch = source.pairs, drawn(source, agent)
    assert batch.mask.all()
    kept = np.concatenate([np.asarray(x)[1, :6].reshape(6, -1) for x in (pairs.obs, pairs.action)]
                          + [np.asarray(pairs.label)[1, :6, None]], 1)  # fmt: skip
    parts = (batch.obs, batch.action, batch.extras["preference"])
    rows = np.concatenate([np.asarray(x).reshape(16, -1) for x in parts], 1)
    for row in rows:
        assert (row == kept).all(1).any()
    np.testing.assert_array_equal(batch.reward, 0.0)  # whoever learns from answers sees no reward


@pytest.mark.slow
def test_pebble_learns_from_predicted_and_not_from_recorded_reward():
    _, agent = begun("both", 1)
    state = jax.tree.map(lambda x: x[0], agent.state)
    rng = np.random.default_rng(0)
    obs, yes = jnp.asarray(rng.normal(size=(8, 1)), jnp.float32), jnp.ones(8, bool)
    ones = jnp.ones(8)
    batch = Record(obs, yes.astype(jnp.int32), ones, ones, obs, ~yes, yes)
    other = dataclasses.replace(batch, reward=100.0 * ones)
    found = [pebble.learn(state, each, jax.random.key(0))[0] for each in (batch, other)]
    for one, two in zip(*map(jax.tree.leaves, found), strict=True):
        np.testing.assert_array_equal(one, two)
    changed = eqx.tree_at(lambda s: s.reward.layers[-1].bias, state, replace_fn=lambda x: x + 5.0)
    missed = [
        float(pebble.learn(each, batch, jax.random.key(0))[1].metrics["loss/value"])
        for each in (state, changed)
    ]
    assert abs(missed[0] - missed[1]) > 0.01


def test_terminal_preference_labeller_accepts_1_2_or_equal(monkeypatch, capsys):
    typed = iter(["3", "2", "=", "1"])
    monkeypatch.setattr("builtins.input", lambda _: next(typed))
    zeros, yes = jnp.zeros((4, 1)), jnp.ones(4, bool)
    row = Record(zeros, zeros, zeros[:, 0], zeros[:, 0], zeros, yes, yes)
    assert [preference_labellers.find("ask")(row, row) for _ in range(3)] == [1.0, 0.5, 0.0]
    assert "Type 1, 2 or =." in capsys.readouterr().out


def test_preference_labellers_load_from_files_and_refuse_wrong_ones(tmp_path):
    path = tmp_path / "mine.py"
    path.write_text("def second(first, second):\n    return 1\n\n\nbad = 3\n")
    assert preference_labellers.find(f"{path}:second")(None, None) == 1
    with pytest.raises(Mistake, match="is not callable"):
        preference_labellers.find(f"{path}:bad")
    with pytest.raises(Mistake, match="use return, ask or"):
        preference_labellers.find("somebody")
    path.write_text("def second(first, second):\n    return 2\n")
    other = tmp_path / "other.py"
    other.write_text("def two(first, second):\n    return 2\n")
    with pytest.raises(Mistake, match=r"returned 2\.0; a labeller must return 0, 1 or 0\.5"):
        visited(*begun("both", 1, labeller=f"{other}:two"))
