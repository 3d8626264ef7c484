"""A grid whose shortest path to the goal crosses hazards, for learning under a cost limit.

An episode begins in the lower left corner and ends in the lower right one, the goal. Every step
pays -0.1. The hazards are the cells of the lowest row between the two corners; a step onto one
reports a ``cost`` of 1. So the best policy walks across the hazards and a careful one walks around
them. The best policy with an expected cost of at most d is found exactly by a linear program over
the expected number of times each action is taken in each cell (Altman 1999, "Constrained Markov
decision processes", chapter 8): :meth:`Hazards.best`. With probability 0.1 a step leads to a random
one of the four neighbours instead; walls surround the grid.

Names: ``HxW``, rows and columns, for instance ``3x6``; at least 2 rows and 3 columns.
"""

from __future__ import annotations

import re
from typing import Any, ClassVar

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, Key

from sterling.envs.native.tabular_mdp import LIMIT, SLIP_CHANCE, Tabular
from sterling.problem.channels import Channel
from sterling.types import Mistake

NAMES = ("3x6", "4x8")
NAME_PATTERN = re.compile(r"(\d+)x(\d+)")
STEP_REWARD = -0.1  # reward of a step
MOVES = ((-1, 0), (0, 1), (1, 0), (0, -1))  # up, right, down, left


class Hazards(Tabular):
    """The grid, as a :class:`sterling.envs.traced_world.Task` that reports a ``cost``."""

    channels: ClassVar = {"cost": Channel(better=-1, within=(0.0, float(LIMIT)))}

    def __init__(self, height: int, width: int):
        row, column = np.divmod(np.arange(height * width), width)
        aims = np.stack([
            np.clip(row + down, 0, height - 1) * width + np.clip(column + right, 0, width - 1)
            for down, right in MOVES
        ], 1)  # fmt: skip
        every, first, goal = np.eye(height * width), (height - 1) * width, height * width - 1
        transition = (1 - SLIP_CHANCE) * every[aims] + SLIP_CHANCE * every[aims].mean(1)[:, None]
        reward = np.full((height * width, len(MOVES)), STEP_REWARD)
        super().__init__(transition, reward, every[goal], every[first])
        self.hazard = (row == height - 1) & (column > 0) & (column < width - 1)

    def step(
        self, state: Int[Array, ""], action: Int[Array, ""], key: Key[Array, ""]
    ) -> tuple[Any, ...]:
        """Step the grid and report the cost."""
        next_state, *rest = super().step(state, action, key)
        cost = jnp.asarray(self.hazard, jnp.float32)[next_state]
        return next_state, *rest, {"cost": cost}

    def best(self, limit: float) -> tuple[float, float]:
        """Return the highest expected return of any policy whose expected cost is at most
        ``limit``, and that policy's cost; both for whole episodes without a time limit.

        Raises Mistake if every policy costs more.
        """
        from scipy.optimize import linprog

        states, actions = self.reward.shape
        continuing = self._continuing.reshape(states * actions, states)
        # actions taken in a state minus arrivals in it
        balance = np.repeat(np.eye(states), actions, 0) - continuing
        reward, cost = self.reward.ravel(), self.cost.ravel()
        found = linprog(-reward, cost[None], [limit], balance.T, self.start)
        if not found.success:
            raise Mistake(f"No policy costs at most {limit:g} here. Give a higher limit.")
        return float(reward @ found.x), float(cost @ found.x)

    @property
    def cost(self) -> Float[np.ndarray, "state action"]:
        """The expected cost of each action in each state."""
        return self.transition @ self.hazard


def names() -> list[str]:
    """Return example names; other sizes work too."""
    return list(NAMES)


def knows(name: str) -> bool:
    """Whether ``name`` is ``HxW`` and its grid has hazards and a way around them."""
    found = NAME_PATTERN.fullmatch(name)
    return bool(found and int(found[1]) >= 2 and int(found[2]) >= 3)


def make(name: str) -> tuple[Hazards, int]:
    """Return the grid called ``name`` and its time limit in steps."""
    found = NAME_PATTERN.fullmatch(name)
    if not found or not knows(name):
        raise Mistake(
            f"Unknown hazards {name!r}. Write rows x columns, at least 2x3, for instance 3x6."
        )
    return Hazards(*map(int, found.groups())), LIMIT
