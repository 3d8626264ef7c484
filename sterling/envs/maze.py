"""Mazes: grids of rooms whose doors, start and goal are a level, for agents that must generalise.

An agent stands in one of the rooms, goes up, right, down or left where there is an open door, and
sees all doors, those of its own room by direction, its room and the goal's. Every step brings
-0.01, and arriving at the goal 1; that ends the episode. A level's doors make a random spanning
tree of the rooms (the smallest under uniform weights: Prim 1957), so every room can be reached, and
one further door in ten is open too; start and goal are different rooms. The best return in a level
is found by breadth-first search: :meth:`Maze.best`. There are 200 levels in training, or
``levels=N``; agents are judged in others.

Names: ``HxW``, rows and columns of rooms, for instance ``5x5``; at least two rooms.
"""

from __future__ import annotations

import re
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from gymnasium import spaces
from jaxtyping import Array, Bool, Float, Int, Key

from sterling import keys
from sterling.types import Mistake

NAMES = ("4x4", "5x5", "7x7")
FORM = re.compile(r"(\d+)x(\d+)")
STEP = -0.01  # reward of a step
LOOPS = 0.1  # share of the doors beside the spanning tree's that are open
PATIENCE = 4  # steps, for each room, after which an episode is cut
MOVES = ((-1, 0), (0, 1), (1, 0), (0, -1))  # up, right, down, left


class Level(eqx.Module):
    """Which doors are open, where the agent begins and where the goal is."""

    doors: Bool[Array, "door"]
    start: Int[Array, ""]
    goal: Int[Array, ""]


class MazeState(eqx.Module):
    """The level, and the agent's room."""

    level: Level
    room: Int[Array, ""]


class Maze:
    """All mazes of one size, a :class:`sterling.envs.traced.Task` with levels."""

    action = spaces.Discrete(len(MOVES))
    levels = 200

    def __init__(self, height: int, width: int):
        self.rooms = height * width
        row, column = np.divmod(np.arange(self.rooms), width)
        self._beyond = np.full((self.rooms, len(MOVES)), -1)  # the room behind a door; -1: none
        for move, (down, right) in enumerate(MOVES):
            there = (row + down, column + right)
            inside = (there[0] >= 0) & (there[0] < height) & (there[1] >= 0) & (there[1] < width)
            self._beyond[inside, move] = (there[0] * width + there[1])[inside]
        pairs = [(a, b) for a in range(self.rooms) for b in self._beyond[a] if b > a]
        self.pairs = np.array(pairs, np.int32)  # the two rooms of each door
        number = {pair: door for door, pair in enumerate(pairs)}
        self._door = np.array([[number.get((min(a, b), max(a, b)), 0) for b in self._beyond[a]]
                               for a in range(self.rooms)], np.int32)  # fmt: skip

    @property
    def obs(self) -> spaces.Box:
        """Whether each door is open, and each way out of the agent's room; its room and the
        goal's, one-hot."""
        size = len(self.pairs) + len(MOVES) + 2 * self.rooms
        return spaces.Box(0.0, 1.0, (size,), np.float32)

    def level(self, key: Key[Array, ""]) -> Level:
        """Any maze."""
        weight = jax.random.uniform(keys.fold(key, "weight"), (len(self.pairs),))
        loops = jax.random.bernoulli(keys.fold(key, "loops"), LOOPS, (len(self.pairs),))
        place = jax.random.permutation(keys.fold(key, "places"), self.rooms)[:2].astype(jnp.int32)
        return Level(self._tree(weight) | loops, place[0], place[1])

    def begin(self, level: Level, key: Key[Array, ""]) -> tuple[MazeState, Float[Array, "number"]]:
        """Start in a maze; nothing is left to chance."""
        state = MazeState(level, level.start)
        return state, self._seen(state)

    def edit(self, level: Level, key: Key[Array, ""]) -> Level:
        """The maze with one door, whichever, opened or shut; perhaps no way to the goal is left."""
        door = jax.random.randint(key, (), 0, len(self.pairs), jnp.int32)
        return Level(level.doors.at[door].set(~level.doors[door]), level.start, level.goal)

    def step(self, state: MazeState, action: Int[Array, ""], key: Key[Array, ""]) -> Any:
        """Move, unless there is a wall or a shut door."""
        there = jnp.asarray(self._beyond, jnp.int32)[state.room, action]
        moved = MazeState(state.level, jnp.where(self._ways(state)[action], there, state.room))
        arrived = moved.room == moved.level.goal
        reward = STEP + arrived.astype(jnp.float32)
        return moved, self._seen(moved), reward, arrived, jnp.zeros((), bool)

    def best(self, level: Level) -> float:
        """The largest return in a level: of the shortest way to the goal, by breadth-first search;
        0 where there is none. (Standing still costs; but no policy is paid for giving up.)"""
        doors, goal = np.asarray(level.doors), int(level.goal)
        steps, seen, edge = 0, {int(level.start)}, {int(level.start)}
        while edge and goal not in seen:
            pairs = self.pairs[doors].tolist()
            edge = {b for pair in pairs for a, b in (pair, pair[::-1]) if a in edge} - seen
            seen, steps = seen | edge, steps + 1
        return 1.0 + steps * STEP if goal in seen else 0.0

    def _tree(self, weight: Float[Array, "door"]) -> Bool[Array, "door"]:
        """The spanning tree of least weight, door by door: the lightest that leads out of it."""
        one, other = jnp.asarray(self.pairs).T

        def add(_: Int[Array, ""], tree: tuple[Array, Array]) -> tuple[Array, Array]:
            doors, inside = tree
            door = jnp.argmin(jnp.where(inside[one] != inside[other], weight, jnp.inf))
            inside = inside.at[one[door]].set(True).at[other[door]].set(True)
            return doors.at[door].set(True), inside

        inside = jnp.arange(self.rooms) == 0
        return jax.lax.fori_loop(0, self.rooms - 1, add, (jnp.zeros_like(weight, bool), inside))[0]

    def _ways(self, state: MazeState) -> Bool[Array, "move"]:
        """Which ways out of the agent's room are open."""
        doors = state.level.doors[jnp.asarray(self._door)[state.room]]
        return doors & (jnp.asarray(self._beyond, jnp.int32)[state.room] >= 0)

    def _seen(self, state: MazeState) -> Float[Array, "number"]:
        doors = jnp.concatenate([state.level.doors, self._ways(state)]).astype(jnp.float32)
        places = jax.nn.one_hot(jnp.stack([state.room, state.level.goal]), self.rooms)
        return jnp.concatenate([doors, places.reshape(-1)])


def names() -> list[str]:
    """Some of them: sizes may be others."""
    return list(NAMES)


def knows(name: str) -> bool:
    """Whether ``name`` is of the form, and there is a room for the start and one for the goal."""
    found = FORM.fullmatch(name)
    return bool(found and min(map(int, found.groups())) > 0 and name != "1x1")


def make(name: str) -> tuple[Maze, int]:
    """Mazes of the size called ``name``, and their time limit."""
    found = FORM.fullmatch(name)
    if not found or not knows(name):
        raise Mistake(f"maze {name!r} is not known; write rows and columns, for instance 5x5")
    task = Maze(*map(int, found.groups()))
    return task, PATIENCE * task.rooms
