"""Between two rows of the log: what was measured, and how long a program runs by itself.

A row may stand for minutes. The host looks up every few seconds all the same, to save or to leave
when it is asked to; where it looks up changes no number of the row.
"""

from __future__ import annotations

import time
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from sterling.training.loop import Run, advance
from sterling.training.updates import means

LOOK = 5.0  # seconds of work between two looks


class Lap:
    """The iterations since the last row, and the sums of their metrics."""

    def __init__(self, meta: dict[str, Any] | None = None):
        """Empty, or what :meth:`to_json` gave of one that was broken off."""
        meta = meta or {"iterations": 0, "sums": {}}
        self.iterations: int = meta["iterations"]
        self._sums: Any = {name: np.float32(values) for name, values in meta["sums"].items()}
        self._timed, self._seconds = 0, 0.0  # of this process alone
        self._pace = LOOK  # seconds that an iteration took last

    @property
    def speed(self) -> float:
        """Iterations per second."""
        return self._timed / self._seconds

    def go(self, run: Run, left: int) -> Run:
        """``left`` iterations, or fewer if they would take longer than until the next look; the
        first look comes after one. ``run`` is used up."""
        start, count = time.monotonic(), min(left, max(1, int(LOOK / self._pace)))
        run, self._sums = advance(run, count, self._sums)
        jax.block_until_ready(run)
        seconds = time.monotonic() - start
        self._pace = seconds / count
        self.iterations, self._timed = self.iterations + count, self._timed + count
        self._seconds += seconds
        return run

    def means(self) -> dict[str, Float[np.ndarray, "seed"]]:
        """Metrics per iteration."""
        sums = {name: np.asarray(self._sums[name]) for name in sorted(self._sums)}
        return means(sums, np.float32(self.iterations))

    def next(self) -> Lap:
        """An empty one of the same program, as fast as this."""
        lap = Lap()
        lap._pace = self._pace
        # named as they are: else the program is asked for its metrics at every row, which takes ms
        sums = {name: jnp.asarray(np.zeros_like(each)) for name, each in self._sums.items()}
        lap._sums = sums
        return lap

    def to_json(self) -> dict[str, Any]:
        """Plain values that stand for exactly this."""
        sums = {name: np.asarray(values).tolist() for name, values in self._sums.items()}
        return {"iterations": self.iterations, "sums": sums}
