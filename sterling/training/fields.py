"""The numbers of a run: names, types and what they may be, checked before anything is built.

What a Config's field may be stands where it is declared (see ``sterling/field_types.py``).
"""

from __future__ import annotations

import dataclasses
import itertools
import operator
from collections.abc import Iterable, Mapping
from typing import Any

from sterling.config_class import rules_of
from sterling.field_types import OneOf, Within
from sterling.naming import hint
from sterling.statistics.declared import checked, checked_failed
from sterling.types import Mistake

MOST_ITERATIONS = 2**31  # they are counted in 32 bits, with a sign
SEEDS = 2**31  # they are numbers of 32 bits, with a sign
MOST_SEEDS = 10_000  # that one run takes
MOST_EPISODES = 1_000_000  # of an evaluation, for each seed
MOST_STEPS = 10_000_000  # of an episode of an evaluation


def make_config(module: Any, fields: Mapping[str, Any], algorithm: str) -> Any:
    """The algorithm's Config with ``fields`` set.

    Raises Mistake for names that it has not, values of another type, and numbers that no run can
    use: batches of nothing, step sizes below 0, discounts above 1.
    """
    kinds = {field.name: str(field.type) for field in dataclasses.fields(module.Config)}
    rules, checked = rules_of(module.Config), {}
    for name, value in fields.items():
        if name not in kinds:
            near = hint(name, kinds, f"it has {', '.join(kinds)}")
            raise Mistake(f"{algorithm} has no field {name!r}{near}")
        checked[name] = _typed(algorithm, name, kinds[name], value)
        _check_rule(algorithm, name, checked[name], rules.get(name, Within(endless=True)))
    return module.Config(**checked)


def _typed(algorithm: str, name: str, kind: str, value: Any) -> Any:
    """``value`` as the field's type."""
    kind, *optional = kind.split(" | ")
    if value is None and optional:
        return None
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    right = {
        "float": number,
        "int": number and isinstance(value, int),
        "bool": isinstance(value, bool),
        "str": isinstance(value, str),
    }
    if not right.get(kind, True):
        raise Mistake(f"{algorithm}'s field {name} must be of type {kind}; got {value!r}")
    return float(value) if kind == "float" else value


def _check_rule(algorithm: str, name: str, value: Any, rule: Within | OneOf) -> None:
    """Raise :class:`Mistake` where a value is not what its field's declaration says."""
    if isinstance(rule, OneOf):
        if value not in rule.words:
            near = hint(str(value), rule.words, f"use one of {', '.join(rule.words)}")
            raise Mistake(f"{algorithm}'s {name} {value!r} is not known{near}")
        return
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    wanted = rule.unmet(float(value)) if number else ""
    if wanted:
        raise Mistake(f"{algorithm}'s field {name} must be {wanted}; got {value!r}")


def whole(name: str, value: Any, least: int = 0) -> int:
    """``value`` as a whole number, of at least ``least``; 1e6 is one."""
    fits = isinstance(value, float) and value.is_integer()
    try:
        found = int(value) if fits else operator.index(value)
    except TypeError as error:
        raise Mistake(f"{name} must be a whole number; got {value!r}") from error
    if found < least or isinstance(value, bool):
        raise Mistake(f"{name} must be a whole number of at least {least}; got {value!r}")
    return found


def number_of_episodes(name: str, value: Any, least: int = 0) -> int:
    """How many episodes an evaluation plays for each seed: at most a million."""
    found = whole(name, value, least)
    if found > MOST_EPISODES:
        raise Mistake(f"{name} is at most {MOST_EPISODES:,} for each seed; got {found:,}")
    return found


def limit_of_episodes(value: Any) -> int:
    """The steps after which an episode of an evaluation counts as it stands."""
    found = whole("evaluate_limit", value, 1)
    if found > MOST_STEPS:
        raise Mistake(f"evaluate_limit is at most {MOST_STEPS:,} steps; got {found:,}")
    return found


def seeds_of(asked: Any) -> tuple[int, ...]:
    """How many seeds, from 0 on, or which ones: whole numbers of 32 bits, all different; at most
    ten thousand of them."""
    many = isinstance(asked, Iterable) and not isinstance(asked, str)
    given = asked if many else range(whole("seeds", asked, 1))
    listed = list(itertools.islice(given, MOST_SEEDS + 1))  # never all of 2^31
    if len(listed) > MOST_SEEDS:
        raise Mistake(f"one run takes at most {MOST_SEEDS:,} seeds; got {asked}; ask for fewer")
    found = tuple(whole("a seed", seed, -SEEDS) for seed in listed)
    if not found or len(set(found)) != len(found) or max(found) >= SEEDS:
        raise Mistake(f"seeds must be at least one, all different, below 2^31; got {asked}")
    return found


def counted(rest: dict[str, Any]) -> dict[str, Any]:
    """Options of a run with their numbers checked: how often it is evaluated, logged and saved."""
    names = ("evaluate_every", "log_every")
    numbers = {name: whole(name, rest[name]) for name in names if name in rest}
    if "evaluate_episodes" in rest:
        number = number_of_episodes("evaluate_episodes", rest["evaluate_episodes"])
        numbers["evaluate_episodes"] = number
    if "evaluate_limit" in rest:
        numbers["evaluate_limit"] = limit_of_episodes(rest["evaluate_limit"])
    minutes = rest.get("checkpoint_minutes", 0.0)
    if isinstance(minutes, bool) or not isinstance(minutes, (int, float)) or not minutes >= 0:
        raise Mistake(f"checkpoint_minutes must be a number of at least 0; got {minutes!r}")
    return rest | numbers


def judged(rest: dict[str, Any]) -> dict[str, Any]:
    """How returns are judged, checked: their bounds, and what a failed seed counts as."""
    within = rest.get("return_within")
    return {
        "return_within": None if within is None else checked(within),
        "failed": checked_failed(rest.get("failed")),
    }


def countable(name: str, iterations: int) -> int:
    """The iterations of a run of the algorithm ``name``; Mistake for more than a run can count."""
    if iterations >= MOST_ITERATIONS:
        raise Mistake(f"{name} would make 2^31 iterations or more; ask for fewer steps or updates")
    return iterations
