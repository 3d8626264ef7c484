"""Moments on the host, between two compiled dispatches, that a source asks for (``visits``)."""

from __future__ import annotations

from typing import Any

from sterling import keys
from sterling.training.loop import Run, advance


class Visits:
    """Which visits a run has had. A visit comes before its iteration, and once: what is saved
    between the two says so, and a run that is resumed there goes on from it."""

    def __init__(self, meta: dict[str, Any]):
        """As :meth:`to_json` left it in ``meta``; a new run has had none."""
        self._last: int = meta.get("visited", -1)

    def made(self, run: Run) -> Run:
        """The run after its source's visit, if one comes before the next iteration."""
        at = int(run.iteration)
        if not _is_due(run) or self._last == at:
            return run
        source, agent = run.source.visit(run.agent, keys.at(run.seeds, "visit", run.iteration))
        self._last = at
        return Run(agent, source, run.seeds, run.iteration)

    def to_json(self) -> dict[str, int]:
        """The iteration that was visited last."""
        return {"visited": self._last}


def together(run: Run, iterations: int) -> int:
    """How many of the next ``iterations`` are made before another visit."""
    every = run.source.visits
    return min(iterations, every - int(run.iteration) % every) if every else iterations


def live(run: Run, iterations: int) -> Run:
    """``iterations`` rounds of a run that is kept between visits only; ``run`` is used up."""
    visits = Visits({})
    while iterations:
        run = visits.made(run)
        count = together(run, iterations)
        run, iterations = advance(run, count)[0], iterations - count
    return run


def _is_due(run: Run) -> bool:
    every = run.source.visits
    return bool(every) and int(run.iteration) % every == 0
