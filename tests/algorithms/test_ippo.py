"""Independent PPO: whose reward is learned from, who is seen, and whom a mask binds."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium import spaces

import sterling
from sterling.algorithms.multi_agent import ippo
from sterling.envs.probes.team_probe import PartingTeam
from sterling.equations.returns import continues, gae
from sterling.problem.agent_axis import Agents, joint
from sterling.types import Record, Spec

NAMES = ("red", "green", "blue")
ENVS, LENGTH = 2, 4
SMALL = {"width": 4, "depth": 1, "length": LENGTH, "minibatch": 8, "normalise_obs": False}
PARTS = {"own": joint(spaces.Box(-1.0, 1.0, (2,), np.float32), 3), "alive": spaces.MultiBinary(3)}


def made(masked=False, **fields):
    """A new agent, and its problem's observations of one number each."""
    parts = PARTS | ({"action_mask": spaces.MultiBinary((3, 4))} if masked else {})
    spec = Spec(spaces.Dict(parts), joint(spaces.Discrete(4), 3), ENVS, agents=Agents(NAMES))
    return ippo.init(jax.random.key(0), spec, ippo.Config(**{**SMALL, **fields}))


def seen(lead, seed=0):
    own = np.random.default_rng(seed).normal(size=(*lead, 3, 2)).astype(np.float32)
    return {"own": jnp.asarray(own), "alive": jnp.ones((*lead, 3), jnp.int8)}


def rollout(alive, last):
    """Rewards that name their row: 100 * time + 10 * env + agent."""
    time, env, agent = np.indices((LENGTH, ENVS, 3))
    own = (100 * time + 10 * env + agent).astype(np.float32)
    obs = seen((LENGTH + 1, ENVS)) | {"alive": jnp.asarray(alive.astype(np.int8))}
    return Record(
        jax.tree.map(lambda x: x[:-1], obs),
        jnp.zeros((LENGTH, ENVS, 3), jnp.int32),
        jnp.asarray(own.sum(-1)),
        jnp.ones((LENGTH, ENVS)),
        jax.tree.map(lambda x: x[1:], obs),
        jnp.asarray(last),
        jnp.ones((LENGTH, ENVS), bool),
        {"reward": jnp.asarray(own), "log_prob": jnp.zeros((LENGTH, ENVS, 3))},
    )


@pytest.mark.parametrize("reward", ["own", "team"])
def test_ippo_treats_every_agent_of_every_env_as_its_own_column(reward):
    alive = np.ones((LENGTH + 1, ENVS, 3), bool)
    alive[2:, 1, 0] = False  # red leaves the second environment in the step at time 1
    last = np.zeros((LENGTH, ENVS), bool)
    last[3] = True
    batch = rollout(alive, last)
    rows = ippo.rows_per_agent(made(reward=reward), batch)
    for env in range(ENVS):
        for agent in range(3):
            column = 3 * env + agent
            own, team = batch.extras["reward"][:, env, agent], batch.reward[:, env]
            np.testing.assert_array_equal(rows.reward[:, column], own if reward == "own" else team)
            there = rows.obs["observation"]["own"][:, column]
            np.testing.assert_array_equal(there, batch.obs["own"][:, env, agent])
            np.testing.assert_array_equal(rows.obs["agent"][:, column], [np.eye(3)[agent]] * LENGTH)
    np.testing.assert_array_equal(rows.mask[:, 3], [True, True, False, False])
    np.testing.assert_array_equal(rows.discount[:, 3], [1, 0, 0, 0])
    assert bool(rows.last[1, 3])
    others = np.delete(np.arange(6), 3)
    assert np.asarray(rows.mask)[:, others].all()
    assert (np.asarray(rows.discount)[:, others] == 1.0).all()
    np.testing.assert_array_equal(
        np.asarray(rows.last)[:, others], [[i == 3] * 5 for i in range(4)]
    )


