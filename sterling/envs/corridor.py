"""Corridors that chance does not cross, for agents that must explore.

In each of N cells one of two actions leads to the next one and the other back to the first; which
is which differs from cell to cell and never changes. Leaving the last cell brings 1 and ends the
episode; nothing else brings anything. So who acts at random crosses with a chance of 2^-N from the
first cell, the best return is 1, and N steps are enough for it. Shown is the cell, one-hot.

Names: ``N``, cells, for instance ``40``.
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
FORM = re.compile(r"[1-9]\d*")
PATIENCE = 2  # steps, for each cell, after which an episode is cut


@dataclasses.dataclass(frozen=True)
class Corridor:
    """A corridor, a :class:`sterling.envs.traced.Task`."""

    cells: int

    @property
    def obs(self) -> spaces.Box:
        """The cell, one-hot; all 0 behind the last one."""
        return spaces.Box(0.0, 1.0, (self.cells,), np.float32)

    @property
    def action(self) -> spaces.Discrete:
        """Two doors."""
        return spaces.Discrete(2)

    @property
    def way(self) -> Int[np.ndarray, "cell"]:
        """The action that leads on from each cell."""
        return np.random.default_rng(0).integers(0, 2, self.cells).astype(np.int32)

    def reset(self, key: Key[Array, ""]) -> tuple[Int[Array, ""], Float[Array, "cell"]]:
        """Stand in the first cell."""
        cell = jnp.zeros((), jnp.int32)
        return cell, self._seen(cell)

    def step(
        self, state: Int[Array, ""], action: Int[Array, ""], key: Key[Array, ""]
    ) -> tuple[Int[Array, ""], Float[Array, "cell"], Array, Array, Array]:
        """Go on, or back to the first cell."""
        cell = jnp.where(action == jnp.asarray(self.way)[state], state + 1, 0)
        crossed = cell == self.cells
        return cell, self._seen(cell), crossed.astype(jnp.float32), crossed, jnp.zeros((), bool)

    def _seen(self, cell: Int[Array, ""]) -> Float[Array, "cell"]:
        return jax.nn.one_hot(cell, self.cells)


def names() -> list[str]:
    """Some of them: numbers may be others."""
    return list(NAMES)


def knows(name: str) -> bool:
    """Whether ``name`` is a number of cells."""
    return FORM.fullmatch(name) is not None


def make(name: str) -> tuple[Corridor, int]:
    """The corridor called ``name``, and its time limit."""
    if not knows(name):
        raise Mistake(f"corridor {name!r} is not known; write a number of cells, for instance 40")
    task = Corridor(int(name))
    return task, PATIENCE * task.cells
