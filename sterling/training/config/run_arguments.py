"""The arguments of a run, as ``sterling.train`` takes them: all names, and what each of them sets.

The command line, Python and files of settings have the same names.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from sterling import algorithms
from sterling.envs.make_world import option_names
from sterling.lookup import user_imports
from sterling.lookup.peer_names import unknown_option
from sterling.system.mistake import Mistake
from sterling.training.config.config_file import env_arguments, with_config_file
from sterling.training.config.option_checks import teacher_guidance
from sterling.training.config.run_options import Guidance, LanguageSettings
from sterling.training.config.settings import Settings

COMPUTED = (
    *("config", "speech", "spaces", "context", "phases", "schedules"),
    "continued_from",
)  # settings that are no arguments
SETTINGS_ARGUMENTS = tuple(
    each.name for each in dataclasses.fields(Settings) if each.name not in COMPUTED
)
SPEECH_OPTIONS = tuple(each.name for each in dataclasses.fields(LanguageSettings))
FILES = ("algorithm", "environment")  # which may be named by a file, also as a Path
LOG_OPTIONS = ("share", "top", "sampling", "unchecked")
GUIDE_OPTIONS = ("guiding", "guide_steps")  # and teacher, which is an option of language runs too
OUTPUT_OPTIONS = ("tensorboard", "wandb", "quiet")
TRAIN_ARGUMENTS = (  # all but the fields of the Config and the options of the environment
    *SETTINGS_ARGUMENTS,
    *("preset", "then", "out"),
    *(*LOG_OPTIONS, *GUIDE_OPTIONS, *SPEECH_OPTIONS, *OUTPUT_OPTIONS),
)

UNSTORED_ARGUMENTS = ("config", "env", "sinks", "callbacks")  # arguments of ``train``, too


def train_arguments(config: str | Path | None, given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments of a run: those given, and below them those of the file ``config``.

    Raise Mistake for two names of one argument, without an algorithm, and for a name in the file
    that is none of the run's.
    """
    named = {
        name: os.fspath(value) if name in FILES and isinstance(value, os.PathLike) else value
        for name, value in given.items()
    }
    if "env" in named:
        if "env_options" in named:
            raise Mistake("env and env_options are the same argument. Leave one out.")
        named["env_options"] = env_arguments(named.pop("env"))
    made = with_config_file(config, named)
    if "algorithm" not in made:
        raise Mistake(
            "algorithm must be a name, as 'ppo', a file or an algorithm; got None. Give ALGORITHM "
            "and ENVIRONMENT, or a file that names them: --config FILE."
        )
    if config is not None:
        _check_file_names(config, made, named)
    return _with_guidance(made)


def _check_file_names(
    config: str | Path, made: Mapping[str, Any], given: Mapping[str, Any]
) -> None:
    """Raise one Mistake for all names of the file that are neither an argument, nor a field of the
    algorithm, nor an option of the environment."""
    fields = config_names(made["algorithm"])
    own = [name for name in made if name not in (*TRAIN_ARGUMENTS, *fields, *given)]
    options = environment_option_names(made.get("environment")) if own else set()
    known = (*fields, *TRAIN_ARGUMENTS, *(options or ()))
    wrong = [
        f"unknown key {name!r}" + unknown_option(name, known, value=str(made[name]))
        for name in own
        if options is None or name not in options
    ]
    if wrong:
        raise Mistake(f"{config}: " + "; ".join(wrong))


def _with_guidance(made: dict[str, Any]) -> dict[str, Any]:
    """Return the arguments with the guide as one object; raise Mistake for its options alone."""
    own = {"how": made.pop("guiding", None), "steps": made.pop("guide_steps", None)}
    how = {name: value for name, value in own.items() if value is not None}
    teacher = made.pop("teacher", None)
    if isinstance(teacher, (str, os.PathLike)) and _trains_language_model(made["algorithm"]):
        made["teacher"], teacher = os.fspath(teacher), None
    made["guide"] = guide = teacher_guidance(teacher, made.get("guide"))
    if how and guide is None:
        raise Mistake("--guiding and --guide-steps need a guide. Add --guide FOLDER.")
    if isinstance(guide, Guidance):
        made["guide"] = dataclasses.replace(guide, **how)
    elif isinstance(guide, (str, os.PathLike)):
        made["guide"] = Guidance(str(Path(guide).expanduser().resolve()), **how)
    return made


def _trains_language_model(algorithm: Any) -> bool:
    module: Any = algorithms.find(algorithms.reference_to(algorithm))
    return bool(module.needs(module.Config()).speaks)


def config_names(algorithm: Any) -> list[str]:
    """Return the names of the fields of an algorithm's Config."""
    module = algorithms.find(algorithms.reference_to(algorithm))
    return [field.name for field in dataclasses.fields(module.Config)]


def environment_option_names(environment: Any) -> set[str] | None:
    """Return the options of an environment; none where there is no such environment, and None if
    they cannot be known."""
    if not environment:
        return set()
    try:
        return option_names(environment)
    except Mistake:
        return set()  # the run itself says what is wrong with its environment


def check_field_names(algorithm: str, fields: Iterable[str]) -> None:
    """Raise Mistake for a field of a Config that is named like an argument of every run, which is
    never the field's."""
    for name in fields:
        if name in (*TRAIN_ARGUMENTS, *UNSTORED_ARGUMENTS):
            raise Mistake(
                f"{algorithm}: the Config has a field {name!r}, which is an argument of every run. "
                "Rename the field."
            )


def sort_options(
    algorithm: Any, environment: Any, options: Mapping[str, Any], others: Iterable[str] = ()
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return which of the options are fields of the algorithm's Config, and which are options of
    the environment. A name that is both is a field.

    Raise one Mistake for all names that are neither, with the nearest ones; ``others``:
    further names that may be meant.
    """
    fields = config_names(algorithm)
    title = user_imports.short_name(algorithms.reference_to(algorithm))
    check_field_names(title, fields)
    own = {name: value for name, value in options.items() if name in fields}
    left = {name: value for name, value in options.items() if name not in fields}
    known = environment_option_names(environment) if left else set()
    names, wrong = [*fields, *others, *(known or ())], []
    for name in (name for name in left if known is None or name not in known):
        has = f"it has {', '.join(fields)}"
        if known is None:
            has += f". If it is an option of the environment, write env_options={{{name!r}: ...}}"
        near = unknown_option(name, names, value=repr(left[name]), otherwise=has)
        wrong.append(f"{title} has no field {name!r}{near}")
    if wrong:
        raise Mistake("; ".join(wrong))
    return own, left


def join_env_options(given: Any, more: Mapping[str, Any]) -> dict[str, Any]:
    """Return the environment's options, given together and by their own names; raise Mistake for
    one that is given in both ways."""
    together = dict(given or {})
    if both := [name for name in more if name in together]:
        raise Mistake(f"{both[0]} is given twice, also in env_options. Leave one out.")
    return {**together, **more}
