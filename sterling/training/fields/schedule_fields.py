"""Schedules given as the values of a Config's float fields: find them, and check their values."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from sterling import algorithms, schedule_words
from sterling.config_class import field_rules
from sterling.field_types import Within
from sterling.lookup import user_imports
from sterling.schedule_words import REMEDY, LostFunction
from sterling.schedules import KINDS, Function, Schedule
from sterling.system.shown_values import short_text, shown_value
from sterling.system.terminal_messages import print_notice
from sterling.training.fields.config_fields import check_rule
from sterling.types import Mistake

FLOAT_KINDS = ("float", "float | None")
CHECKED_POINTS = 1001  # progress values at which a function's values are checked
ANNEAL, ANNEALED = "anneal", "lr"  # the switch of algorithms that anneal the learning rate


@dataclasses.dataclass(frozen=True)
class SplitFields:
    """Fields with plain values: those with a schedule have its first value."""

    numbers: dict[str, Any]
    schedules: dict[str, Function]
    replaces_anneal: bool = False  # whether ``anneal`` would be on without a schedule


def split_fields(module: Any, algorithm: str, fields: Mapping[str, Any]) -> SplitFields:
    """Return the fields' plain values, and the schedules among them.

    Raise :class:`Mistake` for words that are no schedule, for values that the field cannot have,
    and for a schedule of a field that is not a float.
    """
    kinds = {field.name: str(field.type) for field in dataclasses.fields(module.Config)}
    floats = {name: value for name, value in fields.items() if kinds.get(name) in FLOAT_KINDS}
    words = {name: x for name, x in floats.items() if isinstance(x, str) or callable(x)}
    given = {name: x for name, x in words.items() if not _is_none(kinds[name], x)}
    for name in fields.keys() - given.keys():
        _check_not_scheduled(algorithm, name, kinds.get(name, ""), fields[name])
    found: dict[str, Function] = {}
    for name, value in given.items():
        try:
            found[name] = schedule_words.from_value(value)
        except Mistake as error:
            raise Mistake(f"{name}: {error}") from error
        _check_values(algorithm, name, field_rules(module.Config).get(name), found[name])
    known = {name: each for name, each in found.items() if not isinstance(each, LostFunction)}
    numbers = {name: _known_values(function)[0][1] for name, function in known.items()}
    return SplitFields({**fields, **numbers}, found)


def _is_none(kind: str, value: Any) -> bool:
    """Whether a value is the word for None, of a field that may be None."""
    return value == "none" and kind.endswith("| None")


def split_with_anneal(
    module: Any, algorithm: str, fields: Mapping[str, Any], given: Mapping[str, Any]
) -> SplitFields:
    """Return the same, with ``anneal`` off if the learning rate has a schedule: the schedule alone
    determines it. Raise :class:`Mistake` if ``given``, what the user set, has ``anneal`` on."""
    found = split_fields(module, algorithm, fields)
    usual = {field.name: field.default for field in dataclasses.fields(module.Config)}
    if ANNEALED not in found.schedules or ANNEAL not in usual:
        return found
    if given.get(ANNEAL):
        raise Mistake(
            f"{ANNEALED} has a schedule, and {ANNEAL} would multiply it by another. Leave one out."
        )
    was_on = bool(fields.get(ANNEAL, usual[ANNEAL]))
    return SplitFields({**found.numbers, ANNEAL: False}, found.schedules, was_on)


def say_anneal_is_off(algorithm: str, found: SplitFields) -> None:
    """Print a notice if the schedule of the learning rate takes the place of ``anneal``."""
    if found.replaces_anneal:
        print_notice(f"{algorithm}: {ANNEALED} follows its schedule, and {ANNEAL} is off")


def check_needs(module: Any, algorithm: str, config: Any, found: Mapping[str, Function]) -> None:
    """Raise :class:`Mistake` for a schedule of a field that also determines how batches are made,
    which is the same during a phase (such as ``gamma`` in n-step returns)."""
    before = module.needs(config)
    for name, function in found.items():
        for _, value in _known_values(function):
            if module.needs(dataclasses.replace(config, **{name: value})) != before:
                raise Mistake(
                    f"{algorithm} makes its batches with {name}, which stays the same during a "
                    f"phase here. Give {name} one value, or change it in a further phase (then)."
                )


def warn_of_functions(found: Mapping[str, Function]) -> None:
    """Print a notice of functions that must be given again to resume a new run."""
    for name, function in found.items():
        if isinstance(schedule_words.describe(function), dict):
            print_notice(
                f"the schedule of {name} is a function that cannot be imported: pass it again to "
                f"sterling.resume (schedules={{{name!r}: ...}}); or {REMEDY}"
            )


def given_again(
    algorithm: str, stored: Mapping[str, Function], given: Mapping[str, Any]
) -> dict[str, Function]:
    """Return a stored run's schedules, with the functions ``given`` again in place of those that
    were not stored. Raise :class:`Mistake` for any other field."""
    lost = {name for name, function in stored.items() if isinstance(function, LostFunction)}
    if wrong := sorted(given.keys() - lost):
        raise Mistake(f"this run's schedules are stored; leave out {', '.join(wrong)}")
    module: Any = algorithms.find(algorithm)
    split = split_fields(module, user_imports.short_name(algorithm), given)
    if plain := sorted(given.keys() - split.schedules.keys()):
        raise Mistake(
            f"schedules must be functions of the progress; got {shown_value(given[plain[0]])}"
        )
    return {**stored, **split.schedules}


def check_all_given(found: Mapping[str, Function]) -> None:
    """Raise :class:`Mistake` if a schedule was a function that is not stored."""
    for name, function in found.items():
        if isinstance(function, LostFunction):
            raise Mistake(
                f"the schedule of {name} was the function {function.name!r}, which is not stored. "
                f"Pass it again: sterling.resume(PATH, schedules={{{name!r}: FUNCTION}}); or "
                f"{REMEDY}."
            )


def _check_not_scheduled(algorithm: str, name: str, kind: str, value: Any) -> None:
    """Raise :class:`Mistake` for a schedule of a field that is a whole number or a switch."""
    words = isinstance(value, str) and value.partition(":")[0] in KINDS and ":" in value
    plain = kind.removesuffix(" | None")
    if plain in ("int", "bool") and (words or callable(value)):
        what = {"int": "a whole number", "bool": "a switch"}[plain]
        raise Mistake(f"{algorithm}'s field {name} is {what}; only float fields have schedules")


def _check_values(algorithm: str, name: str, rule: Any, function: Function) -> None:
    if isinstance(function, LostFunction):
        return
    for progress, value in _known_values(function):
        try:
            check_rule(algorithm, name, value, rule or Within(endless=True))
        except Mistake as error:
            raise Mistake(f"{error} at progress {progress:g}") from error


def _known_values(function: Function) -> list[tuple[float, float]]:
    """Return pairs of progress and value, the first at progress 0: for a schedule of words those
    that all others lie between, for any other function a fine grid."""
    if isinstance(function, Schedule):
        return function.corners()
    progress = np.linspace(0.0, 1.0, CHECKED_POINTS, dtype=np.float32)
    try:
        one = jax.jit(lambda x: jnp.asarray(function(x), jnp.float32).reshape(()))
        values = jax.vmap(one)(progress)
    except Mistake:
        raise
    except Exception as error:
        why = short_text(f"{type(error).__name__}: {error}")
        raise Mistake(
            "a schedule must be a function of one number, the progress, that JAX can trace and "
            f"that returns one number ({why})"
        ) from error
    return [(float(x), float(y)) for x, y in zip(progress, np.asarray(values), strict=True)]
