"""The interval between two rows of metrics: sums of metrics, and iterations per dispatch.

An interval may last minutes. The program still returns to the host every few seconds, to save or
stop if that is requested; when it returns changes no number of the row.
"""

from __future__ import annotations

import time
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from sterling.training.loop import Run, advance
from sterling.training.updates import mean_metrics

LOOK_SECONDS = 5.0  # seconds of work between two returns to the host


class LogInterval:
    """The iterations since the last row of metrics, and the sums of their metrics."""

    def __init__(self, meta: dict[str, Any] | None = None):
        """Start empty, or with the values that :meth:`to_json` gave of an interrupted one."""
        meta = meta or {"iterations": 0, "sums": {}}
        self.iterations: int = meta["iterations"]
        self._sums: Any = {name: np.float32(values) for name, values in meta["sums"].items()}
        self._timed, self._seconds = 0, 0.0  # iterations and their time in this process
        self._pace = LOOK_SECONDS  # seconds of the last iteration

    @property
    def speed(self) -> float:
        """Return iterations per second."""
        return self._timed / self._seconds

    def go(self, run: Run, left: int) -> Run:
        """Make ``left`` iterations, or as many as fit into ``LOOK_SECONDS``; the first call makes
        one. The arrays of ``run`` are donated."""
        start, count = time.monotonic(), min(left, max(1, int(LOOK_SECONDS / self._pace)))
        run, self._sums = advance(run, count, self._sums)
        jax.block_until_ready(run)
        seconds = time.monotonic() - start
        self._pace = seconds / count
        self.iterations, self._timed = self.iterations + count, self._timed + count
        self._seconds += seconds
        return run

    def means(self) -> dict[str, Float[np.ndarray, "seed"]]:
        """Return the mean metrics per iteration."""
        sums = {name: np.asarray(self._sums[name]) for name in sorted(self._sums)}
        return mean_metrics(sums, np.float32(self.iterations))

    def next(self) -> LogInterval:
        """Return an empty interval for the same program, with the same pace."""
        lap = LogInterval()
        lap._pace = self._pace
        # keep the metrics' names: finding them from the program takes milliseconds for every row
        sums = {name: jnp.asarray(np.zeros_like(each)) for name, each in self._sums.items()}
        lap._sums = sums
        return lap

    def to_json(self) -> dict[str, Any]:
        """Return plain values from which ``LogInterval`` restores it exactly."""
        sums = {name: np.asarray(values).tolist() for name, values in self._sums.items()}
        return {"iterations": self.iterations, "sums": sums}
