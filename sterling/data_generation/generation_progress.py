"""Progress of a training run for data, as rows of metrics like those of any run."""

from __future__ import annotations

import time
from typing import Any

from sterling.report.live.metric_sinks import Row


class ProgressRows:
    """Make rows of metrics, each over the steps since the last row.

    The episode tally that it reads is cumulative from the start of training: clearing it would
    change the state that must be repeated exactly.
    """

    def __init__(self, steps: int):
        self._steps, self._step, self._time = steps, 0, time.monotonic()
        self._returns, self._episodes = 0.0, 0

    def row(self, step: int, tally: Any) -> Row:
        """Return the row of metrics after ``step`` environment steps."""
        now = time.monotonic()
        speed = (step - self._step) / max(now - self._time, 1e-9)
        returns, episodes = float(tally.returns[0]), int(tally.episodes[0])
        ended = episodes - self._episodes
        mean = (returns - self._returns) / ended if ended else None
        self._step, self._time, self._returns, self._episodes = step, now, returns, episodes
        row = {"step": step, "steps": self._steps, "time/steps_per_second": speed}
        return {**row, "data/return": [mean]}
