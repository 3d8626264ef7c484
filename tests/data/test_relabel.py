"""Labels are right where the right ones are known."""

import dataclasses

import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium import spaces
from scipy.optimize import linear_sum_assignment

from sterling.data import Dataset, concatenate
from sterling.data.dataset_metadata import Facts
from sterling.data.episode_columns import Block
from sterling.data.file_conversion import convert_files
from sterling.data.relabel import inverse_actions, otr
from sterling.data.relabel.optimal_transport import transport_plan
from sterling.data.space_json import to_agent_action, to_stored_action
from sterling.types import Mistake

PLANE = spaces.Box(-np.inf, np.inf, (2,), np.float32)
TURN = np.array([[0.9, 0.2], [-0.1, 0.95]])
PUSH = np.array([[0.5, 0.0], [0.1, -0.3]])


def dataset(paths, action=None, action_space=None, **facts):
    """Episodes along ``paths`` of observations; rewards are 0, the first episode ends."""
    lengths = np.array([len(path) - 1 for path in paths], np.int64)
    rows = int(lengths.sum())
    discount = np.ones(rows, np.float32)
    discount[lengths[0] - 1] = 0.0
    arrays = {
        "obs": np.concatenate(paths).astype(np.float32),
        "action": np.zeros((rows, 1), np.float32) if action is None else action,
        "reward": np.zeros(rows, np.float32),
        "discount": discount,
        "extra/log_prob": -np.arange(1.0, rows + 1, dtype=np.float32),
    }
    space = action_space or spaces.Box(-1.0, 1.0, (1,), np.float32)
    block = Block(arrays, lengths, np.zeros(len(paths), np.int32))
    return Dataset.from_block(block, PLANE, space, Facts(**facts))


def circle(steps, off=0.0, start=0.0):
    """An arc and a little noise."""
    angle = np.linspace(start, start + 2.0, steps + 1)
    noise = np.random.default_rng(steps).normal(size=(steps + 1, 2)) * off
    return np.stack([np.cos(angle), np.sin(angle)], 1) + noise


def pushed(episodes, steps, actions):
    """A linear system pushed by ``actions`` in the environment's units, with a known answer."""
    random, paths, at = np.random.default_rng(0), [], 0
    for _ in range(episodes):
        path = [random.normal(size=2)]
        for _ in range(steps):
            path.append(TURN @ path[-1] + PUSH @ actions[at])
            at += 1
        paths.append(np.array(path))
    return paths


@pytest.mark.parametrize("seed", [0, 1])
def test_optimal_transport_plan_approaches_the_best_assignment(seed):
    cost = np.random.default_rng(seed).uniform(size=(6, 6)).astype(np.float32)
    padded = np.full((8, 9), 5.0, np.float32)
    padded[:6, :6] = cost
    real = (jnp.arange(8) < 6, jnp.arange(9) < 6)
    plan = np.asarray(transport_plan(jnp.asarray(padded), *real, 0.002, 20_000))
    assert not plan[6:].any()
    assert not plan[:, 6:].any()
    exact = np.zeros((6, 6))
    exact[linear_sum_assignment(cost)] = 1 / 6
    np.testing.assert_allclose(plan[:6, :6], exact, atol=2e-3)
    np.testing.assert_allclose(plan[:6].sum(1), 1 / 6, rtol=1e-4)  # each step has its mass


def test_optimal_transport_plan_keeps_both_marginals():
    cost = np.random.default_rng(0).uniform(size=(5, 3)).astype(np.float32)
    everyone = (jnp.ones(5, bool), jnp.ones(3, bool))
    plan = np.asarray(transport_plan(jnp.asarray(cost), *everyone, 0.1, 1_000))
    np.testing.assert_allclose(plan.sum(1), 1 / 5, rtol=1e-5)
    np.testing.assert_allclose(plan.sum(0), 1 / 3, rtol=1e-3)


def test_otr_rewards_the_demonstration_highest():
    paths = [circle(9, 1.0), circle(12), circle(30, 1.5), circle(20, 0.5, 1.0)]
    log = dataset(paths, reference=(0.0, 9.0), environment="Circle-v0")
    shown = log[[1]]
    made = otr(log, shown, epsilon=1e-3, iterations=2_000, beta=1.0)
    mean = made.returns / made.lengths
    assert np.argmax(mean) == 1
    np.testing.assert_allclose(made[1].reward, 5.0, atol=0.01)  # alpha: it costs nothing
    assert (np.delete(mean, 1) < 4.8).all()
    assert made.facts.reference is None
    assert made.facts.environment == "Circle-v0"
    assert f"from 1 demonstration with hash {shown.hash[:12]}" in made.facts.sources[0].notes[-1]
    np.testing.assert_array_equal(made.ended, [True, False, False, False])
    np.testing.assert_array_equal(made[2].extras["log_prob"], log[2].extras["log_prob"])
    assert not log.returns.any()  # the old one is as it was


def test_otr_uses_the_best_demonstration_and_ignores_padding():
    log = dataset([circle(9, 0.3), circle(12, 0.1, 2.0), circle(17, 0.2, 1.0)])
    one, other = dataset([circle(10)]), dataset([circle(33, 0.0, 1.5)])
    alone = [otr(log, shown, beta=1.0) for shown in (one, other)]
    both = otr(log, concatenate([one, other]), beta=1.0)
    for at in range(3):
        best = max(alone, key=lambda made, at=at: made[at].total)
        np.testing.assert_allclose(both[at].reward, best[at].reward, rtol=1e-4)
    single = otr(log[[2]], one, beta=1.0, standardise=False)
    among = otr(log, one, beta=1.0, standardise=False)
    np.testing.assert_allclose(among[2].reward, single[0].reward, rtol=1e-4)


