"""How far a run is: its steps and updates at an iteration, and the columns that say so."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sterling.training.config.settings import Settings
from sterling.training.phases.phase_sequence import PlannedPhase, counts_updates


def steps_so_far(parts: Sequence[PlannedPhase], phase: int, done: int) -> int:
    """Return the environment steps per seed at iteration ``done`` in phase ``phase`` (from 0 on),
    with the steps before the first iteration of every phase."""
    return sum(part.steps(done) for part in parts[: phase + 1])


def updates_so_far(parts: Sequence[PlannedPhase], done: int) -> int:
    """Return the gradient updates per seed, for learners that sample batches."""
    return sum(part.updates(done) for part in parts)


def progress_count(parts: Sequence[PlannedPhase], phase: int, done: int) -> int:
    """Return one number for the progress: steps, plus updates of phases without steps."""
    return sum(part.steps(done) if part.acts else part.updates(done) for part in parts[: phase + 1])


def progress_columns(
    settings: Settings, parts: Sequence[PlannedPhase], phase: int, done: int, speed: float
) -> dict[str, Any]:
    """Return the columns of progress and speed; ``speed``: iterations per second."""
    row: dict[str, Any] = {"step": steps_so_far(parts, phase, done)}
    last = parts[-1].end
    if counts_updates(settings):
        row |= {"update": updates_so_far(parts, done), "updates": updates_so_far(parts, last)}
    if any(part.acts for part in parts):
        row["steps"] = sum(part.steps(last) for part in parts)
    row |= {"iteration": done, "time/seconds": 0.0}
    if settings.phases:
        row["phase"] = phase + 1
    kind = "steps" if parts[phase].acts else "updates"
    rate = speed * len(settings.seeds) * parts[phase].per_iteration
    return row | {f"time/{kind}_per_second": round(rate, 3)}
