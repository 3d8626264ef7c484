"""The planner against NumPy, and against the known best sequences of simple worths."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from sterling.planning.mppi import Plan, mppi, warm_start
from sterling.types import Mistake

ENVS, TIME, SIZE = 3, 4, 2
RNG = np.random.default_rng(0)
GOALS = RNG.uniform(-0.7, 0.7, (ENVS, TIME, SIZE)).astype(np.float32)
SEARCH = {"iterations": 12, "samples": 400, "elites": 40, "temperature": 4.0, "std": (0.02, 1.0)}


def toward_goals(sequences):
    return -jnp.square(sequences - GOALS[None]).sum((-1, -2))


def planned(worth, before=None, **changes):
    before = jnp.zeros((ENVS, TIME, SIZE)) if before is None else before
    return jax.jit(lambda key: mppi(worth, before, key, **SEARCH | changes))(jax.random.key(0))


@pytest.mark.parametrize("temperature", [0.0, 0.5], ids=["cross-entropy", "mppi"])
def test_plan_equals_numpy_on_given_sequences(temperature):
    """Only guided sequences are tried, so mean and deviation are known."""
    guided = RNG.uniform(-1.0, 1.0, (9, ENVS, TIME, SIZE)).astype(np.float32)
    worth = RNG.normal(size=(9, ENVS)).astype(np.float32) * 3.0
    found = mppi(
        lambda sequences: jnp.asarray(worth),
        jnp.zeros((ENVS, TIME, SIZE)),
        jax.random.key(0),
        guided=jnp.asarray(guided),
        **SEARCH | {"samples": 0, "elites": 4, "temperature": temperature, "iterations": 2},
    )
    for env in range(ENVS):
        best = np.argsort(-worth[:, env])[:4]
        weight = np.exp(temperature * worth[best, env])
        weight /= weight.sum()
        mean = np.average(guided[best, env], 0, weight)
        square = np.average((guided[best, env] - mean) ** 2, 0, weight)
        np.testing.assert_allclose(found.mean[env], mean, atol=1e-5)
        np.testing.assert_allclose(found.std[env], np.sqrt(square).clip(0.02, 1.0), atol=1e-5)
        assert np.abs(guided[best, env, 0] - np.asarray(found.action)[env]).max(-1).min() == 0.0


def test_best_sequence_of_every_env_is_found():
    found = planned(toward_goals)
    assert isinstance(found, Plan)
    np.testing.assert_allclose(found.mean, GOALS, atol=0.08)
    np.testing.assert_allclose(found.action, GOALS[:, 0], atol=0.3)
    assert float(found.std.min()) == pytest.approx(0.02)


def test_worths_that_are_no_numbers_count_as_the_lowest():
    """Also infinite ones: they are of a model that exploded."""

    def broken(sequences):
        side, other = sequences[..., 0, 0] > 0, sequences[..., 0, 1] > 0
        return jnp.where(side, toward_goals(sequences), jnp.where(other, jnp.nan, jnp.inf))

    assert float(planned(broken).mean[:, 0, 0].min()) > -0.05
    nothing = planned(lambda x: jnp.full(x.shape[:2], jnp.nan), iterations=2)
    assert all(bool(jnp.isfinite(x).all()) for x in nothing)


def test_plan_of_one_step_is_where_the_next_begins():
    """Without its first action; and a search of deviation 0 stays where it begins."""
    later = warm_start(jnp.asarray(GOALS))
    np.testing.assert_array_equal(later[:, :-1], GOALS[:, 1:])
    np.testing.assert_array_equal(later[:, -1], np.zeros((ENVS, SIZE)))
    still = planned(toward_goals, later, std=(0.0, 0.0), iterations=1)
    np.testing.assert_allclose(still.mean, later, atol=1e-6)
    np.testing.assert_array_equal(still.action, later[:, 0])


def test_more_elites_than_sequences_are_refused():
    with pytest.raises(Mistake, match="of 400 sequences 401 cannot be elites"):
        planned(toward_goals, elites=401)
