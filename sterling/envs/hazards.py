"""Hazards: a grid whose shortest way to the goal costs something, for learning under a limit.

An episode begins in the lower left corner and ends in the lower right one, the goal. Every step
brings a reward of -0.1, and one that leads onto a hazard, which are all cells of the lowest row
between the two corners, reports a ``cost`` of 1. So the best policy walks over the hazards, a
careful one walks around them, and the best one that costs at most d on average is found exactly by
a linear program over how often each action is taken in each cell (Altman 1999, "Constrained Markov
decision processes", chapter 8): :meth:`Hazards.best`. With a chance of 0.1 a step leads to a random
one of the four neighbours instead; walls stand around the grid.

Names: ``HxW``, rows and columns, for instance ``3x6``; both are at least 2, columns at least 3.
"""

from __future__ import annotations

import re
from typing import Any, ClassVar

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, Key

from sterling.channels import Channel
from sterling.envs.tabular import LIMIT, SLIP, Tabular
from sterling.types import Mistake

NAMES = ("3x6", "4x8")
FORM = re.compile(r"(\d+)x(\d+)")
STEP = -0.1  # reward of a step
MOVES = ((-1, 0), (0, 1), (1, 0), (0, -1))  # up, right, down, left


class Hazards(Tabular):
    """The grid, a :class:`sterling.envs.traced.Task` that reports a ``cost``."""

    channels: ClassVar = {"cost": Channel(better=-1, within=(0.0, float(LIMIT)))}

    def __init__(self, height: int, width: int):
        row, column = np.divmod(np.arange(height * width), width)
        aims = np.stack([
            np.clip(row + down, 0, height - 1) * width + np.clip(column + right, 0, width - 1)
            for down, right in MOVES
        ], 1)  # fmt: skip
        every, first, goal = np.eye(height * width), (height - 1) * width, height * width - 1
        transition = (1 - SLIP) * every[aims] + SLIP * every[aims].mean(1)[:, None]
        reward = np.full((height * width, len(MOVES)), STEP)
        super().__init__(transition, reward, every[goal], every[first])
        self.hazard = (row == height - 1) & (column > 0) & (column < width - 1)

    def step(
        self, state: Int[Array, ""], action: Int[Array, ""], key: Key[Array, ""]
    ) -> tuple[Any, ...]:
        """Move, and report what it cost."""
        following, *rest = super().step(state, action, key)
        cost = jnp.asarray(self.hazard, jnp.float32)[following]
        return following, *rest, {"cost": cost}

    def best(self, limit: float) -> tuple[float, float]:
        """Return the largest expected return of any policy whose expected cost is at most
        ``limit``, and what that policy costs, both of whole episodes that are not cut.

        Raises Mistake where every policy costs more.
        """
        from scipy.optimize import linprog

        states, actions = self.reward.shape
        going = self._going.reshape(states * actions, states)
        balance = np.repeat(np.eye(states), actions, 0) - going  # taken minus arrived at
        reward, cost = self.reward.ravel(), self.cost.ravel()
        found = linprog(-reward, cost[None], [limit], balance.T, self.start)
        if not found.success:
            raise Mistake(f"no policy costs at most {limit:g} here; allow more")
        return float(reward @ found.x), float(cost @ found.x)

    @property
    def cost(self) -> Float[np.ndarray, "state action"]:
        """The expected cost of each action in each state."""
        return self.transition @ self.hazard


def names() -> list[str]:
    """Some of them: sizes may be others."""
    return list(NAMES)


def knows(name: str) -> bool:
    """Whether ``name`` is of the form, and its grid has hazards and a way around them."""
    found = FORM.fullmatch(name)
    return bool(found and int(found[1]) >= 2 and int(found[2]) >= 3)


def make(name: str) -> tuple[Hazards, int]:
    """The grid called ``name`` and its time limit."""
    found = FORM.fullmatch(name)
    if not found or not knows(name):
        raise Mistake(f"hazards {name!r} are not known; write rows and columns, for instance 3x6")
    return Hazards(*map(int, found.groups())), LIMIT