def test_otr_compares_actions_on_request():
    path = circle(12)
    action = np.concatenate([np.ones((12, 1)), -np.ones((12, 1))]).astype(np.float32)
    log = dataset([path, path], action)
    apart = otr(log, log[[0]], actions=True)
    assert apart[0].total > apart[1].total * 1.05
    alike = otr(log, log[[0]])
    assert alike[0].total == pytest.approx(alike[1].total)


def test_otr_refuses_incomparable_demonstrations():
    log = dataset([circle(9)])
    with pytest.raises(Mistake, match="The demonstrations are empty"):
        otr(log, log[:0])
    wide = dataset([circle(9)], np.zeros((9, 3), np.float32), spaces.Box(-1, 1, (3,), np.float32))
    otr(log, wide)  # actions are not compared
    with pytest.raises(Mistake, match="Give files of one environment"):
        otr(log, wide, actions=True)
    broken = circle(9)
    broken[3] = np.nan
    with pytest.raises(Mistake, match="Some observations are NaN"):
        otr(log, dataset([broken]))


def test_inverse_dynamics_recovers_continuous_actions(tmp_path):
    space = spaces.Box(np.array([-2.0, 0.0], np.float32), np.array([2.0, 8.0], np.float32))
    action = np.random.default_rng(1).uniform(space.low, space.high, (600, 2)).astype(np.float32)
    paths = pushed(20, 30, action)
    known = dataset(paths[:12], action[:360], space)
    hidden = dataset(paths[12:], np.full((240, 2), np.nan, np.float32), space)
    made = inverse_actions(hidden, known, updates=1_500, width=32)
    found = np.concatenate([one.action for one in made])
    assert found.dtype == np.float32
    error = np.sqrt(np.mean(np.square(found - action[360:]), 0)) / action.std(0)
    assert (error < 0.01).all(), error
    note = made.facts.sources[0].notes[-1]
    assert "learned from 324 rows" in note
    assert float(note.rpartition("error is ")[2].partition("%")[0]) < 1.0
    assert "extra/log_prob" not in made.columns  # which was of other actions
    assert "extra/log_prob of the old actions left out" in note
    both = concatenate([made, known])
    assert (both.rows, "extra/log_prob" in both.columns) == (600, False)
    made.save(tmp_path / "made")
    known.save(tmp_path / "known")
    assert (
        convert_files([tmp_path / "made", tmp_path / "known"], tmp_path / "both").hash == both.hash
    )
    assert "extra/log_prob left out" in both.facts.sources[-1].notes[-1]
    np.testing.assert_array_equal(made[0].obs, hidden[0].obs)


def test_inverse_dynamics_recovers_discrete_actions():
    choice = np.random.default_rng(2).integers(5, 8, 600)
    step = np.array([[-1.0, 0.0], [1.0, 0.5], [0.0, -2.0]])[choice - 5]
    paths, at = pushed(20, 30, step), 360
    space = spaces.Discrete(3, start=5)
    known = dataset(paths[:12], choice[:at], space)
    made = inverse_actions(dataset(paths[12:]), known, updates=400, width=32)
    found = np.concatenate([one.action for one in made])
    np.testing.assert_array_equal(found, choice[at:])
    assert made.action_space == space
    assert "0.00% of the actions are wrong" in made.facts.sources[0].notes[-1]


def test_inverse_dynamics_refuses_unlearnable_datasets():
    log = dataset([circle(9), circle(4)])
    with pytest.raises(Mistake, match="The labelled episodes are empty"):
        inverse_actions(log, log[:0])
    with pytest.raises(Mistake, match="two labelled rows are needed"):
        inverse_actions(log, dataset([circle(1)]))
    with pytest.raises(Mistake, match="labelled actions are NaN"):
        inverse_actions(log, dataset([circle(9)], np.full((9, 1), np.nan, np.float32)))
    with pytest.raises(Mistake, match="must be positive; got 0, 256, 256"):
        inverse_actions(log, log, updates=0)
    with pytest.raises(Mistake, match=r"must be positive; got 0\.0 and 100"):
        otr(log, log, epsilon=0.0)
    block = next(log.blocks())
    picture = spaces.Box(0, 255, (3, 8, 8), np.uint8)
    arrays = {**block.arrays, "obs": np.zeros((len(block.arrays["obs"]), 3, 8, 8), np.uint8)}
    seen = Dataset.from_block(dataclasses.replace(block, arrays=arrays), picture, log.action_space)
    with pytest.raises(Mistake, match="Give files of one environment"):
        inverse_actions(log, seen)
    with pytest.raises(Mistake, match="pictures"):
        inverse_actions(seen, seen)


@pytest.mark.parametrize(
    "space",
    [
        spaces.Box(np.array([-2.0, 0.0], np.float32), np.array([2.0, 8.0], np.float32)),
        spaces.Box(-3.0, 5.0, (2,), np.float64),
        spaces.Box(-np.inf, np.inf, (2,), np.float32),
        spaces.Box(0, 9, (2,), np.int64),
        spaces.Discrete(4, start=3),
        spaces.MultiDiscrete([3, 2], start=[1, 5]),
        spaces.MultiBinary(3),
    ],
    ids=str,
)
def test_to_stored_action_inverts_to_agent_action(space):
    space.seed(0)
    stored = np.stack([space.sample() for _ in range(20)])
    again = to_stored_action(space, to_agent_action(space, stored))
    assert again.dtype == stored.dtype
    np.testing.assert_allclose(again, stored, rtol=1e-5, atol=1e-6)
