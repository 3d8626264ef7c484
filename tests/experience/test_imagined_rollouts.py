"""Dreams: where they begin, that they end where the model says, what is drawn of them."""

import dataclasses
from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium import spaces

import sterling
from sterling import envs, random_keys
from sterling.algorithms.model_based import mbpo
from sterling.experience.replay.imagined_rollouts import (
    Dream,
    check_dreams,
    dream_feed,
    needs_without_dreams,
)
from sterling.experience.replay.replay_buffer import Replay
from sterling.experience.rollouts.rollout import Rollout
from sterling.needs.feed import DREAM
from sterling.nets.ensemble import Ensemble
from sterling.training.agent import Agent
from sterling.training.config.resolve_settings import resolve_settings
from sterling.types import Mistake, Record, Spec

FAR = 1000.0  # nothing that was lived looks like this
FIELDS = {
    "model_width": 8,
    "model_depth": 1,
    "width": 8,
    "branches": 3,
    "elites": 2,
    "members": 2,
    "kept": 36,
    "batch": 40,
    "real": 0.25,
}


class Told(eqx.Module):
    """An agent whose imagination counts: the observation rises by ``FAR`` a step, and the branch
    with the number of the iteration ends at once."""

    agent: Agent
    ends: int = eqx.field(static=True)
    horizon: int = eqx.field(static=True)

    memory = property(lambda self: self.agent.memory)
    act = property(lambda self: self.agent.act)

    def imagine(self, rows, valid, keys):
        times = jnp.arange(self.horizon, dtype=jnp.float32)[None, :, None]
        seen = rows.obs[:, None] + FAR * times[..., None]
        shape = seen.shape[:3]
        ended = jnp.broadcast_to(jnp.arange(shape[2]) == self.ends, shape)
        alive = valid[:, None] & ~(ended & (times > 0.0))
        last = ended | jnp.broadcast_to(times == self.horizon - 1, shape)
        reward = jnp.broadcast_to(times, shape)
        action = jnp.zeros(shape, jnp.int32)
        discount = jnp.where(ended, 0.0, 1.0)
        return Record(seen, action, reward, discount, seen + FAR, last, alive)


def begun(world, horizon, seeds=(0, 1), asked=None, **fields):
    """Dreams around a replay of a warm-up, and the agent; ``asked`` changes the feed of dreams."""
    config = mbpo.Config(**{**FIELDS, "warmup": 60, "horizon": horizon, **fields})
    needs = asking(mbpo.needs(config), **(asked or {}))
    start = random_keys.for_seeds(jnp.asarray(seeds, jnp.int32), "source", 0)
    world = envs.make(f"probe:{world}", tuple(seeds), 2)
    agent = Agent.create(mbpo, start, world.spec, config, "map")
    replay = Replay.create(
        Rollout.create(world, 1, start), needs_without_dreams(needs), 1, start, 200
    )
    return Dream.create(replay.warm_up(agent, start), dream_feed(needs), start, agent), agent


def asking(needs, **changed):
    """The needs with another feed of dreams."""
    feeds = [dataclasses.replace(x, **changed) if x.of == DREAM else x for x in needs.feeds]
    return dataclasses.replace(needs, feeds=tuple(feeds))


def collected(dream, agent, iterations, ends=-1, horizon=3):
    seeds = jnp.arange(dream.source.world.seeds, dtype=jnp.int32)
    for at in range(iterations):
        told = Told(agent, ends, horizon)
        dream, draws = dream.collect(told, random_keys.for_seeds(seeds, "draw", at))
    return dream, draws


def drawn(dream, draws, seed=0):
    seeds = jnp.arange(dream.source.world.seeds, dtype=jnp.int32)
    chances = draws.presample(dream.feed, random_keys.for_seeds(seeds, "draw", 9))
    batches = []
    for at in range(3):
        chance = jax.tree.map(lambda x, at=at: x[seed, at], chances)
        batches.append(draws.draw(dream.feed, jnp.asarray(seed), None, chance))
    return jax.tree.map(lambda *x: np.concatenate(x), *batches)


