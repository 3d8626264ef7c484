"""Numbers that change when a run goes from its log to the world."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium import spaces

from sterling import algorithms
from sterling.training.agent import MIN_ALPHA, Agent
from sterling.training.fields.config_fields import make_config
from sterling.types import Spec

SPEC = Spec(spaces.Box(-1, 1, (3,), np.float32), spaces.Box(-1, 1, (2,), np.float32), 1)


def config(name, **fields):
    return make_config(algorithms.find(name), {"width": 8, **fields}, name)


def agents(name):
    module = algorithms.find(name)
    return Agent.create(module, jax.random.split(jax.random.key(0), 2), SPEC, config(name), "map")


@pytest.mark.parametrize(
    ("name", "field", "learned"),
    [
        ("sac", "alpha", "log_alpha"),
        ("edac", "alpha", "log_alpha"),
        ("cql", "alpha", "log_alpha"),
        ("cql", "penalty", "log_penalty"),
    ],
)
def test_online_phase_field_resets_the_parameter_it_initialises(name, field, learned):
    before = agents(name)
    after = before.with_fields(config(name, **{field: 0.01}), [field])
    assert not np.allclose(getattr(before.state, learned), np.log(0.01))
    np.testing.assert_allclose(getattr(after.state, learned), np.full(2, np.log(0.01)), rtol=1e-6)
    np.testing.assert_allclose(getattr(after.state.config, field), np.full(2, 0.01))
    nothing = before.with_fields(config(name, **{field: 0.0}), [field])
    np.testing.assert_allclose(jnp.exp(getattr(nothing.state, learned)), MIN_ALPHA, rtol=1e-4)


def test_online_phase_field_change_leaves_other_agent_state_unchanged():
    before = agents("edac")
    after = before.with_fields(config("edac", lr=0.5), ["lr"])
    np.testing.assert_array_equal(after.state.log_alpha, before.state.log_alpha)
    np.testing.assert_array_equal(after.state.config.lr, np.full(2, 0.5, np.float32))
