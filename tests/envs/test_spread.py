"""Spread: who holds a landmark, what is paid, and the best return against a search of its own."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from sterling import envs
from sterling.envs.gymnasium_export import as_gymnasium
from sterling.envs.native.spread_landmarks import Level, Spread, knows, make
from sterling.types import Mistake


def best_by_search(level, height, width):
    """The least that all ways of moving pay, by going through places step by step."""
    moves = [(-1, 0), (0, 1), (1, 0), (0, -1), (0, 0)]
    goals = {divmod(int(cell), width) for cell in level.landmarks}
    edge = {tuple(divmod(int(cell), width) for cell in level.start): 0.0}
    found, most = -np.inf, 3 * (height + width)
    for _ in range(most):
        after = {}
        for places, paid in edge.items():
            options = [[()]]
            for row, column in places:
                options.append([
                    (min(max(row + down, 0), height - 1), min(max(column + right, 0), width - 1))
                    for down, right in moves
                ])  # fmt: skip
            for one in options[1]:
                for other in options[2]:
                    left = len(goals - {one, other})
                    total = paid - 0.1 * left
                    if not left:
                        found = max(found, total)
                    elif total > after.get((one, other), -np.inf):
                        after[one, other] = total
        edge = {places: paid for places, paid in after.items() if paid > found}
    return found


def test_spread_best_return_equals_exhaustive_search():
    task = Spread(2, 2, 3)
    rng = np.random.default_rng(0)
    for _ in range(12):
        landmarks, start = (rng.permutation(6)[:2].astype(np.int32) for _ in range(2))
        level = Level(jnp.asarray(landmarks), jnp.asarray(start))
        np.testing.assert_allclose(task.best(level), best_by_search(level, 2, 3), atol=1e-9)


def test_spread_best_mean_return_is_the_mean_over_all_starts():
    task = Spread(2, 2, 2)
    pairs = [(a, b) for a in range(4) for b in range(4) if a != b]
    every = [task.best(Level(jnp.array(one), jnp.array(two))) for one in pairs for two in pairs]
    np.testing.assert_allclose(task.best_on_average(), np.mean(every), atol=1e-12)


def test_spread_landmark_is_held_by_the_first_agent_there():
    task = Spread(3, 1, 4)
    level = Level(jnp.array([0, 1, 3], jnp.int32), jnp.array([0, 1, 2], jnp.int32))
    key = jax.random.key(0)
    state, _ = task.begin(level, key)
    _, obs, reward, ended, cut = task.step(state, jnp.array([1, 4, 1], jnp.int32), key)
    np.testing.assert_allclose(reward, [0.0, -0.1, 0.0])  # the second stands where the first is
    np.testing.assert_array_equal(obs[1, :4], [0, 1, 0, 0])  # where it is
    np.testing.assert_array_equal(obs[1, 4:8], [1, 1, 0, 1])  # the landmarks
    np.testing.assert_array_equal(obs[1, 8:], [0, 1, 0, 1])  # the others
    assert not ended
    assert not cut
    _, _, reward, ended, _ = task.step(state, jnp.array([4, 4, 1], jnp.int32), key)
    assert ended
    assert not reward.any()


def test_spread_agents_begin_apart_and_share_the_team_reward():
    world = envs.make("spread:2-agents-3x3", (0,), 64)
    _, obs = world.reset(jax.random.split(jax.random.key(0), 1))
    places = np.asarray(obs)[0, :, :, :9].argmax(-1)
    assert (places[:, 0] != places[:, 1]).all()
    assert (np.asarray(obs)[0, :, 0, 9:18].sum(-1) == 2).all()
    env = as_gymnasium(make("2-agents-3x3")[0])
    env.reset(seed=0)
    _, reward, _, _, info = env.step(np.array([4, 4]))
    np.testing.assert_allclose(reward, info["reward"].sum())


def test_spread_state_shows_positions_and_changes_nothing_else():
    plain, told = (envs.make(f"spread:2-agents-3x3{form}", (0,), 8) for form in ("", "-state"))
    assert (plain.spec.unseen, told.spec.unseen) == ((), ("state",))
    key, action = jax.random.split(jax.random.key(0), 1), jnp.full((1, 8, 2), 1, jnp.int32)
    (one, first), (two, whole) = plain.reset(key), told.reset(key)
    move, move_told = jax.jit(plain.step), jax.jit(told.step)
    for _ in range(3):
        np.testing.assert_array_equal(first, whole["observation"])
        state = np.asarray(whole["state"]).reshape(1, 8, 3, 9)
        np.testing.assert_array_equal(state[:, :, :2], np.asarray(first)[..., :9])
        np.testing.assert_array_equal(state[:, :, 2], np.asarray(first)[:, :, 0, 9:18])
        (one, left), (two, right) = move(one, action, key), move_told(two, action, key)
        np.testing.assert_array_equal(left.channels["reward"], right.channels["reward"])
        first, whole = left.obs, right.obs
    pictures = [task.grid_image(np.asarray(x)) for task, x in ((plain.task, first),)]
    same = told.task.grid_image(jax.tree.map(np.asarray, whole))
    np.testing.assert_array_equal(pictures[0], same)


def test_spread_refuses_impossible_names():
    assert knows("3-agents-4x4")
    assert knows("3-agents-4x4-state")
    assert not knows("3-agents-4x4-stat")
    assert not any(map(knows, ("1-agents-3x3", "5-agents-2x2", "4-agents-9x9", "3x3")))
    with pytest.raises(Mistake, match="Unknown environment"):
        envs.make("spread:9-agents-9x9", (0,), 1)
