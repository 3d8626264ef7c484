"""Play OGBench's point mazes: the point follows the shortest path to its goal, with noise."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

import numpy as np

from sterling.data_generation.scripts.ogbench_collections import (
    Collection,
    EpisodeColumns,
    episode_columns,
)

ACTION_NOISE = 0.5  # standard deviation; actions lie in [-1, 1]
STITCH_DISTANCE = 4  # moves from start to goal in "stitch" collections
Cell = tuple[int, int]


class Script:
    """The shortest-path policy of a collection, and its environment."""

    def __init__(self, wanted: Collection, make: Callable[..., Any]):
        steps = wanted.steps
        self._env = make(wanted.environment, terminate_at_goal=False, max_episode_steps=steps)
        self._navigates = wanted.kind == "navigate"
        self._free = np.asarray(self._env.unwrapped.maze_map) == 0
        self._cells = [(int(i), int(j)) for i, j in np.argwhere(self._free)]
        self._corners = [cell for cell in self._cells if not self._is_hallway(cell)]

    def play_episode(self, rng: np.random.Generator) -> EpisodeColumns:
        """Play one episode."""
        start = _draw_cell(self._cells, rng)
        goals = (
            self._corners if self._navigates else self._cells_at_stitch_distance(start) or [start]
        )
        task = {"init_ij": start, "goal_ij": _draw_cell(goals, rng)}
        seed = int(rng.integers(2**31))
        obs, _ = self._env.reset(seed=seed, options={"task_info": task})
        rows, over = [], False
        while not over:
            action = self._direction() + rng.normal(0.0, ACTION_NOISE, 2)
            action = np.clip(action, -1.0, 1.0).astype(np.float32)
            following, _, ended, cut, info = self._env.step(action)
            if info["success"] and self._navigates:
                self._env.unwrapped.set_goal(_draw_cell(self._corners, rng))
            rows.append((obs, action, info))
            obs, over = following, ended or cut
        return episode_columns(rows, obs)

    def _direction(self) -> np.ndarray:
        """Return the unit vector to the next cell on the shortest path to the goal."""
        world = self._env.unwrapped
        here = world.get_xy()
        way = world.get_oracle_subgoal(here, world.cur_goal_xy)[0] - here
        return way / (np.linalg.norm(way) + 1e-6)

    def _is_hallway(self, cell: Cell) -> bool:
        """Whether a cell has exactly two free neighbours, on opposite sides."""
        up, down, left, right = (bool(self._free[at]) for at in _neighbours(cell))
        return (up and down and not left and not right) or (left and right and not up and not down)

    def _cells_at_stitch_distance(self, start: Cell) -> list[Cell]:
        """Return the cells whose shortest path from ``start`` has ``STITCH_DISTANCE`` moves."""
        far, queue = {start: 0}, deque([start])
        while queue:
            cell = queue.popleft()
            for after in _neighbours(cell):
                if self._free[after] and after not in far:
                    far[after] = far[cell] + 1
                    queue.append(after)
        return [cell for cell, moves in far.items() if moves == STITCH_DISTANCE]


def _neighbours(cell: Cell) -> list[Cell]:
    """Return the cells above, below, left and right; walls surround every maze."""
    row, column = cell
    return [(row - 1, column), (row + 1, column), (row, column - 1), (row, column + 1)]


def _draw_cell(cells: list[Cell], rng: np.random.Generator) -> Cell:
    return cells[rng.integers(len(cells))]
