"""Learners that are fed batches of several kinds: each when it is due, and told apart."""

import dataclasses
import functools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from sterling import envs
from sterling.experience.replay.replay_buffer import Replay
from sterling.experience.rollouts.rollout import Rollout
from sterling.training.agent import Agent
from sterling.training.config.option_checks import check_log_and_replay
from sterling.training.loop import Run, advance, iterate
from sterling.training.updates import mean_metrics
from sterling.types import Feed, Generations, Mistake, Needs, Rollouts, Signals, Transitions

FEEDS = (
    Feed("fresh", "lived"),
    Feed(name="model", batch=6, updates=3, every=2, length=4),
    Feed(name="policy", batch=5, updates=2, priority=0.5),
)


class State(eqx.Module):
    """How often each function was called, and what it saw last."""

    calls: jax.Array
    seen: jax.Array


def told(state, at, batch, value, **samples):
    calls = state.calls.at[at].add(1)
    seen = state.seen.at[at].set(batch.reward.sum() + value)
    return State(calls, seen), Signals({"calls": calls[at].astype(jnp.float32)}, samples)


def learn_lived(state, batch, key):
    assert batch.reward.shape == (2, 3)  # (time, env): all that was lived, once
    return told(state, 0, batch, 0.0)


def learn_model(state, batch, key):
    assert batch.reward.shape == (6, 4)  # stretches
    return told(state, 1, batch, jax.random.uniform(key))


def learn_policy(state, batch, key):
    error = 1.0 + batch.reward**2
    return told(state, 2, batch, 0.0, td_error=error)


def act(state, obs, key, explore):
    chosen = jax.random.randint(key, obs.shape[:1], 0, 2)
    return chosen, {"logit": chosen.astype(jnp.float32) / 4.0}


@functools.cache  # one object, so that runs share their programs
def learner(feeds, keep):
    needs = Needs(2, feeds, 90, 12, keep)
    parts = {
        "Config": object,
        "needs": lambda config: needs,
        "init": lambda key, spec, config: State(jnp.zeros(3, jnp.int32), jnp.zeros(3)),
        **{each.__name__: each for each in (act, learn_lived, learn_model, learn_policy)},
    }
    return type("Told", (), {name: staticmethod(each) for name, each in parts.items()})()


def begun(seeds, feeds=FEEDS, keep=("logit",), strategy="map"):
    """A run of this learner in a world whose observation says what is paid."""
    module = learner(feeds, keep)
    needs, names = module.needs(None), jnp.asarray(seeds, jnp.int32)
    start = jax.vmap(jax.random.key)(names)
    world = envs.make("probe:observation", tuple(seeds), 3)
    agent = Agent.create(module, start, world.spec, None, strategy)
    lived = Rollout.create(world, 2, start, agent)
    source = Replay.create(lived, needs, 1, start, actor=agent).warm_up(agent, start)
    return Run(agent, source, names, jnp.zeros((), jnp.int32))


@pytest.mark.slow
def test_feeds_deliver_batches_at_their_update_intervals():
    run, sums = advance(begun([0, 1]), 5)
    np.testing.assert_array_equal(run.agent.state.calls, [[5, 9, 10]] * 2)
    np.testing.assert_array_equal(sums["lived/updates"], [5, 5])
    np.testing.assert_array_equal(sums["model/updates"], [9, 9])  # at iterations 0, 2 and 4
    np.testing.assert_array_equal(sums["policy/updates"], [10, 10])
    found = mean_metrics({name: np.asarray(x) for name, x in sums.items()}, 5)
    np.testing.assert_allclose(found["model/calls"], [5, 5])  # of 1 to 9: zeros are not counted
    np.testing.assert_allclose(found["policy/calls"], [5.5, 5.5])
    np.testing.assert_allclose(found["model/updates"], [1.8, 1.8])


def test_a_feed_may_wait_before_its_first_batches():
    feeds = (FEEDS[0], dataclasses.replace(FEEDS[1], after=1), FEEDS[2])
    _, sums = advance(begun([0, 1], feeds), 5)
    np.testing.assert_array_equal(sums["model/updates"], [6, 6])  # at iterations 1 and 3
    needs = learner(feeds, ("logit",)).needs(None)
    assert [needs.updates_of(n) for n in range(6)] == [0, 2, 7, 9, 14, 16]


@pytest.mark.slow
def test_feeds_train_one_seed_alone_as_among_several():
    many, alone = advance(begun([4, 7]), 4)[0], advance(begun([7]), 4)[0]
    for x, y in zip(jax.tree.leaves(many.agent), jax.tree.leaves(alone.agent), strict=True):
        np.testing.assert_array_equal(x[1], y[0])
    priorities = (run.source.priorities.tree.levels[0] for run in (many, alone))
    np.testing.assert_array_equal(*(x[n] for x, n in zip(priorities, (1, 0), strict=True)))


