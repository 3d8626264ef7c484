"""What the result of a run says of its phases: evaluations at the end of each, in every world."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from sterling.training.phases import parts, world_names, worlds
from sterling.training.settings import Settings
from sterling.training.trained import TrainedRun, bounds, final


def switch(
    judged: Sequence[dict[str, Any]], settings: Settings, failed: Sequence[int]
) -> dict[str, Any]:
    """What going from the log to the world cost: each seed's return ``before`` the first step, its
    ``lowest`` evaluation afterwards, and the ``dip`` from one to the other, with intervals.

    A dip between two evaluations is not seen; ``evaluate_every`` says how close they are.
    """
    before = [each["return"] for each in judged if _phase(each) == 0][-1]
    online = [each["return"] for each in judged if _phase(each) == 1] or [before]
    columns = zip(*online, strict=True)
    lowest = [min((x for x in column if x is not None), default=None) for column in columns]
    dip = [
        None if one is None or other is None else max(one - other, 0.0)
        for one, other in zip(before, lowest, strict=True)
    ]
    parts = {"before": before, "lowest": lowest, "dip": dip}
    return {name: final(values, settings.seeds, failed) for name, values in parts.items()}


def phases_told(
    judged: Sequence[dict[str, Any]], settings: Settings, run: TrainedRun
) -> dict[str, Any]:
    """Of each phase its world, steps and updates and, as it ended, the return in every world of the
    run; and what was ``forgotten`` of every world but the last: its return when it had been learned
    last minus that at the end, seed by seed. Bounds of returns that were declared hold in all.
    """
    names, lost = world_names(settings), run.result["failed_seeds"]
    ends = [
        [each["worlds"] for each in judged if _phase(each) == number][-1]
        for number in range(len(names) - 1)
    ]
    ends.append({name: _returns(settings, each, run) for name, each in worlds(settings).items()})

    within = {name: bounds(each) for name, each in worlds(settings).items()}
    told = [
        {
            "environment": name,
            "steps": part.steps(part.end),
            "updates": part.updates(part.end),
            "return": {
                w: final(scores, settings.seeds, lost, within[w]) for w, scores in end.items()
            },
        }
        for name, part, end in zip(names, parts(settings), ends, strict=True)
    ]
    learned = {name: number for number, name in enumerate(names)}  # in which phase last
    forgotten = {
        name: final(_difference(ends[number][name], ends[-1][name]), settings.seeds, lost)
        for name, number in learned.items()
        if name != names[-1]
    }
    return {"phases": told, **({"forgotten": forgotten} if forgotten else {})}


def merged_phases(
    results: Sequence[dict[str, Any]], over: Callable[[Sequence[Any]], dict[str, Any]]
) -> dict[str, Any]:
    """What the results of several processes say of phases, as one; ``over`` puts estimates
    together, None where all seeds of a process have failed."""

    def of(*path: str | int) -> dict[str, Any]:
        return over([_at(r, path) if r.get(str(path[0])) else None for r in results])

    def known(name: str) -> Any:
        return next((result[name] for result in results if result.get(name)), {})

    told = [
        phase | {"return": {world: of("phases", i, "return", world) for world in phase["return"]}}
        for i, phase in enumerate(known("phases"))
    ]
    made = {
        "switch": {name: of("switch", name) for name in known("switch")},
        "phases": told,
        "forgotten": {world: of("forgotten", world) for world in known("forgotten")},
    }
    return {name: each for name, each in made.items() if each}


def _at(found: Any, path: Sequence[str | int]) -> Any:
    for name in path:
        found = found[name]
    return found


def _returns(settings: Settings, place: Settings, run: TrainedRun) -> list[float | None]:
    """What the run's agents come to in one of its worlds."""
    here = run.settings
    if (place.environment, place.env_options) == (here.environment, here.env_options):
        return list(run.result["final"]["return"]["per_seed"])
    there = TrainedRun(place, run.agent, run.result, None)
    return list(there.evaluate(settings.evaluate_episodes)["return"]["per_seed"])


def _difference(before: Sequence[float | None], now: Sequence[float | None]) -> list[float | None]:
    pairs = zip(before, now, strict=True)
    return [None if a is None or b is None else a - b for a, b in pairs]


def _phase(judged: dict[str, Any]) -> int:
    """The phase of an evaluation; before there were more than two, it said whether agents acted."""
    return int(judged.get("phase", bool(judged.get("online"))))
