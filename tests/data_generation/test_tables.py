"""Tables: exact values against played ones, and logs of known policies."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from sterling import envs, random_keys
from sterling.data import Dataset
from sterling.data_generation.tabular_logs import make_log
from sterling.envs.native.tabular_mdp import NAMES, Tabular, make_tabular
from sterling.types import Mistake

GAMMA = 0.9


def uniform(mdp):
    return np.full(mdp.reward.shape, 1 / mdp.actions)


@pytest.mark.parametrize("name", NAMES)
def test_tabular_mdp_values_solve_the_bellman_equation(name):
    mdp = make_tabular(name)
    policy = mdp.greedy(mdp.reward, 0.3)
    q = mdp.values(policy, GAMMA)
    ahead = (policy * q).sum(1)
    right = mdp.reward + GAMMA * np.einsum("sat,sat,t->sa", mdp.transition, 1 - mdp.end, ahead)
    np.testing.assert_allclose(q, right, atol=1e-10)
    best = mdp.optimal(GAMMA)
    assert (best >= q - 1e-9).all()
    right = mdp.reward + GAMMA * np.einsum(
        "sat,sat,t->sa", mdp.transition, 1 - mdp.end, best.max(1)
    )
    np.testing.assert_allclose(best, right, atol=1e-9)
    np.testing.assert_allclose(mdp.values(policy, GAMMA, 400), q, atol=1e-8)
    occupied = (mdp.visits(policy, GAMMA) * mdp.reward).sum()
    assert occupied == pytest.approx(mdp.expected_return(policy, GAMMA))


def test_tabular_mdp_chain_of_two_has_the_hand_computed_return():
    mdp = make_tabular("chain-2")
    right = np.array([[0.0, 1.0], [0.0, 1.0]])
    # each try arrives with chance 0.9: 0.9 + 0.1 * g * (the same again)
    assert mdp.expected_return(right, GAMMA) == pytest.approx(0.9 / (1 - 0.1 * GAMMA))
    assert mdp.expected_return(right, 1.0, horizon=1) == pytest.approx(0.9)


def test_tabular_mdp_environment_return_matches_the_exact_return():
    mdp = make_tabular("grid-4x4")
    policy = mdp.greedy(mdp.optimal(GAMMA), 0.2)
    world = envs.make("tabular:grid-4x4", (0,), 256)
    chances = jnp.asarray(policy, jnp.float32)

    @jax.jit
    def play():
        def step(carry, time):
            state, obs, weight, alive = carry
            both = random_keys.for_seeds(jnp.zeros(1, jnp.int32), "test", time)
            action = jax.random.categorical(both[0], jnp.log(obs @ chances)).astype(jnp.int32)
            state, made = world.step(state, action, both)
            gain = jnp.sum(weight * alive * made.reward)
            return (state, made.obs, weight * GAMMA, jnp.where(made.last, 0.0, alive)), gain

        state, obs = world.reset(random_keys.for_seeds(jnp.zeros(1, jnp.int32), "start", 0))
        start = state, obs, jnp.asarray(1.0), jnp.ones((1, 256))
        return jax.lax.scan(step, start, jnp.arange(80, dtype=jnp.int32))[1].sum() / 256.0

    assert float(play()) == pytest.approx(mdp.expected_return(policy, GAMMA), abs=0.03)


def test_tabular_log_mean_return_matches_the_policys_exact_return(tmp_path):
    mdp = make_tabular("random-16x4-0")
    policy = mdp.greedy(mdp.optimal(GAMMA), 0.5)
    data = make_log(mdp, policy, 3000, 60, seed=1)
    total = [sum(r * GAMMA**t for t, r in enumerate(one.reward)) for one in data]
    error = np.std(total) / np.sqrt(len(total))
    assert abs(np.mean(total) - mdp.expected_return(policy, GAMMA, 60)) < 4 * error
    rows = data.transitions()
    state, action = rows.extras["state"], rows.action
    np.testing.assert_allclose(rows.extras["log_prob"], np.log(policy[state, action]), rtol=1e-5)
    np.testing.assert_array_equal(np.argmax(rows.obs, 1), state)
    following = np.argmax(np.asarray(rows.next_obs), 1)
    assert (mdp.transition[state, action, following] > 0).all()
    ended = np.asarray(rows.discount) == 0
    assert np.asarray(rows.last)[ended].all()
    assert 0 < (data.lengths == 60).mean() < 1
    again = make_log(mdp, policy, 3000, 60, seed=1)
    assert (again.hash, make_log(mdp, policy, 3000, 60, seed=2).hash != data.hash) == (
        data.hash,
        True,
    )
    assert Dataset(data.save(tmp_path / "log")).hash == data.hash


def test_tabular_mdp_with_integer_observations():
    mdp = make_tabular("chain-8-numbers")
    data = make_log(mdp, uniform(mdp), 5, seed=0)
    assert data.obs_space == mdp.obs
    assert data[0].obs.shape == (len(data[0]) + 1,)
    world = envs.make("tabular:chain-8-numbers", (0,), 2)
    assert world.reset(random_keys.for_seeds(jnp.zeros(1, jnp.int32), "start", 0))[1].tolist() == [
        [0, 0]
    ]


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (lambda: make_tabular("chain-1"), "too small"),
        (lambda: make_tabular("ring-8"), "Unknown tabular world 'ring-8'"),
        (lambda: envs.make("tabular:grid-8x9x", (0,), 1), "did you mean tabular:grid-8"),
        (lambda: _one(transition=np.ones((2, 2, 2))), "Make its rows sum to 1"),
        (lambda: _one(end=np.ones(3)), r"end has shape \(3,\). Give \(2,\) or \(2, 2\)"),
        (lambda: _one(end=np.zeros(2)).values(np.eye(2), 1.0), "never ends"),
        (lambda: make_log(make_tabular("chain-8"), np.ones((8, 2)), 5), "each row must sum to 1"),
    ],
)
def test_invalid_tabular_mdps_are_refused(wrong, said):
    with pytest.raises(Mistake, match=said):
        wrong()


def _one(**changed):
    whole = {"transition": np.full((2, 2, 2), 0.5), "reward": np.ones((2, 2)), "end": np.ones(2)}
    return Tabular(**{**whole, "start": np.array([1.0, 0.0]), **changed})
