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
from sterling.experience.rollouts.population_episodes import Population, PopulationActor
from sterling.training.agent import Agent

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
