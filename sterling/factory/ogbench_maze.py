"""OGBench's point in a maze, which goes where the shortest way leads."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from sterling.factory.ogbench import Collection, Told

NOISE = 0.5  # standard deviation, of actions in [-1, 1]
NEAR = 4  # cells between start and goal of stitching
Cell = tuple[int, int]


class Script:
    """The way-finder and its world."""

    def __init__(self, wanted: Collection, make: Callable[..., Any]):
        steps = wanted.steps
        self._env = make(wanted.environment, terminate_at_goal=False, max_episode_steps=steps)
        self._navigates = wanted.kind == "navigate"
        self._free = np.asarray(self._env.unwrapped.maze_map) == 0
        self._cells = [(int(i), int(j)) for i, j in np.argwhere(self._free)]
        self._corners = [cell for cell in self._cells if not self._is_hallway(cell)]

    def live(self, dice: np.random.Generator) -> Told:
        """One episode."""
        from sterling.factory.ogbench import told

        start = _one(self._cells, dice)
        goals = self._corners if self._navigates else self._near(start) or [start]
        task = {"init_ij": start, "goal_ij": _one(goals, dice)}
        seed = int(dice.integers(2**31))
        obs, _ = self._env.reset(seed=seed, options={"task_info": task})
        rows, over = [], False
        while not over:
            action = self._direction() + dice.normal(0.0, NOISE, 2)
            action = np.clip(action, -1.0, 1.0).astype(np.float32)
            following, _, ended, cut, info = self._env.step(action)
            if info["success"] and self._navigates:
                self._env.unwrapped.set_goal(_one(self._corners, dice))
            rows.append((obs, action, info))
            obs, over = following, ended or cut
        return told(rows, obs)

    def _direction(self) -> np.ndarray:
        """Of length 1, to the next cell on the way to the goal."""
        world = self._env.unwrapped
        here = world.get_xy()
        way = world.get_oracle_subgoal(here, world.cur_goal_xy)[0] - here
        return way / (np.linalg.norm(way) + 1e-6)

    def _is_hallway(self, cell: Cell) -> bool:
        """Whether the cell goes on in two opposite directions and no other."""
        up, down, left, right = (bool(self._free[at]) for at in _beside(cell))
        return (up and down and not left and not right) or (left and right and not up and not down)

    def _near(self, start: Cell) -> list[Cell]:
        """The cells that the shortest way reaches in ``NEAR`` moves."""
        far, queue = {start: 0}, deque([start])
        while queue:
            cell = queue.popleft()
            for after in _beside(cell):
                if self._free[after] and after not in far:
                    far[after] = far[cell] + 1
                    queue.append(after)
        return [cell for cell, moves in far.items() if moves == NEAR]


def _beside(cell: Cell) -> list[Cell]:
    """Up, down, left, right; mazes have walls around."""
    row, column = cell
    return [(row - 1, column), (row + 1, column), (row, column - 1), (row, column + 1)]


def _one(cells: list[Cell], dice: np.random.Generator) -> Cell:
    return cells[dice.integers(len(cells))]
