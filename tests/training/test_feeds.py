"""Learners that are fed batches of several kinds: each when it is due, and told apart."""

import dataclasses
import functools
import json

import equinox as eqx
import jax
import jax.numpy as jnp
import logs
import numpy as np
import pytest

import sterling
from sterling import envs
from sterling.data import device_dataset
from sterling.experience.batch_draws import NoFeedback
from sterling.experience.replay.replay_buffer import Replay
from sterling.experience.rollouts.rollout import Rollout
from sterling.training.agent import Agent
from sterling.training.loop import Run, advance, iterate
from sterling.training.updates import mean_metrics, presample
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
    known = "episode/length, episode/return, logit"
    with pytest.raises(Mistake, match=f"keep names 'value', but the recorded extras are {known}"):
        begun([0], keep=("value",))


def test_needs_count_the_updates_due_by_each_iteration():
    run, sums = advance(begun([0]), 5)
    assert sum(sums[f"{name}/updates"] for name in ("model", "policy")) == 19
    needs = run.agent.needs
    assert [needs.updates_of(n) for n in range(6)] == [0, 5, 7, 12, 14, 19]
    assert Transitions(8, updates=3).updates_of(4) == 12
    assert Rollouts(8).updates_of(4) == 0
    assert Generations(2, 2, updates=3).updates_of(4) == 12


def test_needs_find_the_iterations_that_make_a_number_of_updates():
    random = np.random.default_rng(0)
    for _ in range(200):
        feeds = [
            Feed(
                updates=int(random.integers(1, 4)),
                every=int(random.integers(1, 5)),
                after=(after := int(random.integers(0, 6))),
                until=[None, after + int(random.integers(1, 9))][random.integers(2)],
            )
            for _ in range(random.integers(1, 4))
        ]
        needs, begin, updates = Needs(1, tuple(feeds)), *map(int, random.integers(0, 12, 2))
        due = [sum(x.updates for x in feeds if x.is_due(at)) for at in range(120)]
        assert [needs.updates_of(n) for n in range(120)] == [0, *np.cumsum(due[:-1])]
        made = np.cumsum([0, *due[begin:]])
        most = made[made <= updates].max()
        assert needs.iterations_of(updates, begin) == int(np.argmax(made == most))
    assert Generations(2, 2, updates=3).iterations_of(13) == 4


def test_a_feed_gives_no_batches_from_its_end_on():
    feeds = (FEEDS[0], dataclasses.replace(FEEDS[1], every=1, until=2), FEEDS[2])
    run, sums = advance(begun([0, 1], feeds), 5)
    np.testing.assert_array_equal(sums["model/updates"], [6, 6])  # at iterations 0 and 1
    np.testing.assert_array_equal(run.agent.state.calls, [[5, 6, 10]] * 2)
    with pytest.raises(Mistake, match=r"after=3 and until=3 gives no batch"):
        Feed(after=3, until=3)


@pytest.mark.parametrize(
    ("wrong", "line"),
    [
        (
            {"add": ("next_actions",)},
            "next_action, one_step, place, not 'next_actions'",
        ),
        ({"of": "fresh", "add": ("next_action",)}, "'fresh' adds place, not 'next_action'"),
        ({"of": "said", "add": ("place",)}, "'said' is everything collected, .* Leave out add"),
        ({"of": "episodes", "length": 4, "priority": 0.5}, "Leave out length, priority"),
    ],
)
def test_feed_refuses_what_its_kind_cannot_give(wrong, line):
    with pytest.raises(Mistake, match=line):
        Feed(**wrong)


def test_metrics_of_a_feed_without_name_are_means_of_its_own_updates():
    kept = {"loss": np.array([12.0]), "updates": np.array([3.0]), "model/updates": np.array([8.0])}
    found = mean_metrics(kept | {"model/loss": np.array([4.0])}, 5)
    assert {name: float(value[0]) for name, value in found.items()} == {
        "loss": 4.0, "model/loss": 0.5, "model/updates": 1.6}  # fmt: skip


class Counting(NoFeedback):
    """Draws that count how often random numbers were drawn."""

    rows = draw = None  # unused here

    drawn = 0

    def presample(self, feed, keys):
        jax.debug.callback(self.count)
        return jax.random.split(keys[0], (1, feed.updates)), jnp.ones((1, feed.updates))

    def count(self):
        self.drawn += 1


def test_a_feed_that_is_not_due_draws_no_random_numbers():
    draws, feed = Counting(), Feed(updates=2, every=3)
    found = jax.jit(lambda at: presample(draws, feed, jax.random.split(jax.random.key(0), 1), at))
    for iteration, sum_of_ones in enumerate((2.0, 0.0, 0.0, 2.0)):
        assert float(found(jnp.int32(iteration))[1].sum()) == sum_of_ones
    jax.effects_barrier()
    assert draws.drawn == 2


FROM_LOG = """
import dataclasses
import equinox as eqx
import jax.numpy as jnp
from sterling.types import Feed, Needs, Signals, config

@config
class Config:
    warm: int = 2

class State(eqx.Module):
    model: object
    policy: object
    config: Config

def needs(config):
    return Needs(0, (Feed(name="model", batch=4, updates=5, until=config.warm),
                     Feed(batch=4, after=config.warm, every=2)))

def init(key, spec, config):
    return State(jnp.zeros((), jnp.int32), jnp.zeros((), jnp.int32), config)

def act(state, obs, key, explore):
    return jnp.zeros(obs.shape[:1], jnp.int32), {}

def learn_model(state, batch, key):
    assert batch.reward.shape == (4,)
    return dataclasses.replace(state, model=state.model + 1), Signals({"loss": jnp.float32(2)})

def learn(state, batch, key):
    return dataclasses.replace(state, policy=state.policy + 1), Signals({"loss": jnp.float32(7)})
"""


@pytest.mark.parametrize("limit", [None, 0], ids=["in memory", "larger than memory"])
def test_learner_from_a_log_fits_a_model_first_and_a_policy_afterwards(
    tmp_path, monkeypatch, limit
):
    if limit is not None:
        monkeypatch.setattr(device_dataset, "_device_budget", lambda device: limit)
    (tmp_path / "two_stages.py").write_text(FROM_LOG)
    ended = FROM_LOG.replace("Feed(batch=4, after=config.warm, every=2)", "")
    (tmp_path / "ended.py").write_text(ended)
    log = logs.write("both", False, tmp_path)
    how = {"data": log, "log_every": 4, "evaluate_episodes": 0, "out": tmp_path / "run"}
    run = sterling.train(str(tmp_path / "two_stages.py"), updates=14, **how)
    state = run.agent.state
    assert (state.model.tolist(), state.policy.tolist()) == ([10], [4])
    assert run.result["updates"] == 14
    rows = [json.loads(x) for x in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    assert [row["update"] for row in rows][-1] == 14
    seen = [(row["update"], row["updates"], row["model/loss"], row["loss"]) for row in rows]
    assert seen[0] == (10, 14, [2.0], [None])  # a feed's mean is over its own updates
    assert seen[1:] == [(at, 14, [None], [7.0]) for at in (11, 12, 13, 14)]
    with pytest.raises(Mistake, match=r"ended makes: its feeds end after 10. Give updates=10"):
        sterling.train(str(tmp_path / "ended.py"), updates=14, data=log)
