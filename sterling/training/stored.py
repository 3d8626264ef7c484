"""Read a run's settings back from its config.json, which somebody may have edited."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

from sterling.naming import hint
from sterling.training import folder, outside
from sterling.training.choices import BUDGETS, Guidance, Logbook, Phase, Speech
from sterling.training.settings import Settings, check_budget
from sterling.types import Mistake

FIELDS: dict[str, tuple[Any, str]] = {  # by the type of a dataclass's field
    "str": (str, "text"),
    "bool": (bool, "true or false"),
    "int": (int, "a whole number"),
    "float": ((int, float), "a number"),
    "Any": ((str, dict), "a name"),
    "dict[str, Any]": (dict, "an object"),
    "dict[str, float]": (dict, "an object of numbers"),
    "dict[str, Any] | None": ((dict, type(None)), "an object, or null"),
    "tuple[Phase, ...]": (list, "a list of objects"),
    "Logbook | None": ((dict, type(None)), "an object, or null"),
}
COUNTED = ("int", "float")  # fields whose numbers Settings.from_json checks itself
KINDS: dict[str, tuple[Any, str]] = {
    **{
        field.name: FIELDS[str(field.type)]
        for field in dataclasses.fields(Settings)
        if str(field.type) in FIELDS and str(field.type) not in COUNTED
    },
    "algorithm": (str, "a name, as ppo"),
    "environment": (str, "a name"),
    "config": (dict, "an object of fields"),
    "seeds": ((list, int), "a list of whole numbers"),
    "strategy": (str, "map, vmap or processes"),
    "context": (int, "a whole number"),
    "spaces": ((dict, type(None)), "an object with obs and action, or null"),
    "custom_environment": (bool, "true or false"),
    "custom_algorithm": (bool, "true or false"),
    "code": (dict, "an object of hashes"),
    "earlier": (list, "a list of budgets"),
}
PARTS: dict[str, Any] = {"data": Logbook, "guide": Guidance, "speech": Speech}


def read_settings(path: Path, environment: Any = None, algorithm: Any = None) -> Settings:
    """A run's settings from its folder; ``environment`` and ``algorithm``: the user's own, where
    they could not be stored. Source files that have changed are named in a line.

    Raises :class:`Mistake`, naming the file and the field, where a value cannot be used.
    """
    given = outside.given_again(environment, algorithm)
    plain = folder.read_config(path)
    try:
        check_plain(plain)
        settings = Settings.from_json(plain, **given)
        check_budget(settings)
    except Mistake as error:
        undo = "" if outside.is_own(plain, given) else "; undo what was edited there"
        raise Mistake(f"{path / 'config.json'}: {error}{undo}") from error
    outside.warn_of_changes(plain)
    return settings


def check_plain(plain: dict[str, Any]) -> None:
    """Raise :class:`Mistake` where a value of a config.json is not of the kind that is written."""
    for name, (kinds, wanted) in KINDS.items():
        if name in plain:
            _check_kind(name, plain[name], kinds, wanted)
    for name, value in plain.get("online", {}).items():
        _check_kind(f"online.{name}", value, (int, float), "a number")
    for name in BUDGETS:
        _check_kind(name, plain.get(name, 0), (int, float), "a whole number")
    for name, made in PARTS.items():
        if plain.get(name) is not None:
            _check_part(name, plain[name], made)
    for number, phase in enumerate(plain.get("phases", ())):
        _check_part(f"phases.{number}", phase, Phase)
        if phase.get("data") is not None:
            _check_part(f"phases.{number}.data", phase["data"], Logbook)
    if plain.get("spaces") is not None:
        _check_spaces(plain["spaces"])


def _check_kind(name: str, value: Any, kinds: Any, wanted: str) -> None:
    truth = isinstance(value, bool) and kinds is not bool
    if truth or not isinstance(value, kinds):
        raise Mistake(f"{name} must be {wanted}; got {value!r:.60}")


def _check_part(name: str, value: Any, made: Any) -> None:
    """Whether an object has the fields of ``made``, each of its type."""
    _check_kind(name, value, dict, "an object, or null")
    fields = {field.name: field for field in dataclasses.fields(made)}
    for key, each in value.items():
        if key not in fields:
            near = hint(key, fields, f"there are {', '.join(fields)}")
            raise Mistake(f"{name} has no field {key!r:.60}{near}")
        _check_kind(f"{name}.{key}", each, *FIELDS[str(fields[key].type)])
    needed = [key for key, field in fields.items() if field.default is dataclasses.MISSING]
    if lacking := [key for key in needed if key not in value]:
        raise Mistake(f"{name} lacks {', '.join(lacking)}")


def _check_spaces(value: dict[str, Any]) -> None:
    from sterling.data.spaces import from_json

    for name in ("obs", "action"):
        try:
            from_json(value[name], f"spaces.{name}")
        except Mistake:
            raise
        except Exception as error:  # whatever NumPy or Gymnasium say of such bounds and shapes
            why = " ".join(f"{type(error).__name__}: {error}".split())[:120]
            raise Mistake(f"spaces.{name} is not a space ({why})") from error
