"""Mazes: grids of rooms whose doors, start and goal are a level, for agents that must generalise.

The agent stands in a room and moves up, right, down or left through an open door. It observes all
doors, those of its own room by direction, its room and the goal's room. Every step pays -0.01;
arriving at the goal pays 1 more and ends the episode. A level's open doors are a random spanning
tree of the rooms (the minimum one under uniform weights: Prim 1957), so every room can be reached,
and one in ten of the other doors. Start and goal are different rooms. The best return of a level is
found by breadth-first search: :meth:`Maze.best`. Training uses 200 levels, or ``levels=N``;
evaluation uses others.

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

from sterling import random_keys
from sterling.types import Mistake

NAMES = ("4x4", "5x5", "7x7")
NAME_PATTERN = re.compile(r"(\d+)x(\d+)")
STEP_REWARD = -0.01  # reward of a step
EXTRA_DOOR_SHARE = 0.1  # share of open doors among those outside the spanning tree
STEPS_PER_ROOM = 4  # the time limit, for each room
MOVES = ((-1, 0), (0, 1), (1, 0), (0, -1))  # up, right, down, left


class Level(eqx.Module):
    """The open doors, the agent's first room and the goal's room."""

    doors: Bool[Array, "door"]
    start: Int[Array, ""]
    goal: Int[Array, ""]


class MazeState(eqx.Module):
    """The level, and the agent's room."""

    level: Level
    room: Int[Array, ""]


class Maze:
    """All mazes of one size, as a :class:`sterling.envs.traced_world.Task` with levels."""

    action = spaces.Discrete(len(MOVES))
    levels = 200

    def __init__(self, height: int, width: int):
        self.rooms = height * width
        row, column = np.divmod(np.arange(self.rooms), width)
        # the room in each direction; -1: none
        self._neighbour = np.full((self.rooms, len(MOVES)), -1)
        for move, (down, right) in enumerate(MOVES):
            there = (row + down, column + right)
            inside = (there[0] >= 0) & (there[0] < height) & (there[1] >= 0) & (there[1] < width)
            self._neighbour[inside, move] = (there[0] * width + there[1])[inside]
        pairs = [(a, b) for a in range(self.rooms) for b in self._neighbour[a] if b > a]
        self.pairs = np.array(pairs, np.int32)  # the two rooms that each door joins
        number = {pair: door for door, pair in enumerate(pairs)}
        doors = [
            [number.get((min(a, b), max(a, b)), 0) for b in self._neighbour[a]]
            for a in range(self.rooms)
        ]
        self._door_number = np.array(doors, np.int32)

    @property
    def obs(self) -> spaces.Box:
        """Which doors are open, which ways out of the agent's room are open, and the agent's and
        the goal's rooms, one-hot."""
        size = len(self.pairs) + len(MOVES) + 2 * self.rooms
        return spaces.Box(0.0, 1.0, (size,), np.float32)

    def level(self, key: Key[Array, ""]) -> Level:
        """Draw a random maze."""
        weight = jax.random.uniform(random_keys.fold(key, "weight"), (len(self.pairs),))
        loops = jax.random.bernoulli(
            random_keys.fold(key, "loops"), EXTRA_DOOR_SHARE, (len(self.pairs),)
        )
        place = jax.random.permutation(random_keys.fold(key, "places"), self.rooms)[:2].astype(
            jnp.int32
        )
        return Level(self._spanning_tree(weight) | loops, place[0], place[1])

    def begin(self, level: Level, key: Key[Array, ""]) -> tuple[MazeState, Float[Array, "number"]]:
        """Start in a maze; nothing is random."""
        state = MazeState(level, level.start)
        return state, self._observe(state)

    def edit(self, level: Level, key: Key[Array, ""]) -> Level:
        """Return the maze with one random door opened or shut; the goal may become unreachable."""
        door = jax.random.randint(key, (), 0, len(self.pairs), jnp.int32)
        return Level(level.doors.at[door].set(~level.doors[door]), level.start, level.goal)

    def step(self, state: MazeState, action: Int[Array, ""], key: Key[Array, ""]) -> Any:
        """Move, unless there is a wall or a shut door."""
        there = jnp.asarray(self._neighbour, jnp.int32)[state.room, action]
        moved = MazeState(state.level, jnp.where(self._open_ways(state)[action], there, state.room))
        arrived = moved.room == moved.level.goal
        reward = STEP_REWARD + arrived.astype(jnp.float32)
        return moved, self._observe(moved), reward, arrived, jnp.zeros((), bool)

    def best(self, level: Level) -> float:
        """Return the best return in a level: that of the shortest path to the goal, by
        breadth-first search.

        It is 0 if the goal cannot be reached. (Standing still costs, but giving up pays nothing
        either.)
        """
        doors, goal = np.asarray(level.doors), int(level.goal)
        steps, seen, edge = 0, {int(level.start)}, {int(level.start)}
        while edge and goal not in seen:
            pairs = self.pairs[doors].tolist()
            edge = {b for pair in pairs for a, b in (pair, pair[::-1]) if a in edge} - seen
            seen, steps = seen | edge, steps + 1
        return 1.0 + steps * STEP_REWARD if goal in seen else 0.0

    def _spanning_tree(self, weight: Float[Array, "door"]) -> Bool[Array, "door"]:
        """Return the spanning tree of least weight: grow it by the lightest door that leads out of
        it."""
        one, other = jnp.asarray(self.pairs).T

        def add(_: Int[Array, ""], tree: tuple[Array, Array]) -> tuple[Array, Array]:
            doors, inside = tree
            door = jnp.argmin(jnp.where(inside[one] != inside[other], weight, jnp.inf))
            inside = inside.at[one[door]].set(True).at[other[door]].set(True)
            return doors.at[door].set(True), inside

        inside = jnp.arange(self.rooms) == 0
        return jax.lax.fori_loop(0, self.rooms - 1, add, (jnp.zeros_like(weight, bool), inside))[0]

    def _open_ways(self, state: MazeState) -> Bool[Array, "move"]:
        """Return which ways out of the agent's room are open."""
        doors = state.level.doors[jnp.asarray(self._door_number)[state.room]]
        return doors & (jnp.asarray(self._neighbour, jnp.int32)[state.room] >= 0)

    def _observe(self, state: MazeState) -> Float[Array, "number"]:
        doors = jnp.concatenate([state.level.doors, self._open_ways(state)]).astype(jnp.float32)
        places = jax.nn.one_hot(jnp.stack([state.room, state.level.goal]), self.rooms)
        return jnp.concatenate([doors, places.reshape(-1)])


def names() -> list[str]:
    """Return example names; other sizes work too."""
    return list(NAMES)


def knows(name: str) -> bool:
    """Whether ``name`` is ``HxW`` with at least two rooms."""
    found = NAME_PATTERN.fullmatch(name)
    return bool(found and min(map(int, found.groups())) > 0 and name != "1x1")


def make(name: str) -> tuple[Maze, int]:
    """Return the mazes of the size called ``name`` and their time limit in steps."""
    found = NAME_PATTERN.fullmatch(name)
    if not found or not knows(name):
        raise Mistake(
            f"Unknown maze {name!r}. Write rows x columns, at least 1x2, for instance 5x5."
        )
    task = Maze(*map(int, found.groups()))
    return task, STEPS_PER_ROOM * task.rooms
