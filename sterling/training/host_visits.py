"""Host visits: calls of ``source.visit`` on the host, between two compiled dispatches."""

from __future__ import annotations

from typing import Any

from sterling import random_keys
from sterling.training.loop import Run, advance


class Visits:
    """The visits that a run has had. A visit comes before its iteration, and only once: a
    checkpoint between the two says so, and a run resumed there does not repeat it."""

    def __init__(self, meta: dict[str, Any]):
        """Start with the visits that :meth:`to_json` wrote into ``meta``; a new run has none."""
        self._last: int = meta.get("visited", -1)

    def made(self, run: Run) -> Run:
        """Return the run after its source's visit, if one is due before the next iteration."""
        at = int(run.iteration)
        if not _is_due(run) or self._last == at:
            return run
        source, agent = run.source.visit(
            run.agent, random_keys.for_seeds(run.seeds, "visit", run.iteration)
        )
        self._last = at
        return Run(agent, source, run.seeds, run.iteration)

    def to_json(self) -> dict[str, int]:
        """Return the iteration of the last visit, as plain values."""
        return {"visited": self._last}


def iterations_until_visit(run: Run, iterations: int) -> int:
    """Return how many of the next ``iterations`` come before the next visit."""
    every = run.source.visits
    return min(iterations, every - int(run.iteration) % every) if every else iterations


def advance_with_visits(run: Run, iterations: int) -> Run:
    """Make ``iterations`` iterations of a run, with visits in between; ``run`` is donated."""
    visits = Visits({})
    while iterations:
        run = visits.made(run)
        count = iterations_until_visit(run, iterations)
        run, iterations = advance(run, count)[0], iterations - count
    return run


def _is_due(run: Run) -> bool:
    every = run.source.visits
    return bool(every) and int(run.iteration) % every == 0
