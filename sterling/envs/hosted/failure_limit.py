"""Count the failures of environments, and say when one has failed too often.

Steps are counted, not seconds: an environment that raises once in thousands of steps does so every
few seconds if it is fast. A copy has failed too often after ``max_failures`` failed episodes in a
row, or if it failed more often than ``max_failures`` times, but at least ten, in its last 1,000
steps. So more than 1 % of the steps may fail only where a user asks for it.
"""

from __future__ import annotations

import collections

import numpy as np
from jaxtyping import Bool

DEFAULT = 3  # max_failures
WINDOW = 1_000  # steps of a copy in which its failures are counted
ALLOWED = 10  # failures in so many steps: 1 %
MORE_FAILURES = "allow more failures with --env max_failures=N."
ENOUGH = 1_000  # failures that the resume command of a stopped run allows


class FailureLimit:
    """The failures of ``total`` copies of an environment; ``most`` is ``max_failures``."""

    def __init__(self, total: int, most: int):
        self._most, self._allowed = most, max(ALLOWED, most)
        self._steps, self._in_a_row = np.zeros(total, int), np.zeros(total, int)
        self._failed_at = [collections.deque[int](maxlen=self._allowed + 1) for _ in range(total)]

    def count_steps(
        self, stepped: Bool[np.ndarray, "total"], ended: Bool[np.ndarray, "total"]
    ) -> None:
        """Count a step of the copies that ``stepped``; episodes that ``ended`` did not fail."""
        self._steps += stepped
        self._in_a_row[ended] = 0

    def count_failure(self, index: int) -> str:
        """Count a failed episode of a copy; return how it failed too often, or ""."""
        self._in_a_row[index] += 1
        if (count := self._in_a_row[index]) >= self._most:
            return f"failed in {count} episodes in a row" if count > 1 else "failed"
        recent = self._failed_at[index]
        recent.append(int(self._steps[index]))
        if len(recent) > self._allowed and recent[-1] - recent[0] < WINDOW:
            return f"failed {len(recent)} times in {WINDOW:,} steps"
        return ""


def with_resume_command(message: str, command: str, most: int) -> str:
    """Return the message of a run that ended, with the whole command that resumes it and allows
    more failures; other messages as they are. ``most`` is the run's ``max_failures``."""
    more = ENOUGH if most < ENOUGH else 10 * most
    return message.replace(
        MORE_FAILURES, f"resume and allow more failures: {command} --env max_failures={more}"
    )
