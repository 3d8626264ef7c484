"""A run is given a larger budget than it was begun with."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

from sterling.training import folder
from sterling.training.choices import BUDGETS, Phase
from sterling.training.fields import whole
from sterling.training.settings import Settings, check_budget
from sterling.types import Mistake


def lengthen(
    path: Path, settings: Settings, then: tuple[Phase, ...] = (), **wanted: int | None
) -> Settings:
    """The settings with the budgets ``wanted`` (steps, updates; None: as it is) and the phases
    ``then`` after the others, also on disk.

    The run is then an unfinished one, its old budgets noted in config.json under ``earlier``.
    Schedules run over the new budget: a step size that had come down to nothing is up again.
    Raises Mistake for a budget that is not larger, and for that of a phase that has others after
    it, for by then they may have begun.
    """
    given = {name: value for name, value in wanted.items() if value is not None}
    asked: dict[str, Any] = {name: whole(name, value, 1) for name, value in given.items()}
    have = {name: getattr(settings, name) for name in BUDGETS}
    if asked and settings.phases:
        raise Mistake("the first phase of this run is over; add one: then='steps=N'")
    for name, value in asked.items():
        if not have[name]:
            known = " and ".join(f"{name} {each:,}" for name, each in have.items() if each)
            raise Mistake(f"this run has a budget of {known}, not of {name}; raise that")
        if value <= have[name]:
            raise Mistake(f"this run has {have[name]:,} {name} already; ask for more than that")
        if name == "updates" and settings.steps:
            raise Mistake("this run goes on from its log to the world; only its steps can be more")
    if not asked and not then:
        return settings
    longer = dataclasses.replace(settings, **asked, phases=settings.phases + then)
    check_budget(longer)
    changed = asked | {"phases": longer.to_json()["phases"]}
    with folder.lock(path):
        for each in (*sorted((path / "parts").glob("*")), path):
            if (each / "config.json").exists():
                _reopen(each, changed)
    return longer


def _reopen(path: Path, changed: dict[str, Any]) -> None:
    """Make a run's folder one of an unfinished run with these budgets and phases; killed in
    between, it is unfinished with the old ones."""
    config: dict[str, Any] = folder.read_config(path)
    folder.result(path).unlink(missing_ok=True)
    before = {name: config[name] for name in BUDGETS}
    config["earlier"] = [*config.get("earlier", []), before]
    folder.write_config(path, config | changed)
