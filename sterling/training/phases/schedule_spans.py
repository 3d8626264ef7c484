"""Which schedules hold in each phase of a run, and the iterations that each of them covers.

A schedule covers the phases from the one that sets its field up to the next one that sets the field
again, or to the end of the run.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sterling.schedules import Function, Schedule
from sterling.training.field_schedules import Span
from sterling.types import Mistake

PlannedPhase = Any  # of phase_sequence.py, which imports this file


def schedule_spans(parts: Sequence[PlannedPhase]) -> list[dict[str, Span]]:
    """Return each phase's schedules by field, with their iterations in the run."""
    return [
        {
            name: _span(function, name, parts, number)
            for name, function in part.settings.schedules.items()
        }
        for number, part in enumerate(parts)
    ]


def _span(function: Function, name: str, parts: Sequence[PlannedPhase], number: int) -> Span:
    """Return the span of the field's schedule that holds in the phase ``number``."""
    sets = [i for i, part in enumerate(parts) if i == 0 or name in part.fields]
    first = max(i for i in sets if i <= number)
    after = min((i for i in sets if i > number), default=len(parts))
    covered = parts[first:after]
    begin, end = covered[0].begin, covered[-1].end
    if isinstance(function, Schedule) and function.unit != "progress":
        unit = function.unit
        function = function.with_places(
            lambda place: (_iteration_at(covered, place, unit, name) - begin) / (end - begin)
        )
    return Span(function, begin, end)


def _iteration_at(parts: Sequence[PlannedPhase], place: float, unit: str, name: str) -> float:
    """Return the iteration of a run, with a fraction, that is ``place`` steps or updates after the
    beginning of the first of these phases; warm-up steps come before the phase's iterations."""
    for part in parts:
        count = part.steps(part.end) if unit == "steps" else part.updates(part.end)
        if not count:
            other = "updates" if unit == "steps" else "steps"
            raise Mistake(
                f"the schedule of {name} counts {unit}, of which a phase has none. Count {other}, "
                "or give shares of the run (progress)."
            )
        if place <= count or part is parts[-1]:
            warmup = part.warmup if unit == "steps" else 0
            each = (count - warmup) / (part.end - part.begin)
            return part.begin + max(place - warmup, 0.0) / each
        place -= count
    raise AssertionError("a schedule covers at least one phase")
