"""Whole episodes of a population: who plays them, what counts, and what a step of OpenES makes."""

import dataclasses
import operator

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from constants import constant_array
from gymnasium import spaces

import sterling
from sterling import random_keys
from sterling.algorithms.evolution import openes
from sterling.envs.traced_world import TracedWorld
from sterling.experience.rollouts.episode_rows import EpisodeRows, episode_row
from sterling.experience.rollouts.population_episodes import Population, PopulationActor
from sterling.training.agent import Agent
from sterling.types import Anywhere, Beside, Feed, Mistake, Step

ENVS, SEEDS = 6, constant_array([3, 8], np.int32)
FIELDS = {"width": 8, "depth": 1, "noise": 0.5}


class Count:
    """An episode of 2, 3 or 4 steps by where it begins, which every observation shows beside the
    time; a step pays its action."""

    obs = spaces.Box(-np.inf, np.inf, (2,), np.float32)
    action = spaces.Box(-1.0, 1.0, (1,), np.float32)

    def reset(self, key):
        state = (jnp.floor(3.0 * jax.random.uniform(key)), jnp.zeros(()))
        return state, jnp.stack(state)

    def step(self, state, action, key):
        start, time = state
        over = time + 1 >= 2 + start
        state = (start, time + 1)
        return state, jnp.stack(state), action[0], over, jnp.asarray(False)


@pytest.fixture(params=[True, False], ids=["compiled", "host"])
def world(request):
    made = TracedWorld(Count(), (3, 8), ENVS, strategy="map")
    made.traced = request.param
    return made


def agent_for(world):
    config = openes.Config(**FIELDS)
    return Agent.create(openes, random_keys.for_seeds(SEEDS, "agent", 0), world.spec, config, "map")


def played(world, limit=10):
    agent, own = agent_for(world), random_keys.for_seeds(SEEDS, "draw", 0)
    source, draws = Population.create(world, limit).collect(agent, own)
    return (
        agent,
        source,
        jax.tree.map(np.asarray, dataclasses.replace(draws.record, start=None)),
        (draws.record.start),
    )


