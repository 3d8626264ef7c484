"""Goals of learners that are asked for them: which rows' goals, how often, and what they pay."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium import spaces

from sterling.algorithms.goals import gcbc, gcivl, hiql
from sterling.data import Dataset
from sterling.data.episode_columns import Block
from sterling.data.goal_columns import lacks_goals, with_goal_columns
from sterling.equations.goal_rewards import wanting
from sterling.experience.offline.dataset_batches import DatasetSource
from sterling.needs.goal_rows import drawn_goal
from sterling.types import Later, Mistake

LENGTHS = (1, 4, 9, 30)
KEYS = jax.random.wrap_key_data(np.array([[0, 3]], np.uint32))
PLACE = spaces.Box(-np.inf, np.inf, (2,), np.float32)


def log():
    """A log of observations alone, which say which episode it is and how many steps are done."""
    seen = [np.stack([np.full(n + 1, k), np.arange(n + 1)], 1) for k, n in enumerate(LENGTHS)]
    rows = sum(LENGTHS)
    columns = {
        "obs": np.concatenate(seen).astype(np.float32),
        "action": np.arange(rows, dtype=np.float32)[:, None] / rows,
        "reward": np.full(rows, 7.0, np.float32),
        "discount": np.full(rows, 0.5, np.float32),
    }
    block = Block(columns, np.array(LENGTHS), np.zeros(len(LENGTHS), np.int32))
    box = spaces.Box(-1.0, 1.0, (1,), np.float32)
    return with_goal_columns(Dataset.from_block(block, PLACE, box))


def drawn(needs):
    """A batch of a log, as NumPy."""
    source, feed = DatasetSource.create(log(), needs), needs.feeds[0]
    chance = jax.tree.map(lambda x: x[0, 0], source.presample(feed, KEYS))
    return jax.tree.map(np.asarray, source.draw(feed, jnp.zeros((), jnp.int32), None, chance))


def laws(algorithm, **fields):
    beside = algorithm.needs(algorithm.Config(**fields)).feeds[0].beside
    return {each.name: each.law for each in beside}


def test_learners_of_goals_ask_for_the_rows_of_their_papers():
    far = Later(share=(0.0, 1.0, 0.0))
    assert laws(gcbc) == {"policy_goal": far}
    values = laws(gcivl)
    assert values["policy_goal"] == far
    assert values["goal"].discount == 0.99
    np.testing.assert_allclose(values["goal"].share, (0.2, 0.5, 0.3))
    points = laws(hiql, way_steps=7, policy_future=0.7)
    np.testing.assert_allclose(points["policy_goal"].share, (0.0, 0.7, 0.3))
    assert points["way_point"] == Later(7)
    assert points["policy_way_point"] == Later(7, not_after="policy_goal")


def test_rewards_and_discounts_follow_the_new_goal():
    batch = drawn(gcivl.needs(gcivl.Config(batch=4000, value_current=0.3, value_future=0.4)))
    goal = batch.beside["goal"].obs["achieved_goal"]
    seen = batch.obs["observation"]
    reached = (seen == goal).all(1)
    assert 0.25 < reached.mean() < 0.4
    assert (batch.beside["policy_goal"].obs["achieved_goal"] != goal).any(1).mean() > 0.5
    wants = wanting(batch, goal)
    np.testing.assert_array_equal(wants.reward, np.where(reached, 0.0, -1.0))
    np.testing.assert_array_equal(wants.discount, np.where(reached, 0.0, 1.0))
    for obs in (wants.obs, wants.next_obs):
        np.testing.assert_array_equal(obs["desired_goal"], goal)
    np.testing.assert_array_equal(wants.obs["observation"], seen)


def test_only_a_log_of_the_same_vectors_gets_goals():
    goals = spaces.Dict(dict.fromkeys(("observation", "achieved_goal", "desired_goal"), PLACE))
    assert lacks_goals(PLACE, goals)
    assert not lacks_goals(spaces.Box(-1, 1, (3,), np.float32), goals)
    assert not lacks_goals(goals, goals)
    assert not lacks_goals(PLACE, PLACE)


@pytest.mark.parametrize(("current", "future"), [(0.7, 0.5), (-0.1, 0.5)])
def test_shares_beyond_one_are_refused(current, future):
    with pytest.raises(Mistake, match="at most 1"):
        drawn_goal(current, future)