def test_rollouts_of_a_model_are_imagined_only_when_their_feed_is_due():
    dream, agent = begun("observation", 3, asked={"every": 2})
    told, keys = Told(agent, -1, 3), random_keys.for_seeds(jnp.arange(2), "draw", 0)
    compiled = eqx.filter_jit(lambda due: dream.collect(told, keys, lambda feed: due)[0])
    idle, imagined = compiled(jnp.asarray(False)), compiled(jnp.asarray(True))
    assert [int(each.dreams.count) for each in (idle, imagined)] == [0, 4]
    np.testing.assert_array_equal(idle.source.ring.words, imagined.source.ring.words)
    always = dream.collect(told, keys)[0]  # of a program on the host
    for x, y in zip(*map(jax.tree.leaves, (always.dreams, imagined.dreams)), strict=True):
        np.testing.assert_array_equal(x, y)


@pytest.mark.parametrize("horizon", [1, 3])
@pytest.mark.parametrize("iterations", [1, pytest.param(13, marks=pytest.mark.slow)])
def test_imagined_rollout_rows_belong_to_model_branches_alone(horizon, iterations):
    dream, agent = begun("observation", horizon)
    batch = drawn(*collected(dream, agent, iterations, horizon=horizon))
    real = 3 * [*range(10)]
    is_real = np.zeros(len(batch.mask), bool)
    for at in range(3):
        is_real[40 * at : 40 * at + len(real) // 3] = True
    dreamt = batch.obs[~is_real], batch.next_obs[~is_real], batch.reward[~is_real]
    obs, following, reward = dreamt
    np.testing.assert_array_equal(following, obs + FAR)  # not the next branch's beginning
    np.testing.assert_allclose(obs[:, 0] // FAR, np.where(obs[:, 0] % FAR > 1, reward - 1, reward))
    assert set(reward) == set(range(horizon))
    assert np.abs(batch.obs[is_real]).max() <= 1.0  # and nothing dreamt is taken for real
    assert np.abs(batch.next_obs[is_real]).max() <= 1.0


@pytest.mark.slow
def test_imagined_branches_begin_in_valid_replay_states():
    dream, agent = begun("observation", 1)
    dream, draws = collected(dream, agent, 12, horizon=1)
    real = np.asarray(dream.source.ring.words)
    masks = real[..., 3] != 0
    assert 0.2 < masks[:, :30].mean() < 0.8  # every other row is a reset
    words = np.asarray(dream.dreams.words)[:, : int(dream.dreams.count) : 2]
    assert 0.2 < (words[..., 3] != 0).mean() < 0.8
    batch = drawn(dream, draws)
    assert not batch.mask.all()


@pytest.mark.parametrize("iterations", [1, pytest.param(13, marks=pytest.mark.slow)])
@pytest.mark.parametrize("length", [1, 2, 3])
def test_imagined_sequences_lie_within_one_branch(length, iterations):
    dream, agent = begun("observation", 3, asked={"length": length}, batch=400, real=0.025)
    batch = drawn(*collected(dream, agent, iterations, horizon=3))
    assert batch.reward.shape == (3 * 400, length)
    is_real = np.arange(3 * 400) % 400 < 10
    obs, following, reward = (x[~is_real] for x in (batch.obs, batch.next_obs, batch.reward))
    steps = np.arange(length)
    np.testing.assert_array_equal(reward, reward[:, :1] + steps)  # the branch's own time
    np.testing.assert_array_equal(obs, obs[:, :1] + FAR * steps[:, None])
    np.testing.assert_array_equal(following, obs + FAR)
    firsts = np.bincount(reward[:, 0].astype(int))
    assert len(firsts) == 3 - length + 1
    assert firsts.min() > 0.8 * firsts.mean()
    assert np.abs(batch.obs[is_real]).max() <= 1.0


@pytest.mark.slow
def test_imagined_rollout_batches_apply_n_step_and_next_action_to_real_rows():
    asked = {"add": ("next_action",), "n_step": 2, "gamma": 0.5}
    dream, agent = begun("observation", 3, asked=asked)
    batch = drawn(*collected(dream, agent, 2, horizon=3))
    assert batch.extras["next_action"].shape == (120,)
    dreamt, time = batch.next_obs[:, 0] > 1.0, np.rint(batch.obs[:, 0] / FAR)
    for step, wanted in enumerate([0.5 * 1.0, 1.0 + 0.5 * 2.0, 2.0]):  # the last has no other
        found = batch.reward[dreamt & batch.mask & (time == step)]
        assert len(found)
        np.testing.assert_array_equal(found, wanted)


def test_imagined_branch_ends_after_predicted_termination():
    dream, agent = begun("cut", 3)
    batch = drawn(*collected(dream, agent, 3, ends=1))
    late = batch.reward[batch.mask & (batch.obs[:, 0] >= FAR)]
    ended = batch.mask & (batch.discount == 0.0)
    assert late.size
    assert ended.any()
    assert not (ended & (batch.obs[:, 0] >= FAR)).any()


@pytest.mark.slow
def test_imagined_rollout_batch_has_its_share_of_real_rows():
    dream, agent = begun("observation", 1)
    dream, draws = collected(dream, agent, 2, horizon=1)
    assert draws.rows(dream.feed) == 40
    assert draws.draws.rows(dream.feed) == 10
    batch = drawn(dream, draws)
    assert (np.abs(batch.next_obs[:, 0]) > 1.0).sum() == 90


@pytest.mark.slow
def test_untrained_dynamics_model_imagines_no_rows():
    dream, agent = begun("cut", 2)
    seeds = jnp.arange(2, dtype=jnp.int32)
    after, draws = dream.collect(agent, random_keys.for_seeds(seeds, "draw", 0))
    batch = drawn(after, draws)
    assert batch.mask.sum() <= 30  # the real ones
    dream, _ = begun("cut", 2)  # the replay that collected is used up
    learned = eqx.tree_at(lambda a: a.state.model.updates, agent, jnp.ones(2, jnp.int32))
    after, draws = dream.collect(learned, random_keys.for_seeds(seeds, "draw", 0))
    assert drawn(after, draws).mask.sum() > 60


@pytest.mark.slow
def test_imagined_rollouts_leave_the_real_experience_unchanged():
    dream, agent = begun("observation", 2)
    seeds = jnp.arange(2, dtype=jnp.int32)
    one, _ = dream.collect(agent, random_keys.for_seeds(seeds, "draw", 0))
    other, _ = begun("observation", 2)[0].source.collect(
        agent, random_keys.for_seeds(seeds, "draw", 0)
    )
    np.testing.assert_array_equal(one.source.ring.words, other.ring.words)


def foretelling(horizon=3, **fields):
    """An agent of one seed whose models have learned, and where it begins."""
    _, agent = begun("observation", horizon, seeds=(0,), **fields)
    state = jax.tree.map(lambda x: x[0], agent.state)
    model = dataclasses.replace(state.model, updates=jnp.ones((), jnp.int32))
    zeros = jnp.zeros(6)
    seen, never = jnp.ones((6, 1)), jnp.zeros(6, bool)
    rows = Record(seen, zeros, zeros, zeros, seen, never, ~never)
    return mbpo.State(state.policy, model), rows


@pytest.mark.slow
def test_imagined_branches_follow_the_model_and_stop_at_its_terminations():
    state, real = foretelling()
    likely = state.model.nets.net.layers[-1].bias.at[:, -1].set(0.0)
    state = eqx.tree_at(lambda s: s.model.nets.net.layers[-1].bias, state, likely)
    rows = mbpo.imagine(state, real, jnp.arange(6) > 0, jax.random.key(3))
    assert rows.reward.shape == (3, 6)
    np.testing.assert_array_equal(rows.obs[1:], rows.next_obs[:-1])
    np.testing.assert_array_equal(rows.mask[0], np.arange(6) > 0)
    assert rows.mask[1:].any()
    assert not rows.mask.all(0)[1:].all()
    np.testing.assert_array_equal(rows.mask[1:], rows.mask[:-1] & ~rows.last[:-1])
    assert rows.last[-1].all()
    assert ((rows.discount > 0.3) & (rows.discount < 0.7)).all()


def test_imagined_rollouts_use_elite_models_equally_often():
    state, real = foretelling(1, members=4, elites=2)
    bias = state.model.nets.net.layers[-1].bias
    bias = bias.at[:, 1].set(jnp.asarray([100.0, 200.0, 300.0, 400.0]))  # each member's reward
    state = eqx.tree_at(lambda s: s.model.nets.net.layers[-1].bias, state, bias)
    state = eqx.tree_at(lambda s: s.model.error, state, jnp.asarray([0.5, 0.1, 0.9, 0.2]))
    rows = mbpo.imagine(state, real, jnp.ones(6, bool), jax.random.key(3))
    made = np.sort(np.round(np.asarray(rows.reward[0]) / 100.0))
    np.testing.assert_array_equal(made, [2, 2, 2, 4, 4, 4])
    steep = state.model.nets.net.layers[-1].weight.at[..., 1].multiply(1000.0)
    state = eqx.tree_at(lambda s: s.model.nets.net.layers[-1].weight, state, steep)
    real = dataclasses.replace(real, obs=jnp.arange(6.0)[:, None])
    rows = mbpo.imagine(state, real, jnp.ones(6, bool), jax.random.key(3))
    action = state.policy.actor.actions.encode(rows.action[0])
    x = jnp.concatenate([state.model.seen(real.obs), action], -1)
    either = Ensemble(state.model.nets).take(jnp.asarray([1, 3]))(x).mean[..., 1]
    gap = np.abs(np.asarray(either) - np.asarray(rows.reward[0]))
    assert gap.min(0).max() < 10.0  # of its own row, up to the model's noise
    assert gap.max() > 100.0


@pytest.mark.slow
def test_model_holdout_rows_are_not_trained_on_and_have_the_set_share():
    held = np.asarray(mbpo.is_held_out(jnp.arange(10_000, dtype=jnp.int32), 0.2))
    assert abs(held.mean() - 0.2) < 0.02
    state, _ = foretelling()
    place = jnp.arange(40, dtype=jnp.int32)
    out = mbpo.is_held_out(place, 0.2)
    rng = np.random.default_rng(0)
    obs = jnp.asarray(rng.normal(size=(40, 1)), jnp.float32)
    zeros, yes = jnp.zeros(40), jnp.ones(40, bool)
    batch = Record(obs, zeros.astype(jnp.int32), zeros, zeros + 1, obs, ~yes, yes, {"place": place})
    other = dataclasses.replace(batch, discount=jnp.where(out, 0.0, 1.0))  # ends there only
    one = mbpo.learn_model(state, batch, jax.random.key(0))[0]
    two = mbpo.learn_model(state, other, jax.random.key(0))[0]
    for a, b in zip(jax.tree.leaves(one.model.nets), jax.tree.leaves(two.model.nets), strict=True):
        np.testing.assert_array_equal(a, b)


def test_mbpo_refuses_what_it_cannot_imagine():
    with pytest.raises(Mistake, match="Remove n_step and priority"):
        mbpo.needs(mbpo.Config(n_step=3))
    with pytest.raises(Mistake, match="elites=5 must be at most members=3"):
        mbpo.needs(mbpo.Config(members=3))
    with pytest.raises(Mistake, match="Leave out data and plr"):
        resolve_settings("mbpo", "maze:3x3", steps=20_000, sources="plr")
    pictures = Spec(spaces.Box(0, 255, (8, 8, 3), np.uint8), spaces.Discrete(2))
    with pytest.raises(Mistake, match="vectors of floats"):
        mbpo.init(jax.random.key(0), pictures, mbpo.Config())


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({"priority": 0.6}, "imagined rows are drawn uniformly.* remove priority from the feed"),
        ({"add": ("place",)}, "imagined rows are drawn uniformly.* remove place from the feed"),
        (
            {"length": 4},
            "asks for 4 consecutive imagined rows, but a branch has 3; set length to at most 3",
        ),
        ({"dreams": None}, "without its settings; add dreams="),
    ],
)
def test_imagined_rollouts_refuse_feeds_they_cannot_serve(asked, said):
    needs = mbpo.needs(mbpo.Config(horizon=3))
    check_dreams("told", needs)
    check_dreams("told", asking(needs, length=3))
    with pytest.raises(Mistake, match=said):
        check_dreams("told", asking(needs, **asked))


class Stretching:
    """MBPO whose policy is fed stretches of dreams, which it learns from row by row."""

    Config = mbpo.Config
    asked: ClassVar = {"length": 2}

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(mbpo, name)

    def needs(self, config):
        return asking(mbpo.needs(config), **self.asked)

    def learn(self, state, batch, key):
        rows = jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), batch)
        return mbpo.learn(state, rows, key)


class Preferring(Stretching):
    """It asks for priorities, which no dream has."""

    asked: ClassVar = {"priority": 0.6}


@pytest.mark.slow
def test_user_algorithm_is_fed_imagined_sequences():
    few = {"model_updates": 2, "learn": 2, "branches": 8, "model_batch": 8, "horizon": 2}
    how = {"steps": 140, "warmup": 100, "evaluate_episodes": 0, "preset": False}
    run = sterling.train(Stretching(), "Pendulum-v1", **{**FIELDS, **few}, **how)
    for leaf in jax.tree.leaves(run.agent.state.policy.actor):
        assert np.isfinite(leaf).all()
    with pytest.raises(Mistake, match="remove priority from the feed"):
        resolve_settings(Preferring(), "Pendulum-v1", steps=20_000)
