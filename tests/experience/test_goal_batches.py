"""Rows of a log with goals: whose goals they are, how often which kind, and what they pay."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium import spaces

from sterling.data import Dataset
from sterling.data.device_dataset import HostDataset
from sterling.data.episode_columns import Block
from sterling.data.goal_columns import lacks_goals, with_goal_columns
from sterling.experience.offline.dataset_batches import DatasetSource, PreloadedBatches
from sterling.experience.offline.goal_batches import GoalBatches
from sterling.problem.goal_shares import GoalShares, RelabelledGoals
from sterling.types import Feed, Mistake, Needs

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
        "discount": np.ones(rows, np.float32),
    }
    block = Block(columns, np.array(LENGTHS), np.zeros(len(LENGTHS), np.int32))
    box = spaces.Box(-1.0, 1.0, (1,), np.float32)
    return with_goal_columns(Dataset.from_block(block, PLACE, box))


def source(values, policy=None, ahead=0, batch=4000):
    goals = RelabelledGoals(values, policy or values, ahead)
    needs = Needs(feeds=(Feed(batch=batch, goals=goals),))
    return GoalBatches.create(log(), needs, "uniform"), needs.feeds[0]


def drawn(*asked, **more):
    """Rows as NumPy: what was observed, what was wanted, and all of the batch."""
    made, feed = source(*asked, **more)
    chance = jax.tree.map(lambda x: x[0, 0], made.presample(feed, KEYS))
    batch = jax.jit(lambda chance: made.draw(feed, jnp.zeros((), jnp.int32), None, chance))(chance)
    batch = jax.tree.map(np.asarray, batch)
    return batch.obs["observation"], batch.obs["desired_goal"], batch


def test_future_goals_are_of_the_same_episode_and_after_the_row():
    seen, goal, batch = drawn(GoalShares(0.0, 1.0))
    np.testing.assert_array_equal(seen[:, 0], goal[:, 0])
    ahead, left = goal[:, 1] - seen[:, 1], np.array(LENGTHS)[seen[:, 0].astype(int)] - seen[:, 1]
    assert ((ahead >= 1) & (ahead <= left)).all()
    # uniformly up to the end: of ten rows before the end, each as often
    assert abs((ahead / left).mean() - ((left + 1) / 2 / left).mean()) < 0.02
    first = ahead[(seen[:, 0] == 3) & (seen[:, 1] == 0)]
    assert first.min() < 5
    assert first.max() > 25
    np.testing.assert_array_equal(batch.obs["observation"] + [0, 1], batch.next_obs["observation"])
    np.testing.assert_array_equal(batch.next_obs["desired_goal"], goal)


def test_geometric_goals_lie_as_far_ahead_as_their_discount_says():
    seen, goal, _ = drawn(GoalShares(0.0, 1.0, gamma=0.7), batch=20_000)
    np.testing.assert_array_equal(seen[:, 0], goal[:, 0])
    assert (goal[:, 1] <= np.array(LENGTHS)[seen[:, 0].astype(int)]).all()
    early = (seen[:, 0] == 3) & (seen[:, 1] < 10)
    ahead = (goal - seen)[early, 1]
    for steps in (1, 2, 3, 5):
        wanted = 0.3 * 0.7 ** (steps - 1)
        assert abs((ahead == steps).mean() - wanted) < 4 * np.sqrt(wanted / early.sum())
    late = (seen[:, 0] == 3) & (seen[:, 1] == 28)  # two steps before the end: that, or the next
    np.testing.assert_allclose((goal[late, 1] == 30).mean(), 0.7, atol=0.08)


def test_shares_are_kept_for_values_and_policy_apart():
    seen, goal, batch = drawn(GoalShares(0.2, 0.5), GoalShares(0.0, 0.6), batch=20_000)
    longest = seen[:, 0] == 3
    for shares, found in ((GoalShares(0.2, 0.5), goal), (GoalShares(0.0, 0.6), None)):
        wanted = batch.extras["policy_goal"] if found is None else found
        elsewhere = (wanted[:, 0] != seen[:, 0])[~longest].mean()
        there = 1.0 - np.array(LENGTHS)[seen[~longest, 0].astype(int)].mean() / sum(LENGTHS)
        rest = 1.0 - shares.current - shares.future
        np.testing.assert_allclose(elsewhere, rest * there, atol=0.015)
        same = (wanted == seen).all(1).mean()
        np.testing.assert_allclose(same, shares.current + rest / sum(LENGTHS), atol=0.012)
    assert (goal != batch.extras["policy_goal"]).any(1).mean() > 0.5


def test_rewards_and_discounts_follow_the_new_goal():
    seen, goal, batch = drawn(GoalShares(0.3, 0.4))
    reached = (seen == goal).all(1)
    assert 0.25 < reached.mean() < 0.4
    np.testing.assert_array_equal(batch.reward, np.where(reached, 0.0, -1.0))
    np.testing.assert_array_equal(batch.discount, np.where(reached, 0.0, 1.0))


def test_way_points_end_with_the_episode_and_at_the_goal():
    seen, _, batch = drawn(GoalShares(0.0, 1.0), GoalShares(0.0, 0.7), 6)
    point, goal = batch.extras["way_point"], batch.extras["policy_goal"]
    left = np.array(LENGTHS)[seen[:, 0].astype(int)] - seen[:, 1]
    np.testing.assert_array_equal(point - seen, np.stack([0 * left, np.minimum(left, 6)], 1))
    near = batch.extras["policy_way_point"]
    np.testing.assert_array_equal(near, batch.extras["policy_way_point_obs"])
    onward = (near[:, 1] - seen[:, 1]).astype(int)
    np.testing.assert_array_equal(near[:, 0], seen[:, 0])
    same = (goal[:, 0] == seen[:, 0]) & (goal[:, 1] > seen[:, 1])
    most = np.minimum(left, 6)
    ok = (onward == most) | (same & (onward == np.minimum(most, goal[:, 1] - seen[:, 1])))
    assert ok.all()
    assert (onward < most).mean() > 0.2  # at goals that are nearer


def test_a_log_that_stays_on_the_host_gives_the_same_rows():
    made, feed = source(GoalShares(0.2, 0.5, 0.9), GoalShares(0.0, 1.0), 3, batch=50)
    slow = GoalBatches(DatasetSource(HostDataset(log()), None, None, None, made.needs), made.left)
    chance = jax.tree.map(lambda x: x[0, 0], made.presample(feed, KEYS))
    none = jnp.zeros((), jnp.int32)
    one, other = (x.draw(feed, none, None, chance) for x in (made, slow))
    jax.tree.map(np.testing.assert_array_equal, one, other)
    batches = PreloadedBatches.load(slow, KEYS)
    assert batches.rows(feed) == 50


def test_only_a_log_of_the_same_vectors_gets_goals():
    goals = spaces.Dict(dict.fromkeys(("observation", "achieved_goal", "desired_goal"), PLACE))
    assert lacks_goals(PLACE, goals)
    assert not lacks_goals(spaces.Box(-1, 1, (3,), np.float32), goals)
    assert not lacks_goals(goals, goals)
    assert not lacks_goals(PLACE, PLACE)


@pytest.mark.parametrize(("current", "future"), [(0.7, 0.5), (-0.1, 0.5)])
def test_shares_beyond_one_are_refused(current, future):
    with pytest.raises(Mistake, match="at most 1"):
        GoalShares(current, future)
