"""PQN beside its contract: several choices at once, and rollouts too short for a minibatch."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium import spaces

from sterling.algorithms.q_learning import pqn
from sterling.types import Mistake, Record, Spec

OBS = spaces.Box(-9.0, 9.0, (4,), np.float32)
SIZES = (3, 2)


def test_pqn_refuses_a_minibatch_larger_than_a_rollout():
    config = pqn.Config(length=4, minibatch=17)
    with pytest.raises(Mistake, match="minibatch=17 does not fit into a rollout of 16 rows"):
        pqn.init(jax.random.key(0), Spec(OBS, spaces.Discrete(2), 4), config)


def test_pqn_multidiscrete_q_is_the_mean_over_choices():
    """Errors of one step (lambda 0) and of a whole rollout (lambda 1), summed by hand."""
    rng = np.random.default_rng(0)
    obs = rng.normal(size=(4, 1, 4)).astype(np.float32)
    action = np.stack([rng.integers(n, size=(3, 1)) for n in SIZES], -1).astype(np.int32)
    reward, ones = rng.normal(size=(3, 1)).astype(np.float32), np.ones((3, 1))
    parts = (obs[:-1], action, reward, ones, obs[1:], ones < 0.0, ones > 0.0)
    batch = Record(*(jnp.asarray(x, jnp.float32 if x is ones else None) for x in parts), {})
    for lam in (0.0, 1.0):
        config = pqn.Config(width=8, length=3, minibatch=3, gamma=0.5, q_lambda=lam)
        state = pqn.init(jax.random.key(0), Spec(OBS, spaces.MultiDiscrete(SIZES)), config)
        q = np.asarray(state.net(jnp.asarray(obs)))[:, 0]
        best = (q[:, :3].max(-1) + q[:, 3:].max(-1)) / 2
        following, found = best[3], np.asarray(pqn.rollout_rows(state, batch)[1])[:, 0]
        for time in (2, 1, 0):
            first, second = action[time, 0]
            following = reward[time, 0] + 0.5 * following
            taken = (q[time, first] + q[time, 3 + second]) / 2
            np.testing.assert_allclose(found[time], following - taken, rtol=1e-4, atol=1e-5)
            following = best[time] if lam == 0.0 else following
