"""Corridors that random actions almost never cross, for agents that must explore.

In each of N cells one of two actions leads to the next cell and the other back to the first; which
one differs from cell to cell and never changes. Leaving the last cell pays 1 and ends the episode;
all other rewards are 0. Random actions cross from the first cell with probability 2^-N. The best
return is 1, and takes N steps. The observation is the cell, one-hot.

Names: ``N``, the number of cells, for instance ``40``.
"""

from __future__ import annotations

import dataclasses
import re

import jax
import jax.numpy as jnp
import numpy as np
from gymnasium import spaces
from jaxtyping import Array, Float, Int, Key

from sterling.types import Mistake

NAMES = ("10", "40", "100")
NAME_PATTERN = re.compile(r"[1-9]\d*")
STEPS_PER_CELL = 2  # the time limit, for each cell


@dataclasses.dataclass(frozen=True)
class Corridor:
    """A corridor, as a :class:`sterling.envs.traced_world.Task`."""

    cells: int

    @property
    def obs(self) -> spaces.Box:
        """The cell, one-hot; all 0 after the last one."""
        return spaces.Box(0.0, 1.0, (self.cells,), np.float32)

    @property
    def action(self) -> spaces.Discrete:
        """Two choices."""
        return spaces.Discrete(2)

    @property
    def forward_action(self) -> Int[np.ndarray, "cell"]:
        """The action that leads to the next cell, for each cell."""
        return np.random.default_rng(0).integers(0, 2, self.cells).astype(np.int32)

    def reset(self, key: Key[Array, ""]) -> tuple[Int[Array, ""], Float[Array, "cell"]]:
        """Start in the first cell."""
        cell = jnp.zeros((), jnp.int32)
        return cell, self._observe(cell)

    def step(
        self, state: Int[Array, ""], action: Int[Array, ""], key: Key[Array, ""]
    ) -> tuple[Int[Array, ""], Float[Array, "cell"], Array, Array, Array]:
        """Move to the next cell, or back to the first."""
        cell = jnp.where(action == jnp.asarray(self.forward_action)[state], state + 1, 0)
        crossed = cell == self.cells
        return cell, self._observe(cell), crossed.astype(jnp.float32), crossed, jnp.zeros((), bool)

    def _observe(self, cell: Int[Array, ""]) -> Float[Array, "cell"]:
        return jax.nn.one_hot(cell, self.cells)


def names() -> list[str]:
    """Return example names; any other number of cells works too."""
    return list(NAMES)


def knows(name: str) -> bool:
    """Whether ``name`` is a number of cells, at least 1."""
    return NAME_PATTERN.fullmatch(name) is not None


def make(name: str) -> tuple[Corridor, int]:
    """Return the corridor called ``name`` and its time limit in steps."""
    if not knows(name):
        raise Mistake(f"Unknown corridor {name!r}. Write its number of cells, for instance 40.")
    task = Corridor(int(name))
    return task, STEPS_PER_CELL * task.cells
