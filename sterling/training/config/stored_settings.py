"""Read a run's settings from its config.json, and check it: users may have edited it."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

from sterling.envs.env_options import check_whole_number
from sterling.lookup.name_suggestions import did_you_mean
from sterling.system.shown_values import short_text, shown_value
from sterling.training.config import user_code_words
from sterling.training.config.resolve_settings import check_settings
from sterling.training.config.run_options import (
    BUDGETS,
    Guidance,
    InitSettings,
    LanguageSettings,
    LogSettings,
    Phase,
    with_current_names,
)
from sterling.training.config.settings import Settings
from sterling.training.saving import run_folder
from sterling.types import Mistake

FIELD_TYPES: dict[str, tuple[Any, str]] = {  # JSON types by the type of a dataclass's field
    "str": (str, "text"),
    "bool": (bool, "true or false"),
    "int": (int, "a whole number"),
    "float": ((int, float), "a number"),
    "float | None": ((int, float, type(None)), "a number, or null"),
    "Any": ((str, dict), "a name"),
    "dict[str, Any]": (dict, "an object"),
    "dict[str, int]": (dict, "an object of whole numbers"),
    "dict[str, float]": (dict, "an object of numbers"),
    "dict[str, Any] | None": ((dict, type(None)), "an object, or null"),
    "tuple[Phase, ...]": (list, "a list of objects"),
    "InitSettings | None": ((dict, type(None)), "an object, or null"),
    "LogSettings | None": ((dict, type(None)), "an object, or null"),
}
NUMBER_TYPES = ("int", "float", "float | None")  # of fields that Settings.from_json checks
CONFIG_KINDS: dict[str, tuple[Any, str]] = {
    **{
        field.name: FIELD_TYPES[str(field.type)]
        for field in dataclasses.fields(Settings)
        if str(field.type) in FIELD_TYPES and str(field.type) not in NUMBER_TYPES
    },
    "algorithm": (str, "a name, as ppo"),
    "environment": (str, "a name"),
    "config": (dict, "an object of fields"),
    "seeds": ((list, int), "a list of whole numbers"),
    "strategy": (str, "map, vmap or processes"),
    "context": (int, "a whole number"),
    "continued_from": (int, "a whole number"),
    "spaces": ((dict, type(None)), "an object with obs and action, or null"),
    "custom_environment": (bool, "true or false"),
    "custom_algorithm": (bool, "true or false"),
    "code": (dict, "an object of hashes"),
    "earlier": (list, "a list of budgets"),
}
NESTED_SETTINGS: dict[str, Any] = {
    "data": LogSettings,
    "guide": Guidance,
    "init": InitSettings,
    "speech": LanguageSettings,
}


def read_settings(path: Path, environment: Any = None, algorithm: Any = None) -> Settings:
    """Read a run's settings from its folder. ``environment`` and ``algorithm``: the user's objects,
    if they could not be stored. A notice names source files that have changed.

    Raise :class:`Mistake`, naming the file and the field, for a value that cannot be used.
    """
    given = user_code_words.given_references(environment, algorithm)
    plain = run_folder.read_config(path)
    if isinstance(plain.get("speech"), dict):
        plain["speech"] = with_current_names(plain["speech"])
    try:
        check_config_json(plain)
        settings = Settings.from_json(plain, **given)
        check_settings(settings)
    except Mistake as error:
        said = f"{path / 'config.json'}: {error}"
        if not user_code_words.uses_own_code(plain, given):
            said = f"{said.removesuffix('.')}. Undo what was edited there."
        raise Mistake(said) from error
    user_code_words.warn_of_changes(plain)
    return settings


def check_config_json(plain: dict[str, Any]) -> None:
    """Raise :class:`Mistake` if a value in a config.json has a wrong type."""
    for name, (kinds, wanted) in CONFIG_KINDS.items():
        if name in plain:
            _check_kind(name, plain[name], kinds, wanted)
    for name, value in plain.get("online", {}).items():
        _check_kind(f"online.{name}", value, (int, float, str), "a number, or a schedule")
    for name in BUDGETS:
        _check_kind(name, plain.get(name, 0), (int, float), "a whole number")
    for name, made in NESTED_SETTINGS.items():
        if plain.get(name) is not None:
            _check_part(name, plain[name], made)
    for number, phase in enumerate(plain.get("phases", ())):
        _check_part(f"phases.{number}", phase, Phase)
        if phase.get("data") is not None:
            _check_part(f"phases.{number}.data", phase["data"], LogSettings)
    if plain.get("spaces") is not None:
        _check_spaces(plain["spaces"])


def _check_kind(name: str, value: Any, kinds: Any, wanted: str) -> None:
    truth = isinstance(value, bool) and kinds is not bool
    if truth or not isinstance(value, kinds):
        raise Mistake(f"{name} must be {wanted}; got {shown_value(value)}")


def _check_part(name: str, value: Any, made: Any) -> None:
    """Raise Mistake unless a JSON object has the fields of the class ``made``, with their types."""
    _check_kind(name, value, dict, "an object, or null")
    fields = {field.name: field for field in dataclasses.fields(made)}
    for key, each in value.items():
        if key not in fields:
            near = did_you_mean(key, fields, f"there are {', '.join(fields)}")
            raise Mistake(f"{name} has no field {shown_value(key)}{near}")
        _check_kind(f"{name}.{key}", each, *FIELD_TYPES[str(fields[key].type)])
    needed = [key for key, field in fields.items() if field.default is dataclasses.MISSING]
    if lacking := [key for key in needed if key not in value]:
        raise Mistake(f"{name} lacks {', '.join(lacking)}")


def _check_spaces(value: dict[str, Any]) -> None:
    from sterling.data.space_json import space_from_json

    for name in ("obs", "action"):
        try:
            space_from_json(value[name], f"spaces.{name}")
        except Mistake:
            raise
        except Exception as error:  # NumPy or Gymnasium may raise anything for invalid bounds
            why = short_text(f"{type(error).__name__}: {error}")
            raise Mistake(f"spaces.{name} is not a space ({why})") from error
    if value.get("limit") is not None:
        check_whole_number("spaces.limit", value["limit"], 1)
