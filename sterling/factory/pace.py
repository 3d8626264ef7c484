"""How a training for data is getting on, as rows like those of a run's log."""

from __future__ import annotations

import time
from typing import Any

from sterling.report.metrics import Row


class Pace:
    """Makes a row of what was done since the last one. The tally of episodes that it is given goes
    on from the training's beginning: to clear it would be to touch what is lived through again."""

    def __init__(self, steps: int):
        self._steps, self._step, self._time = steps, 0, time.monotonic()
        self._returns, self._episodes = 0.0, 0

    def row(self, step: int, tally: Any) -> Row:
        """After ``step`` environment steps."""
        now = time.monotonic()
        speed = (step - self._step) / max(now - self._time, 1e-9)
        returns, episodes = float(tally.returns[0]), int(tally.episodes[0])
        ended = episodes - self._episodes
        mean = (returns - self._returns) / ended if ended else None
        self._step, self._time, self._returns, self._episodes = step, now, returns, episodes
        row = {"step": step, "steps": self._steps, "time/steps_per_second": speed}
        return {**row, "data/return": [mean]}
