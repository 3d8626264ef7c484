"""The chooser of levels in examples/methods/alp_gmm.py: what it draws, hears and achieves."""

from pathlib import Path

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import sterling
from sterling.envs.episode_starts import Start
from sterling.equations.gaussian_mixture import Mixture
from sterling.lookup import user_imports
from sterling.types import Record

FILE = Path(__file__).parents[2] / "examples/methods/alp_gmm.py"
KEY = jax.random.wrap_key_data(np.array([0, 3], np.uint32))


@pytest.fixture(name="chooser", scope="module")
def _chooser():
    """One of levels in [-1, 1] x [0, 1] that has heard nothing."""
    task = user_imports.load(f"{FILE}:FarMarks")
    return user_imports.load(f"{FILE}:AlpGmm").create(KEY, task, None)


def rows(ended):
    """Rows ``(time, env)`` of which only their ends are of interest."""
    zeros = jnp.zeros(ended.shape)
    return Record(zeros, zeros, zeros, zeros, zeros, jnp.asarray(ended), zeros == 0.0)


def test_progress_is_how_far_the_return_is_from_that_of_the_nearest_level(chooser):
    levels = jnp.array([[[-1.0, 0.0], [1.0, 1.0]], [[0.8, 1.0], [-0.9, 0.0]]])
    returns = jnp.array([[1.0, 5.0], [7.0, 100.0]])
    ended = np.array([[True, True], [True, False]])
    heard = jax.jit(lambda known: known.heard(rows(ended), Start(level=levels), returns))(chooser)
    assert heard.count == 3
    # scaled to [0, 1]; of the third the nearest is the second, which earned 5
    expected = [[0.0, 0.0, 0.0], [1.0, 1.0, 4.0], [0.9, 1.0, 2.0]]
    np.testing.assert_allclose(heard.recent[:3], expected, atol=1e-6)


def test_levels_are_drawn_where_progress_is_but_for_a_fifth(chooser):
    mixture = Mixture(
        jnp.array([0.5, 0.5, *[0.0] * 6]),
        jnp.zeros((8, 3)).at[0].set(jnp.array([0.5, 0.5, 0.0])).at[1].set(
            jnp.array([0.9, 0.1, 2.0])
        ),
        jnp.full((8, 3), 1e-6),
    )  # fmt: skip
    known = eqx.tree_at(lambda x: (x.mixture, x.count), chooser, (mixture, jnp.int32(500)))
    drawn = np.asarray(jax.jit(lambda x: x.draw(KEY, 4000).level)(known))
    near = np.abs(drawn - [0.8, 0.1]).max(1) < 0.02
    assert abs(near.mean() - 0.8) < 0.03
    assert (np.abs(drawn - [0.0, 0.5]).max(1) < 0.02).mean() < 0.01
    first = np.asarray(jax.jit(lambda x: x.draw(KEY, 4000).level)(chooser))
    assert np.allclose(first.mean(0), [0.0, 0.5], atol=0.03)


@pytest.mark.slow
def test_ppo_with_alp_gmm_reaches_marks_that_chance_does_not():
    """At random 0.04 of them are reached, at best 0.3; five seeds reached 0.12 to 0.31."""
    how = {"steps": 100_000, "seeds": 3, "evaluate_episodes": 200, "quiet": True}
    run = sterling.train("ppo", f"{FILE}:FarMarks", sources=str(FILE), **how)
    assert min(run.result["final"]["return"]["per_seed"]) > 0.08
