"""Extend a run: a larger budget, further phases, or other conditions that stop it."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from gymnasium.spaces import Discrete

from sterling.data.space_json import space_from_json
from sterling.envs.env_options import with_final
from sterling.lookup.name_suggestions import did_you_mean
from sterling.training.config import user_code_words
from sterling.training.config.evaluation_interval import with_evaluation_interval
from sterling.training.config.resolve_settings import check_phase_fields, check_settings
from sterling.training.config.run_options import BUDGETS, Phase
from sterling.training.config.settings import Settings
from sterling.training.config.stop_options import NO_STOP, STOP_OPTIONS, parse_stop_options
from sterling.training.fields.config_fields import whole_number
from sterling.training.saving import run_folder
from sterling.types import Mistake


def extend_budget(
    path: Path,
    settings: Settings,
    then: tuple[Phase, ...] = (),
    stops: Mapping[str, Any] | None = None,
    environment: Any = "",
    *,
    env_options: Mapping[str, Any] | None = None,
    **wanted: int | None,
) -> Settings:
    """Return the settings with the budgets ``wanted`` (steps, updates; None: unchanged), with the
    further phases ``then`` and the stop conditions ``stops``, and write them to the run folder.

    ``steps`` of a run that only learns from a dataset continue it online, in ``environment`` ("":
    that of the run, whose options stay; another one has ``env_options``), with the same share of
    the dataset as if both budgets had been given at once.

    The run is unfinished from then on; config.json holds the old budgets under ``earlier``.
    Schedules are stretched to the new budget: a learning rate that had decayed to 0 rises again.
    A run that stopped early goes on, without its conditions if there is a new budget or phase.
    Raise Mistake for a budget that is not larger (an unfinished run's own is no change), and for
    the budget of a phase before another one, which may have begun.
    """
    result = run_folder.read_result(path)
    stopped = (result or {}).get("stopped")
    if result is None:  # the budget that an unfinished run has: the command was given before
        wanted = {k: None if v == getattr(settings, k) else v for k, v in wanted.items()}
    asked = _larger_budgets(settings, wanted, result if stopped else None)
    online = "steps" in asked and only_learns_from_log(settings)
    _check_online(settings, environment, online)
    changed_stops = _changed_stops(stops or {})
    if not asked and not then and not changed_stops:
        return settings
    if result is not None and not stopped and not asked and not then:
        raise Mistake(f"{path} is finished. Give a larger budget too, as steps=N (--steps N).")
    if stopped and (asked or then):
        changed_stops = NO_STOP | changed_stops
    if online and environment not in ("", settings.environment):
        # the dataset is named again, because a phase in another world drops it
        options = with_final(environment, dict(env_options or {}), True)
        then = (Phase(asked.pop("steps"), 0, environment, options, data=settings.data), *then)
    last = {"continued_from": stopped["iteration"]} if stopped else {}
    longer = dataclasses.replace(
        settings, **asked, **changed_stops, **last, phases=settings.phases + then
    )
    longer = with_evaluation_interval(longer)
    check_settings(longer)
    if then:
        check_phase_fields(longer)
    names = (*asked, *changed_stops, *last, "phases", "evaluate_every")
    changed = {name: longer.to_json()[name] for name in names}
    _reopen_parts(path, changed)
    return longer


def online_environment(path: Path, environment: Any) -> Any:
    """Return the environment in which a run that only learned from a dataset shall act; "" if none
    is given, or it is given because the run could not store its own."""
    plain = run_folder.read_config(path)
    offline = plain.get("updates") and not plain["steps"] and not plain.get("phases")
    if environment is None or not offline or plain.get("custom_environment"):
        return ""
    return user_code_words.environment_reference(environment)


def only_learns_from_log(settings: Settings) -> bool:
    """Whether a run has updates from a dataset and no steps, in no phase."""
    return bool(settings.updates and not settings.steps and settings.data) and not settings.phases


def _check_online(settings: Settings, environment: Any, online: bool) -> None:
    """Raise Mistake if the run cannot continue online; ``online``: it is asked to."""
    if environment and not online:
        raise Mistake("environment is where a run that learned from a dataset alone acts: add "
                      "steps=N. For a further phase in another world, use then.")  # fmt: skip
    if online and settings.spaces and not isinstance(_action_space(settings), Discrete):
        raise Mistake("this run's dataset names no environment, so its agents act between the "
                      "smallest and the largest logged actions. Train with --environment ENV, then "
                      "extend that run.")  # fmt: skip


def _action_space(settings: Settings) -> Any:
    assert settings.spaces is not None
    return space_from_json(settings.spaces["action"], "spaces.action")


def _larger_budgets(
    settings: Settings, wanted: Mapping[str, int | None], stopped: dict[str, Any] | None
) -> dict[str, Any]:
    """Return the budgets that are given, checked; ``stopped``: the result of a run that stopped
    early, whose budget only has to be larger than what it has done."""
    given = {name: value for name, value in wanted.items() if value is not None}
    asked: dict[str, Any] = {name: whole_number(name, value, 1) for name, value in given.items()}
    have = {name: getattr(settings, name) for name in BUDGETS}
    if asked and settings.phases:
        raise Mistake("only the last phase of a run can be extended. Add a phase: then='steps=N'.")
    for name, value in asked.items():
        if name == "steps" and only_learns_from_log(settings):
            continue
        if not have[name]:
            known = next(each for each in have if have[each])
            raise Mistake(f"this run has {have[known]:,} {known}, not {name}. Extend its {known}.")
        done = have[name] if stopped is None else stopped.get(name, 0)
        if value <= done:
            raise Mistake(f"this run already has {done:,} {name}. Ask for more.")
        if name == "updates" and settings.steps:
            raise Mistake("the offline phase of this run is over. Extend its steps instead.")
    return asked


def _changed_stops(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the stop conditions that are given, checked; "off" removes one."""
    for name in given:
        if name not in STOP_OPTIONS:
            near = did_you_mean(name, STOP_OPTIONS, f"there are {', '.join(STOP_OPTIONS)}")
            raise Mistake(f"resume has no option {name!r}{near}")
    return parse_stop_options({name: value for name, value in given.items() if value is not None})


def _reopen_parts(path: Path, changed: dict[str, Any]) -> None:
    """Mark a run and the parts that its processes have as unfinished, with new settings."""
    with run_folder.lock(path):
        for each in (*sorted((path / "parts").glob("*")), path):
            if (each / "config.json").exists():
                _reopen(each, changed)


def _reopen(path: Path, changed: dict[str, Any]) -> None:
    """Mark a run as unfinished and write its new budgets, phases and stop conditions. If the
    process is killed in between, the run is unfinished with the old ones."""
    config: dict[str, Any] = run_folder.read_config(path)
    run_folder.result_path(path).unlink(missing_ok=True)
    before = {name: config[name] for name in BUDGETS}
    config["earlier"] = [*config.get("earlier", []), before]
    run_folder.write_config(path, config | changed)