def test_population_env_plays_one_episode_of_its_member(world):
    """The same episodes by a plain loop over every env's perturbed network, in NumPy."""
    agent, source, rows, lives = played(world)
    own = random_keys.fold_each(random_keys.for_seeds(SEEDS, "draw", 0), "episodes")
    starts = world.reset(random_keys.fold_each(own, "evaluate", 0))[1]
    lengths = 2 + np.asarray(starts)[..., 0]
    assert len(np.unique(lengths)) > 1
    np.testing.assert_array_equal(rows.extras["episode/length"], lengths)
    for seed in range(2):
        theta = jax.tree.map(operator.itemgetter(seed), agent.state.nets)
        for env in range(ENVS):
            born = random_keys.fold(lives.key[seed], "direction", env // 2)
            flat, form = jax.flatten_util.ravel_pytree(theta)
            moved = flat + (0.5 if env % 2 == 0 else -0.5) * jax.random.normal(born, flat.shape)
            first, last = ((np.asarray(x.weight), np.asarray(x.bias))
                           for x in form(moved).policy.layers)  # fmt: skip
            start, total, seen = float(starts[seed, env, 0]), 0.0, []
            for time in range(int(lengths[seed, env])):
                seen.append([start, time])
                hidden = np.tanh(np.asarray(seen[-1]) @ first[0] + first[1])
                total += (hidden @ last[0] + last[1])[0]
            np.testing.assert_allclose(rows.reward[seed, env], total, rtol=2e-4, atol=1e-5)
            mean = np.asarray(lives.seen.mean[0][seed, env])
            np.testing.assert_allclose(mean, np.mean(seen, 0), rtol=1e-5)
            spread = np.asarray(lives.seen.squares[0][seed, env])
            np.testing.assert_allclose(spread, len(seen) * np.var(seen, 0), rtol=1e-5, atol=1e-6)
    assert source.tally.episodes.tolist() == [ENVS, ENVS]
    np.testing.assert_array_equal(source.tally.totals["length"], lengths.sum(1))


def test_population_episodes_are_cut_at_the_step_limit(world):
    rows = played(world, limit=3)[2]
    assert rows.extras["episode/length"].max() == 3
    assert rows.mask.all()


@pytest.mark.parametrize("limit", [10, 3])
def test_population_steps_are_what_members_saw_did_and_were_paid(world, limit):
    """Masked after each episode's end; ``last`` marks the end and where the limit cuts."""
    agent, own = agent_for(world), random_keys.for_seeds(SEEDS, "draw", 0)
    _, draws = Population.create(world, limit, recorded=True).collect(agent, own)
    episodes = jax.tree.map(np.asarray, dataclasses.replace(draws.record, start=None))
    plain = played(world, limit)[2]
    steps, length = episodes.beside["steps"], episodes.extras["episode/length"]
    np.testing.assert_array_equal(episodes.reward, plain.reward)
    time = np.arange(limit)
    np.testing.assert_array_equal(steps.mask, time < length[..., None])
    np.testing.assert_array_equal(steps.last, time == length[..., None] - 1)
    starts = np.asarray(world.reset(random_keys.fold_each(
        random_keys.fold_each(own, "episodes"), "evaluate", 0))[1])  # fmt: skip
    seen = np.stack(
        [np.broadcast_to(starts[..., :1], steps.mask.shape), 0 * starts[..., :1] + time], -1
    )
    assert (steps.obs[steps.mask] == seen[steps.mask]).all()
    assert (steps.next_obs - steps.obs == (0.0, 1.0))[steps.mask].all()
    ended = (length == starts[..., 0] + 2)[..., None] & steps.last
    assert (steps.discount[steps.mask] == ~ended[steps.mask]).all()
    members = PopulationActor.create(agent, ENVS, draws.record.start.key)
    for at in range(min(limit, 4)):
        here = steps.mask[:, :, at]
        action, _ = members.act(jnp.asarray(steps.obs[:, :, at]), own, False)
        np.testing.assert_allclose(steps.action[:, :, at][here], action[here], rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(steps.reward, steps.action[..., 0] * steps.mask)
    for leaf in jax.tree.leaves((steps.obs, steps.action, steps.reward)):
        assert not leaf[:, :, 5:].any()


def test_population_steps_before_a_crash_are_masked():
    first, shape = jnp.zeros((1, 2, 1)), (1, 2)
    yes, no, paid = jnp.ones(shape, bool), jnp.zeros(shape, bool), jnp.ones(shape)
    crash = jnp.asarray([[True, False]])
    went_on = Step(first + 1.0, paid, paid, no, yes)
    crashed = Step(jnp.where(crash[..., None], jnp.nan, 2.0), paid, paid, crash, ~crash)
    rows = EpisodeRows.empty(first, episode_row(paid, {}, went_on), 4)
    for time, step in enumerate((went_on, crashed, went_on, went_on)):
        rows = rows.with_step(jnp.int32(time), (paid, {}, step), no)
    found = rows.finished(no, yes)
    np.testing.assert_array_equal(found.mask[0], [[False, False, True, True], [True] * 4])
    np.testing.assert_array_equal(found.last[0], [[False] * 3 + [True]] * 2)
    assert all(jnp.isfinite(x).all() for x in jax.tree.leaves(found) if x.dtype == jnp.float32)
    assert found.reward[0].tolist() == [[1.0, 0.0, 1.0, 1.0], [1.0] * 4]
    unsound = rows.finished(no, jnp.asarray([[True, False]]))
    assert not unsound.mask[0, 1].any()
    assert not unsound.obs[0, 1].any()


def test_steps_are_refused_of_other_feeds_and_beside_rows_of_that_name():
    with pytest.raises(Mistake, match="'replay' adds next_action, one_step, place, not 'steps'"):
        Feed(batch=4, add=("steps",))
    with pytest.raises(Mistake, match="'episodes' adds steps, not 'place'"):
        Feed("episodes", add=("place",))
    with pytest.raises(Mistake, match="Leave out batch"):
        Feed("episodes", add=("steps",), batch=4)
    with pytest.raises(Mistake, match="another name"):
        Feed("episodes", add=("steps",), beside=(Beside("steps", Anywhere(3), of="log"),))


def test_population_perturbations_are_antithetic_pairs():
    agent = agent_for(TracedWorld(Count(), (3, 8), ENVS))
    members = PopulationActor.create(agent, ENVS, random_keys.for_seeds(SEEDS, "draw", 0))
    for own, every in zip(
        jax.tree.leaves(agent.state.nets), jax.tree.leaves(members.states.nets), strict=True
    ):
        pairs = np.asarray(every).reshape(2, ENVS // 2, 2, -1)
        mean = np.asarray(own).reshape(2, 1, -1)
        np.testing.assert_allclose(pairs.mean(2), np.broadcast_to(mean, pairs.mean(2).shape),
                                   atol=1e-6)  # fmt: skip
        assert len(np.unique(pairs[:, :, 0, 0])) == 2 * ENVS // 2  # no two pairs are alike


def test_openes_centred_ranks_of_equal_returns_are_shared():
    every = jnp.ones(4, bool)
    found = openes.centred_ranks(jnp.asarray([5.0, 5.0, 1.0, 9.0]), every)
    np.testing.assert_allclose(found, [0.0, 0.0, -0.5, 0.5])
    np.testing.assert_allclose(openes.centred_ranks(jnp.full(4, 7.0), every), 0.0)
    some = jnp.asarray([True, True, False, False])
    np.testing.assert_allclose(openes.centred_ranks(jnp.asarray([2.0, 1.0, 0.0, 0.0]), some)[:2],
                               [0.5, -0.5])  # fmt: skip


class Broken(Count):
    """An observation is NaN in episodes that begin at 2."""

    def step(self, state, action, key):
        state, obs, *rest = super().step(state, action, key)
        return state, jnp.where(state[0] == 2.0, jnp.nan, obs), *rest


def test_openes_ignores_pairs_with_a_non_finite_episode():
    world = TracedWorld(Broken(), (3, 8), ENVS, strategy="map")
    agent, source, rows, _ = played(world)
    broken = rows.extras["episode/length"] == 0
    assert 0 < broken.sum() < broken.size
    np.testing.assert_array_equal(rows.mask, ~broken)
    assert source.tally.invalid.tolist() == broken.sum(1).tolist()
    assert np.isfinite(rows.reward).all()
    record = (
        Population.create(world, 10)
        .collect(agent, random_keys.for_seeds(SEEDS, "draw", 0))[1]
        .record
    )
    learned, _ = jax.vmap(openes.learn)(
        agent.state, record, random_keys.for_seeds(SEEDS, "learn", 0)
    )
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(learned))


def test_openes_moves_the_mean_towards_higher_returns():
    """One parameter of a world whose return is the action itself: its bias must grow."""
    world = TracedWorld(Count(), (3, 8), 64, strategy="map")
    agent = agent_for(world)
    _, draws = Population.create(world, 10).collect(agent, random_keys.for_seeds(SEEDS, "draw", 0))
    learned, _ = jax.vmap(openes.learn)(
        agent.state, draws.record, random_keys.for_seeds(SEEDS, "learn", 0)
    )
    before, after = (x.nets.policy.layers[-1].bias for x in (agent.state, learned))
    assert (after > before).all()


@pytest.mark.slow
def test_population_steps_follow_the_planned_budget_and_are_logged():
    seen = []

    class Keep:
        def write(self, row):
            seen.append(row)

        def close(self):
            pass

    run = sterling.train("openes", "CartPole-v1", steps=3 * 8 * 50 + 7, envs=8, limit=50, seeds=2,
                         evaluate_episodes=0, sinks=[Keep()], **FIELDS)  # fmt: skip
    assert run.result["steps"] == 3 * 8 * 50  # whole iterations
    for row in seen:
        lived = np.multiply(row["data/length"], row["data/episodes"])
        np.testing.assert_allclose(row["population/steps"], lived, rtol=1e-6)  # of one iteration
    assert sum(row["data/episodes"][0] for row in seen) == 3 * 8


def test_population_training_of_openes_refuses_invalid_settings():
    how = {"steps": 64 * 20, "limit": 20, "evaluate_episodes": 0}
    with pytest.raises(sterling.Mistake, match=r"even number of envs .*, not 3"):
        sterling.train("openes", "CartPole-v1", envs=3, **how)
    with pytest.raises(sterling.Mistake, match="Leave out sources"):
        sterling.train("openes", "maze:4x4", sources="plr", **how)


@pytest.mark.slow
def test_population_episodes_work_with_host_environments():
    how = {"steps": 2 * 4 * 20, "envs": 4, "limit": 20, "evaluate_episodes": 2, "preset": False}
    run = sterling.train("openes", "gymnasium:CartPole-v1", env_options={"workers": 0}, **how)
    assert run.result["steps"] == 160
