"""Multi-agent PPO: a critic that reads the state, or what all see, and policies that do not."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium import spaces

import sterling
from sterling.algorithms.multi_agent import ippo, mappo
from sterling.envs.probes.unseen_probe import AGENTS, HiddenProbe
from sterling.problem.agent_axis import Agents, joint
from sterling.types import Mistake, Record, Spec

NAMES = ("red", "green", "blue")
ENVS, LENGTH = 2, 4
SMALL = {"width": 4, "depth": 1, "length": LENGTH, "minibatch": 8, "normalise_obs": False}
OWN = joint(spaces.Box(-1.0, 1.0, (2,), np.float32), 3)
STATE = spaces.Box(-1.0, 1.0, (5,), np.float32)


def made(stateful=False, alive=True, masked=False, **fields):
    """A new agent of three who each see two numbers."""
    parts = {"x": OWN}
    parts |= {"alive": spaces.MultiBinary(3)} if alive else {}
    parts |= {"state": STATE} if stateful else {}
    parts |= {"action_mask": spaces.MultiBinary((3, 4))} if masked else {}
    known = {"agents": Agents(NAMES), "unseen": ("state",) if stateful else ()}
    spec = Spec(spaces.Dict(parts), joint(spaces.Discrete(4), 3), ENVS, **known)
    return mappo.init(jax.random.key(0), spec, mappo.Config(**{**SMALL, **fields}))


def seen(lead, stateful=False, seed=0):
    rng = np.random.default_rng(seed)
    obs = {"x": rng.normal(size=(*lead, 3, 2)), "alive": np.ones((*lead, 3))}
    if stateful:
        obs["state"] = rng.normal(size=(*lead, 5))
    return {name: jnp.asarray(x, jnp.float32) for name, x in obs.items()}


@pytest.mark.parametrize("identity", [True, False])
@pytest.mark.parametrize("stateful", [True, False])
def test_mappo_policy_depends_on_own_observation_alone(identity, stateful):
    state, obs = made(stateful, identity=identity), seen((ENVS,), stateful)
    other = obs | {"x": obs["x"].at[:, 1:].add(1.0)}
    if stateful:
        other["state"] = obs["state"] + 1.0
    action = jnp.zeros((ENVS, 3), jnp.int32)
    one, two = (np.asarray(mappo.log_prob(state, each, action)) for each in (obs, other))
    np.testing.assert_array_equal(one[:, 0], two[:, 0])
    assert (one[:, 1:] != two[:, 1:]).all()
    known = {name: x for name, x in obs.items() if name != "state"}
    key = jax.random.key(1)
    np.testing.assert_array_equal(
        mappo.act(state, known, key, True)[0], mappo.act(state, obs, key, True)[0]
    )


def test_mappo_critic_reads_global_state_and_own_observation_only():
    state, obs = made(stateful=True), seen((ENVS,), True)
    before = np.asarray(mappo.value(state, obs))
    told = np.asarray(mappo.value(state, obs | {"state": obs["state"].at[0].add(1.0)}))
    np.testing.assert_array_equal(before != told, [[True] * 3, [False] * 3])
    moved = np.asarray(mappo.value(state, obs | {"x": obs["x"].at[:, 2].add(1.0)}))
    np.testing.assert_array_equal(before != moved, [[False, False, True]] * ENVS)


def test_mappo_critic_without_state_reads_all_agents_but_no_dead_ones():
    state, obs = made(), seen((ENVS,))
    before = np.asarray(mappo.value(state, obs))
    changed = obs["x"].at[:, 2].add(1.0)
    assert (before != np.asarray(mappo.value(state, obs | {"x": changed}))).all()
    gone = obs["alive"].at[:, 2].set(0.0)
    one, two = (mappo.value(state, obs | {"alive": gone, "x": x}) for x in (obs["x"], changed))
    np.testing.assert_array_equal(one[:, :2], two[:, :2])
    assert (np.asarray(one) != before).all()  # who is there is seen


def test_mappo_critic_input_joins_observations_of_all_agents():
    state, obs = made(), seen((LENGTH, ENVS))
    wide = mappo._critic_obs(state, obs)
    assert [x.shape for x in wide["whole"]] == [(LENGTH, ENVS, 3, 2)] * 3 + [(LENGTH, ENVS, 3, 3)]
    for agent, part in enumerate(wide["whole"][:3]):
        for reader in range(3):
            np.testing.assert_array_equal(part[:, :, reader], obs["x"][:, :, agent])
    stated = mappo._critic_obs(made(stateful=True), seen((ENVS,), True))["whole"]
    assert [x.shape for x in stated] == [(ENVS, 3, 5), (ENVS, 3, 3)]


def test_mappo_agent_cut_off_alone_is_valued_where_it_still_was():
    obs = seen((ENVS,))
    gone = obs | {"alive": obs["alive"].at[0, 1].set(0.0)}
    cut = gone | {"truncated": jnp.zeros((ENVS, 3)).at[0, 1].set(1.0)}
    state = made()
    first, second, third, there = mappo._critic_obs(state, cut)["whole"]
    np.testing.assert_array_equal(second[0, 1], obs["x"][0, 1])  # to the agent itself
    np.testing.assert_array_equal(second[0, 0], [0.0, 0.0])  # to one that goes on
    np.testing.assert_array_equal(there[0], [[1, 0, 1], [1, 1, 1], [1, 0, 1]])
    np.testing.assert_array_equal(first[0], [obs["x"][0, 0]] * 3)
    np.testing.assert_array_equal(third[0], [obs["x"][0, 2]] * 3)
    value, before, after = (np.asarray(mappo.value(state, each)) for each in (cut, obs, gone))
    np.testing.assert_array_equal(value[0], [after[0, 0], before[0, 1], after[0, 2]])
    np.testing.assert_array_equal(value[1], before[1])


@pytest.mark.parametrize("identity", [True, False])
def test_mappo_accepts_observations_that_are_no_dict(identity):
    spec = Spec(OWN, joint(spaces.Discrete(4), 3), ENVS, agents=Agents(NAMES))
    config = mappo.Config(**SMALL, identity=identity)
    state, x = mappo.init(jax.random.key(0), spec, config), seen((ENVS,))["x"]
    assert [part.shape for part in mappo._critic_obs(state, x)["whole"]] == [(ENVS, 3, 2)] * 3
    assert mappo.act(state, x, jax.random.key(1), False)[0].shape == (ENVS, 3)


@pytest.mark.parametrize("identity", [True, False])
def test_mappo_action_mask_applies_to_its_own_agent_alone(identity):
    lead = (300,)
    allowed = np.array([[1, 0, 0, 0], [0, 1, 1, 0], [0, 0, 0, 1]], np.int8)
    obs = seen(lead, True) | {"action_mask": jnp.broadcast_to(allowed, (*lead, 3, 4))}
    state = made(True, masked=True, identity=identity)
    action, _ = mappo.act(state, obs, jax.random.key(1), True)
    assert [set(np.unique(action[:, agent])) for agent in range(3)] == [{0}, {1, 2}, {3}]
    assert mappo.value(state, obs).shape == (300, 3)


def test_mappo_picture_state_is_read_by_the_critic_alone():
    picture = spaces.Box(0, 255, (3, 12, 12), np.uint8)
    obs = spaces.Dict({"x": OWN, "state": picture})
    known = {"agents": Agents(NAMES), "unseen": ("state",)}
    spec = Spec(obs, joint(spaces.Discrete(4), 3), ENVS, **known)
    state = mappo.init(jax.random.key(0), spec, mappo.Config(**SMALL))
    given = {"x": seen((ENVS,))["x"], "state": jnp.ones((ENVS, 3, 12, 12), jnp.uint8)}
    assert mappo.value(state, given).shape == (ENVS, 3)
    assert mappo.act(state, {"x": given["x"]}, jax.random.key(1), False)[0].shape == (ENVS, 3)


def test_mappo_reward_is_the_team_sum_unless_reward_is_own():
    obs = seen((LENGTH + 1, ENVS))
    own = np.random.default_rng(1).normal(size=(LENGTH, ENVS, 3)).astype(np.float32)
    none = jnp.zeros((LENGTH, ENVS))
    batch = Record(
        jax.tree.map(lambda x: x[:-1], obs), jnp.zeros((LENGTH, ENVS, 3), jnp.int32),
        jnp.asarray(own.sum(-1)), none + 1.0, jax.tree.map(lambda x: x[1:], obs), none > 0,
        none < 1, {"reward": jnp.asarray(own), "log_prob": jnp.zeros((LENGTH, ENVS, 3))},
    )  # fmt: skip
    team = ippo.rows_per_agent(made(), batch, mappo._critic_obs).reward
    np.testing.assert_array_equal(team, np.repeat(own.sum(-1), 3, 1))
    alone = ippo.rows_per_agent(made(reward="own"), batch, mappo._critic_obs).reward
    np.testing.assert_array_equal(alone, own.reshape(LENGTH, -1))


def test_mappo_refuses_a_single_agent_environment():
    with pytest.raises(Mistake, match="mappo needs an environment with several agents"):
        sterling.train("mappo", "probe:both", steps=4096, preset=False)


FIELDS = {
    **{"gamma": 0.8, "lr": 5e-3, "length": 16, "minibatch": 192, "epochs": 4, "width": 16},
    **{"normalise_obs": False, "normalise_reward": False, "reward": "own"},
}


def values(name):
    """What each seed's critic finds in the two states, ``(seed, state, agent)``; the actions."""
    run = sterling.train(
        name, "probe:hidden-team", steps=40_000, envs=8, seeds=2, evaluate_episodes=0,
        preset=False, **FIELDS,
    )  # fmt: skip
    obs, expected = HiddenProbe(team=True).solution()
    obs = jax.tree.map(jnp.asarray, obs)
    found = jax.vmap(lambda state: run.agent.algorithm.value(state, obs))(run.agent.state)
    seen = {"observation": np.zeros((len(AGENTS), 1), np.float32)}
    return np.asarray(found), expected, [run.player(seed)(seen).tolist() for seed in (0, 1)]


@pytest.mark.slow
def test_mappo_critic_learns_values_that_only_the_state_tells():
    found, expected, actions = values("mappo")
    np.testing.assert_allclose(found, np.stack([expected] * 2), atol=0.1)
    assert actions == [[1, 1, 1]] * 2
    blind, _, actions = values("ippo")
    np.testing.assert_array_equal(blind[:, 0], blind[:, 1])
    np.testing.assert_allclose(blind, np.ones_like(blind), atol=0.35)
    assert actions == [[1, 1, 1]] * 2