@pytest.mark.slow
def test_feeds_train_the_same_under_map_and_vmap():
    one, other = (advance(begun([4, 7], strategy=word), 3)[0] for word in ("map", "vmap"))
    np.testing.assert_allclose(one.agent.state.seen, other.agent.state.seen, rtol=1e-5)


def drawn(run, name, seed=0):
    """The feed's batches of one seed, of the next iteration."""
    key = jax.random.split(jax.random.key(5), run.seeds.size)
    _, draws = jax.jit(lambda run: run.source.collect(run.agent, key))(run)
    feed = draws.needs.feed(name)
    chances = draws.presample(feed, key)[seed]
    heard = jax.tree.map(lambda x: x[seed], draws.feedback)
    draw = jax.jit(lambda heard, chance: draws.draw(feed, jnp.int32(seed), heard, chance))
    return draws, feed, heard, chances, draw


def test_feed_windows_follow_the_ring_buffer_and_keep_actor_extras():
    run = advance(begun([0, 1]), 20)[0]
    draws, _, heard, chances, draw = drawn(run, "model", seed=1)
    batch = jax.tree.map(np.asarray, draw(heard, chances[0]))
    np.testing.assert_array_equal(batch.extras["logit"] * 4.0, batch.action)
    ring = draws.ring
    for row, start in enumerate(np.asarray(chances[0])):
        at = (int(start) // 3 + np.arange(4)) % ring.rows
        words = np.asarray(ring.words[1, at, int(start) % 3, 0]).view(np.float32)
        np.testing.assert_array_equal(batch.reward[row], words)
    inner = batch.mask[:, :-1] & ~batch.last[:, :-1]
    np.testing.assert_array_equal(batch.obs[:, 1:][inner], batch.next_obs[:, :-1][inner])


@pytest.mark.slow
def test_feed_priorities_from_an_update_change_the_next_draw():
    run = advance(begun([0]), 3)[0]
    draws, feed, heard, chances, draw = drawn(run, "policy")
    batch = draw(heard, chances[0])
    error = jnp.zeros(5).at[0].set(1e12)
    after = draws.heed(feed, heard, Signals({}, {"td_error": error}), batch)
    again = draw(after, chances[1])
    assert (np.asarray(again.extras["place"]) == int(batch.extras["place"][0])).all()
    assert not (np.asarray(draw(heard, chances[1]).extras["place"]) == 0).all()


@pytest.mark.slow
def test_feeds_train_the_same_in_compiled_and_host_loops():
    compiled, host = advance(begun([3]), 3)[0], begun([3])
    for _ in range(3):
        host, _ = iterate(host)
    np.testing.assert_allclose(compiled.agent.state.seen, host.agent.state.seen, rtol=1e-6)


def test_needs_divide_batches_between_dataset_and_replay():
    log, lived = Needs(1, FEEDS[1:]).divided(0.34)
    assert [feed.batch for feed in log.feeds] == [2, 2]
    assert [feed.batch for feed in lived.feeds] == [4, 3]
    assert log.feeds[1].priority == lived.feeds[1].priority == 0.5
    whole, _ = Transitions(8, n_step=3, gamma=0.9).divided(1.0)
    assert whole.feeds == (Feed(batch=8, n_step=3, gamma=0.9),)


def test_invalid_feeds_and_kept_extras_are_refused():
    both = tuple(dataclasses.replace(feed, priority=0.5) for feed in FEEDS[1:])
    with pytest.raises(Mistake, match="only one feed may draw by priority"):
        begun([0], feeds=both)
    with pytest.raises(Mistake, match=r"keep names 'value', but the recorded extras are logit"):
        begun([0], keep=("value",))


def test_needs_count_the_updates_due_by_each_iteration():
    run, sums = advance(begun([0]), 5)
    assert sum(sums[f"{name}/updates"] for name in ("model", "policy")) == 19
    needs = run.agent.needs
    assert [needs.updates_of(n) for n in range(6)] == [0, 5, 7, 12, 14, 19]
    assert Transitions(8, updates=3).updates_of(4) == 12
    assert Rollouts(8).updates_of(4) == 0
    assert Generations(2, 2, updates=3).updates_of(4) == 12


def test_dataset_is_refused_where_not_every_iteration_updates():
    check_log_and_replay("told", Needs(1, FEEDS[1:]), logged=False, scored=False)
    with pytest.raises(Mistake, match="told does not learn in every iteration, which data"):
        check_log_and_replay("told", Needs(1, FEEDS[1:]), logged=True, scored=False)
