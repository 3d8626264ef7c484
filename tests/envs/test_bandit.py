"""Bandits: what they pay, and the best that can be done in them."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from sterling import envs, random_keys
from sterling.envs.native import bandit
from sterling.types import Mistake


@pytest.mark.parametrize(
    ("arms", "pulls", "expected"),
    [
        (1, 4, 2.0),  # nothing to choose: the mean of a uniform chance
        (2, 1, 0.5),
        (2, 2, 13 / 12),  # stay after a success (1/2 + 2/3), else the other (0 + 1/2)
    ],
)
def test_the_best_return_of_small_bandits_by_hand(arms, pulls, expected):
    assert bandit.bayes_optimal_return(arms, pulls) == pytest.approx(expected)


def test_bandit_bayes_optimal_return_matches_the_literature():
    """Duan 2016, table 1: the Gittins index gets 6.6 and RL^2 6.7 of 10 pulls of 5 arms."""
    assert 6.6 <= bandit.bayes_optimal_return(5, 10) <= 6.7


def test_bandit_arms_pay_by_their_uniform_probabilities():
    task, limit = bandit.make("3-arms-50-pulls")
    assert limit == 0
    states, _ = jax.vmap(task.reset)(jax.random.split(jax.random.key(0), 4000))
    np.testing.assert_allclose(jnp.sort(states.chance[:, 0])[::400], np.arange(10) / 10, atol=0.03)
    state = jax.tree.map(lambda x: x[0], states)
    for arm in range(3):
        pull = jax.vmap(lambda key, arm=arm: task.step(state, jnp.int32(arm), key)[2])
        paid = pull(jax.random.split(jax.random.key(arm), 4000))
        assert set(np.unique(paid)) <= {0.0, 1.0}
        assert float(paid.mean()) == pytest.approx(float(state.chance[arm]), abs=0.03)


def test_bandit_episode_ends_after_its_pulls_with_new_arms():
    world = envs.make("bandit:2-arms-3-pulls", (0,), 1)
    start = random_keys.for_seeds(jnp.zeros(1, jnp.int32), "test", 0)
    state, _ = world.reset(start)
    lasts, chances = [], []
    for time in range(5):
        chances.append(float(state.task.chance[0, 0, 0]))
        step_keys = random_keys.fold_each(start, "step", time)
        state, step = world.step(state, jnp.zeros((1, 1), jnp.int32), step_keys)
        lasts.append((bool(step.last[0, 0]), float(step.discount[0, 0]), bool(step.mask[0, 0])))
    assert lasts[:4] == [(False, 1, True), (False, 1, True), (True, 0, True), (False, 1, False)]
    assert chances[0] == chances[3] != chances[4]


@pytest.mark.parametrize(
    "name", ["bandit:0-arms-3-pulls", "bandit:two-arms", "bandit:2-arms-0-pulls"]
)
def test_bandit_refuses_unknown_names(name):

    with pytest.raises(Mistake, match="Unknown environment"):
        envs.make(name, (0,), 1)
