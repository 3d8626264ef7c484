"""The results of a run's phases: evaluations at the end of each phase, in every world."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from sterling.training.config.settings import Settings
from sterling.training.evaluation.final_estimate import final_estimate
from sterling.training.phases.phase_sequence import (
    phases_reached,
    plan_phases,
    world_names,
    worlds_by_name,
)
from sterling.training.trained_run import TrainedRun, run_return_bounds


def switch_cost(
    judged: Sequence[dict[str, Any]], settings: Settings, failed: Sequence[int]
) -> dict[str, Any]:
    """Return the cost of going from offline to online training: each seed's return ``before`` the
    first step, its ``lowest`` later evaluation, and the ``dip`` between them, with intervals.

    A dip between two evaluations is not seen; ``evaluate_every`` sets their distance.
    """
    before = [each["return"] for each in judged if _phase_number(each) == 0][-1]
    online = [each["return"] for each in judged if _phase_number(each) == 1] or [before]
    columns = zip(*online, strict=True)
    lowest = [min((x for x in column if x is not None), default=None) for column in columns]
    dip = [
        None if one is None or other is None else max(one - other, 0.0)
        for one, other in zip(before, lowest, strict=True)
    ]
    bounds = run_return_bounds(settings)
    low, high = bounds or (None, None)
    most = None if low is None or high is None else high - low
    parts = {"before": (before, bounds), "lowest": (lowest, bounds), "dip": (dip, (0.0, most))}
    return {
        name: final_estimate(values, settings.seeds, failed, within)
        for name, (values, within) in parts.items()
    }


def results_by_phase(
    judged: Sequence[dict[str, Any]], settings: Settings, run: TrainedRun
) -> dict[str, Any]:
    """Return each phase's world, steps, updates, and returns at its end in every world of the run;
    and ``forgotten``, for every world but the last: its return at the end of its last phase minus
    its return at the end of the run, per seed. Declared bounds of returns hold in all worlds.
    """
    reached = phases_reached(run.result.get("stopped"))
    names, failed = world_names(settings)[:reached], run.result["failed_seeds"]
    worlds, seeds = worlds_by_name(settings), settings.seeds
    parts = plan_phases(settings)[:reached]
    done = (run.result.get("stopped") or {}).get("iteration", parts[-1].end)
    ends = [
        [each["worlds"] for each in judged if _phase_number(each) == number][-1]
        for number in range(len(names) - 1)
    ]
    ends.append({name: _returns_in_world(settings, each, run) for name, each in worlds.items()})
    bounds = {name: run_return_bounds(each) for name, each in worlds.items()}
    phases = [
        {
            "environment": name,
            "steps": part.steps(done),
            "updates": part.updates(done),
            "return": {w: final_estimate(x, seeds, failed, bounds[w]) for w, x in end.items()},
        }
        for name, part, end in zip(names, parts, ends, strict=True)
    ]
    last_phase = {name: number for number, name in enumerate(names)}  # of each world
    forgotten = {
        name: final_estimate(_difference(ends[number][name], ends[-1][name]), seeds, failed)
        for name, number in last_phase.items()
        if name != names[-1]
    }
    return {"phases": phases, **({"forgotten": forgotten} if forgotten else {})}


def merge_phase_results(
    results: Sequence[dict[str, Any]], over: Callable[[Sequence[Any]], dict[str, Any]]
) -> dict[str, Any]:
    """Merge what the results of several processes say of phases; ``over`` merges estimates, None
    for a process whose seeds have all failed."""

    def merged(*path: str | int) -> dict[str, Any]:
        return over([_get_path(r, path) if r.get(str(path[0])) else None for r in results])

    def known(name: str) -> Any:
        return next((result[name] for result in results if result.get(name)), {})

    def returns(number: int, phase: dict[str, Any]) -> dict[str, Any]:
        return {world: merged("phases", number, "return", world) for world in phase["return"]}

    phases = [phase | {"return": returns(i, phase)} for i, phase in enumerate(known("phases"))]
    made = {
        "switch": {name: merged("switch", name) for name in known("switch")},
        "taught": {name: merged("taught", name) for name in known("taught")},
        "phases": phases,
        "forgotten": {world: merged("forgotten", world) for world in known("forgotten")},
    }
    return {name: each for name, each in made.items() if each}


def _get_path(found: Any, path: Sequence[str | int]) -> Any:
    for name in path:
        found = found[name]
    return found


def _returns_in_world(settings: Settings, place: Settings, run: TrainedRun) -> list[float | None]:
    """Return the returns per seed of the run's agents in one of its worlds."""
    here = run.settings
    if (place.environment, place.env_options) == (here.environment, here.env_options):
        return list(run.result["final"]["return"]["per_seed"])
    there = TrainedRun(place, run.agent, run.result, None)
    return list(there.evaluate(settings.evaluate_episodes)["return"]["per_seed"])


def _difference(before: Sequence[float | None], now: Sequence[float | None]) -> list[float | None]:
    pairs = zip(before, now, strict=True)
    return [None if a is None or b is None else a - b for a, b in pairs]


def _phase_number(judged: dict[str, Any]) -> int:
    """Return the phase of an evaluation; older checkpoints hold ``online`` instead."""
    return int(judged.get("phase", bool(judged.get("online"))))
