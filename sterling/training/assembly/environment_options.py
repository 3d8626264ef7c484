"""Change the options of a stopped run's environment, as ``resume --env max_failures=1000`` does."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from sterling.envs.hosted.worker_pool import WorldFailed
from sterling.envs.summaries import absolute_options
from sterling.training.assembly.build_run import make_world
from sterling.training.assembly.run_dataset import are_spaces_alike
from sterling.training.config.extend_budget import extend_budget
from sterling.training.config.resolve_settings import check_settings
from sterling.training.config.settings import Settings
from sterling.training.phases.phase_sequence import plan_phases, saved_phase
from sterling.training.saving import checkpoint, run_folder
from sterling.types import Mistake, Spec


def check_unfinished(path: Path, is_extended: bool) -> None:
    """Raise Mistake for a finished run, unless ``is_extended``: nothing would be trained."""
    if run_folder.read_result(path) is not None and not is_extended:
        raise Mistake(f"{path} is finished. Give a larger budget too, as steps=N (--steps N).")


def with_environment_options(path: Path, settings: Settings, given: Mapping[str, Any]) -> Settings:
    """Return the settings with options of the environment in which the run in ``path`` goes on.

    The options that are not ``given`` stay. Raises :class:`Mistake` for unknown options and values,
    and for those that would change what agents observe or do.
    """
    reached = _reached_phase(path, settings)
    changed = _replace_options(settings, reached, given)
    check_settings(changed)
    before, after = (plan_phases(each)[reached].settings for each in (settings, changed))
    _check_same_problem(before, after, ", ".join(given))
    return changed


def write_environment_options(path: Path, settings: Settings) -> None:
    """Write the options into the config.json of a run, and of the parts that its processes have."""
    plain = settings.to_json()
    with run_folder.lock(path):
        for each in (*sorted((path / "parts").glob("*")), path):
            if (each / "config.json").exists():
                config = run_folder.read_config(each)
                own = {name: plain[name] for name in ("env_options", "phases")}
                run_folder.write_config(each, config | own)


def _reached_phase(path: Path, settings: Settings) -> int:
    """Return the phase in which the run was saved last, from 0 on."""
    for each in (path, *sorted((path / "parts").glob("*"))):
        if newest := checkpoint.newest_valid(run_folder.checkpoints_path(each)):
            return saved_phase(checkpoint.read_meta(newest)["meta"], settings)
    return 0


def _replace_options(settings: Settings, reached: int, given: Mapping[str, Any]) -> Settings:
    """Return the settings with the options of the phase that is ``reached``. Where it inherits its
    environment, they are those of the phase that names it: a phase that gets options of its own
    would begin with a new source."""
    given = absolute_options(given)
    begun = max(0, reached - bool(settings.updates and settings.steps))
    phases = list(settings.phases)
    for number in range(begun - 1, -1, -1):
        own = phases[number]
        if own.environment or own.env_options:
            phases[number] = dataclasses.replace(own, env_options={**own.env_options, **given})
            return dataclasses.replace(settings, phases=tuple(phases))
    return dataclasses.replace(settings, env_options={**settings.env_options, **given})


def _check_same_problem(before: Settings, after: Settings, names: str) -> None:
    """Raise Mistake if the environment with its new options cannot be made, or gives agents another
    problem. Where the old one cannot be made any more, nothing is compared."""
    new = _world_spec(after)
    try:
        old = _world_spec(before)
    except (Mistake, WorldFailed):
        return
    alike = are_spaces_alike(old.obs, new.obs) and are_spaces_alike(old.action, new.action)
    if not alike or tuple(old.channels) != tuple(new.channels):
        raise Mistake(
            f"{names} would change what the agents of this run observe, do or are told "
            f"({new.obs}, {new.action}). Leave it out, or train anew."
        )


def _world_spec(settings: Settings) -> Spec:
    world = make_world(dataclasses.replace(settings, seeds=settings.seeds[:1]), "evaluate", 1)
    world.close()
    return world.spec


def extend_run(
    path: Path, settings: Settings, online: Any, env: dict[str, Any], more: dict[str, Any]
) -> Settings:
    """Return a run's settings with the budgets, stop conditions and phases in ``more``, and with
    the options ``env`` of the environment in which it goes on, all written to its folder."""
    elsewhere = online not in ("", settings.environment)  # they are those of a new environment
    if not env or elsewhere:
        return extend_budget(path, settings, environment=online, env_options=env, **more)
    check_unfinished(path, any(more.values()))
    settings = with_environment_options(path, settings, env)
    settings = extend_budget(path, settings, environment=online, **more)
    write_environment_options(path, settings)
    return settings