def test_ippo_value_depends_on_own_observation_and_agent_identity():
    obs = seen((ENVS,))
    same = obs | {"own": jnp.broadcast_to(obs["own"][:, :1], obs["own"].shape)}
    known, unknown = (np.asarray(ippo.value(made(identity=i), same)) for i in (True, False))
    assert (np.ptp(unknown, -1) < 1e-6).all()
    assert (np.ptp(known, -1) > 1e-3).all()
    changed = obs | {"own": obs["own"].at[:, 2].add(1.0)}
    state = made()
    differs = np.asarray(ippo.value(state, obs) != ippo.value(state, changed))
    np.testing.assert_array_equal(differs, [[False, False, True]] * ENVS)


@pytest.mark.parametrize("identity", [True, False])
def test_ippo_action_mask_applies_to_its_own_agent_alone(identity):
    lead = (300,)
    allowed = np.array([[1, 0, 0, 0], [0, 1, 1, 0], [0, 0, 0, 1]], np.int8)
    obs = seen(lead) | {"action_mask": jnp.broadcast_to(allowed, (*lead, 3, 4))}
    state = made(masked=True, identity=identity)
    action, _ = ippo.act(state, obs, jax.random.key(1), True)
    assert [set(np.unique(action[:, agent])) for agent in range(3)] == [{0}, {1, 2}, {3}]


def test_ippo_agent_cut_off_alone_bootstraps_from_its_last_observation():
    alive = np.ones((LENGTH + 1, ENVS, 3), bool)
    alive[2:, 0, 1] = False  # green is cut off by the step at time 1, in the first environment
    alive[2:, 1, 0] = False  # red ends there, in the second
    cut = np.zeros_like(alive)
    cut[2, 0, 1] = True
    batch = rollout(alive, np.zeros((LENGTH, ENVS), bool))
    marked = jnp.asarray(cut.astype(np.int8))
    batch = dataclasses.replace(
        batch,
        obs=batch.obs | {"truncated": marked[:-1]},
        next_obs=batch.next_obs | {"truncated": marked[1:]},
    )
    rows = ippo.rows_per_agent(made(), batch)
    green, red = 1, 3
    for column in (green, red):
        np.testing.assert_array_equal(rows.mask[:, column], [True, True, False, False])
        assert bool(rows.last[1, column])
    np.testing.assert_array_equal(rows.discount[:2, green], [1, 1])
    np.testing.assert_array_equal(rows.discount[:2, red], [1, 0])
    last_seen = rows.next_obs["observation"]["own"][1, green]
    np.testing.assert_array_equal(last_seen, batch.next_obs["own"][1, 0, 1])
    assert (np.asarray(rows.discount)[:, [0, 2, 4, 5]] == 1.0).all()
    # a value v of that observation: r + v for green, r alone for red
    value = jnp.full((LENGTH, 6), 7.0)
    trace = continues(rows.last, rows.mask)
    found = gae(rows.reward, rows.discount, 0.0 * value, value, trace, lam=1.0)
    np.testing.assert_array_equal(found[1, jnp.array([green, red])], [101 + 7, 110])


@pytest.mark.slow
@pytest.mark.parametrize("name", ["ippo", "mappo"])
def test_agents_that_leave_in_different_ways_have_known_values(name):
    run = sterling.train(
        name, "probe:parting-team", steps=40_000, envs=8, seeds=1, evaluate_episodes=0,
        preset=False, gamma=0.8, lr=5e-3, length=16, minibatch=192, epochs=4, width=16,
        normalise_obs=False, normalise_reward=False, reward="own",
    )  # fmt: skip
    solution = PartingTeam().solution(0.8)
    np.testing.assert_allclose(solution.value, [[5.0, 1.0, 5.0]], rtol=1e-5)
    obs = jax.tree.map(jnp.asarray, solution.obs)
    found = jax.vmap(lambda state: run.agent.algorithm.value(state, obs))(run.agent.state)
    np.testing.assert_allclose(found[0], solution.value, atol=0.3)
    seen = {name: x[0] for name, x in solution.obs.items()}
    assert run.policy({name: seen[name] for name in ("observation", "alive")}).shape == (3,)
