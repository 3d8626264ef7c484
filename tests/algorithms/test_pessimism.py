"""On worlds small enough to be solved exactly, pessimistic learners do not promise too much.

Six states, three actions, everything deterministic; the log holds the better two actions of every
state and never the worst. What a learned policy is truly worth follows by solving its Bellman
equation in the true world, so every learned value can be held against it.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium import spaces

from sterling.algorithms.offline import cql, edac
from sterling.types import Record, Spec

STATES, ACTIONS, GAMMA, ROWS, LOGS = 6, 3, 0.8, 120, 4
ONE_HOT = np.eye(STATES, dtype=np.float32)
WORLD = np.random.default_rng(3)
NEXT = WORLD.integers(STATES, size=(STATES, ACTIONS))
REWARD = WORLD.uniform(-1.0, 1.0, (STATES, ACTIONS))


def optimal_q():
    value = np.zeros(STATES)
    for _ in range(200):
        value = (REWARD + GAMMA * value[NEXT]).max(1)
    return REWARD + GAMMA * value[NEXT]


BETTER = optimal_q().argsort(1)[:, ::-1]  # actions, the best first


def true_value(pi):
    follow = np.einsum("sa,san->sn", pi, ONE_HOT[NEXT])
    return np.linalg.solve(np.eye(STATES) - GAMMA * follow, (pi * REWARD).sum(1))


def batch_of(state, action):
    reward = jnp.asarray(REWARD, jnp.float32)[state, action]
    hot = jnp.asarray(ONE_HOT)
    follow = hot[jnp.asarray(NEXT)[state, action]]
    flags = jnp.zeros(ROWS, bool), jnp.ones(ROWS, bool)
    return Record(hot[state], action, reward, jnp.ones(ROWS), follow, *flags, {})


def learned(module, updates, **fields):
    """A state for each of several logs."""
    rng = np.random.default_rng(0)
    state = rng.integers(STATES, size=(LOGS, ROWS))
    action = BETTER[state, (rng.random((LOGS, ROWS)) < 0.3).astype(int)]
    assert all(len(set(row)) == STATES for row in state)  # every state is in every log
    config = module.Config(gamma=GAMMA, lr=1e-2, tau=0.05, tune_alpha=False, **fields)
    spec = Spec(spaces.Box(0.0, 1.0, (STATES,), np.float32), spaces.Discrete(ACTIONS))

    def train(key, state, action):
        batch = batch_of(state, action)
        keys = jax.random.split(key, updates)
        agent = module.init(key, spec, config)
        return jax.lax.scan(lambda s, k: (module.learn(s, batch, k)[0], None), agent, keys)[0]

    keys = jax.random.split(jax.random.key(0), LOGS)
    rows = jnp.asarray(state, jnp.int32), jnp.asarray(action, jnp.int32)
    return jax.jit(jax.vmap(train))(keys, *rows)


def policies(module, states):
    def of(state):
        each = [jnp.full(STATES, a, jnp.int32) for a in range(ACTIONS)]
        return jnp.stack([module.log_prob(state, jnp.asarray(ONE_HOT), a) for a in each], -1)

    return np.exp(np.asarray(jax.vmap(of)(states), np.float64))


def promised_too_much(penalty):
    """The most by which a learned value is above the truth, for each log."""
    fields = {"depth": 0, "actor_lr": 1e-2, "alpha": 1.0, "batch": ROWS}
    states = learned(cql, 1500, penalty=penalty, **fields)
    value = np.asarray(jax.vmap(lambda s: cql.value(s, jnp.asarray(ONE_HOT)))(states))
    truth = np.stack([true_value(pi) for pi in policies(cql, states)])
    return (value - truth).max(1), truth.mean()


def test_cql_values_are_lower_bounds_of_the_true_policy_value():
    """Kumar 2020, theorem 3.2, for the policy softmax Q that CQL(H) assumes (alpha = 1)."""
    excess, plain = promised_too_much(0.0)
    assert (excess > 0.05).all()  # the worst action's value is a guess, and nothing corrects it
    excess, conservative = promised_too_much(1.0)
    assert (excess < 0.0).all()
    assert conservative > plain + 0.3  # and the policy keeps to what the log knows


@pytest.mark.slow
def test_larger_edac_ensemble_lowers_q_of_unlogged_actions_alone():
    found = {}
    for members in (2, 16):
        fields = {"depth": 1, "width": 32, "alpha": 0.05, "batch": ROWS, "backup_entropy": False}
        states = learned(edac, 800, members=members, diversity=None, **fields)
        q = jax.vmap(lambda s: s.critics.all_q_values(jnp.asarray(ONE_HOT)))(states)
        found[members] = np.asarray(q).min(1)
    fall = np.take_along_axis(found[2] - found[16], np.broadcast_to(BETTER, (LOGS, 6, 3)), -1)
    assert (fall[..., 2].mean(1) > 0.1).all()  # never logged
    assert np.abs(fall[..., 0]).max() < 0.05  # the best action, logged
    np.testing.assert_allclose(found[16].max(-1).mean(0), optimal_q().max(1), atol=0.05)
