"""Mazes: every room can be reached, doors and walls hold, the best return is the shortest way's."""

import heapq

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from constants import constant_key

from sterling import envs, random_keys
from sterling.envs.native import maze
from sterling.types import Mistake

KEY = constant_key(0)


def ways(task, level):
    """Steps to the goal from every room, by Dijkstra's algorithm over tried steps."""
    step = jax.jit(task.step)
    back = {room: set() for room in range(task.rooms)}
    for room in range(task.rooms):
        for action in range(4):
            state = maze.MazeState(level, jnp.int32(room))
            back[int(step(state, jnp.int32(action), KEY)[0].room)].add(room)
    found, heap = {}, [(0, int(level.goal))]
    while heap:
        far, room = heapq.heappop(heap)
        if room not in found:
            found[room] = far
            for near in back[room]:
                heapq.heappush(heap, (far + 1, near))
    return found


def test_maze_best_return_is_that_of_the_shortest_path():
    task = maze.make("4x5")[0]
    draw = jax.jit(task.level)
    for number in range(6):
        level = draw(jax.random.fold_in(KEY, number))
        found = ways(task, level)
        assert sorted(found) == list(range(20))
        assert level.start != level.goal
        assert task.best(level) == pytest.approx(1.0 - 0.01 * found[int(level.start)])


def test_maze_doors_form_a_spanning_tree_plus_extras():
    task = maze.make("5x5")[0]
    many = jax.jit(jax.vmap(task.level))(jax.random.split(KEY, 400))
    count = np.asarray(many.doors.sum(1))
    assert count.min() >= 24
    assert count.mean() == pytest.approx(24 + 0.1 * 16, abs=0.2)
    weight = jnp.arange(40.0)[::-1]  # by hand: the heaviest spanning tree of doors by number
    chosen, joined = [], {room: {room} for room in range(25)}
    for door in range(39, -1, -1):
        one, other = (joined[room] for room in task.pairs[door].tolist())
        if one is not other:
            chosen.append(door)
            one |= other
            joined |= dict.fromkeys(one, one)
    assert sorted(chosen) == np.flatnonzero(task._spanning_tree(weight)).tolist()


def test_maze_steps_and_observations_match_hand_values():
    """Two rooms side by side over two others; only the left ones and the lower ones are joined."""
    task, limit = maze.make("2x2")
    assert task.pairs.tolist() == [[0, 1], [0, 2], [1, 3], [2, 3]]
    assert limit == 16
    level = maze.Level(jnp.array([False, True, False, True]), jnp.int32(0), jnp.int32(3))
    state, obs = task.begin(level, KEY)
    np.testing.assert_array_equal(obs, [0, 1, 0, 1, 0, 0, 1, 0, 1, 0, 0, 0, 0, 0, 0, 1])
    rooms = []
    for action in (1, 0, 3, 2, 2, 3, 1):  # shut, wall, wall, down, wall, wall, right
        state, obs, reward, ended, cut = task.step(state, jnp.int32(action), KEY)
        rooms.append((int(state.room), round(float(reward), 4), bool(ended), bool(cut)))
    rest, there = (0, -0.01, False, False), (2, -0.01, False, False)
    assert rooms == [rest, rest, rest, there, there, there, (3, 0.99, True, False)]
    np.testing.assert_array_equal(obs[4:], [0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0, 1])
    assert task.best(level) == pytest.approx(0.98)
    shut = maze.Level(jnp.zeros(4, bool), level.start, level.goal)
    assert task.best(shut) == 0.0


def test_maze_level_edit_changes_one_door():
    task = maze.make("3x3")[0]
    level = jax.jit(task.level)(KEY)
    edited = jax.jit(jax.vmap(lambda key: task.edit(level, key)))(jax.random.split(KEY, 50))
    assert ((np.asarray(edited.doors) != np.asarray(level.doors)).sum(1) == 1).all()
    assert len(np.unique(np.asarray(edited.doors), axis=0)) > 8
    assert (edited.goal == level.goal).all()
    assert (edited.start == level.start).all()


def test_maze_trains_and_evaluates_on_different_levels():
    made = []
    for purpose in ("train", "evaluate"):
        book = envs.make("maze:4x4", (0,), 1, purpose=purpose).book
        rows = np.concatenate([book.doors, book.start[:, None], book.goal[:, None]], 1)
        made.append({row.tobytes() for row in rows})
    train, judged = made
    assert (len(train), len(judged), len(train & judged)) == (200, 100, 0)


@pytest.mark.slow
def test_maze_shortest_path_policy_gets_the_best_return():
    """A policy that goes by breadth-first search, in the world itself."""
    world = envs.make("maze:3x3", (0,), 4, levels=8)
    task, seeds, move = world.task, jnp.zeros(1, jnp.int32), jax.jit(world.task.step)
    state, _ = world.reset(random_keys.for_seeds(seeds, "reset", 0))
    each = [jax.tree.map(lambda x, i=i: x[0, i], state.task) for i in range(4)]
    best, far = [task.best(s.level) for s in each], [ways(task, s.level) for s in each]
    got, over = np.zeros(4), np.zeros(4, bool)
    for time in range(9):
        actions = []
        for i in range(4):
            now = jax.tree.map(lambda x, i=i: x[0, i], state.task)
            rooms = [int(move(now, jnp.int32(a), KEY)[0].room) for a in range(4)]
            actions.append(int(np.argmin([far[i][room] for room in rooms])))
        state, step = world.step(
            state, jnp.array([actions]), random_keys.for_seeds(seeds, "step", time)
        )
        got += np.where(over, 0.0, step.reward[0])
        over |= np.asarray(step.last[0])
    assert over.all()
    np.testing.assert_allclose(got, best, rtol=1e-5)


@pytest.mark.parametrize("name", ["maze:1x1", "maze:0x4", "maze:5"])
def test_maze_refuses_unknown_names(name):
    with pytest.raises(Mistake, match="Unknown environment"):
        envs.make(name, (0,), 1)
