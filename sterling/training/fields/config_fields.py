"""Check the fields and numbers of a run: names, types and ranges, before anything is built.

The range of a Config's field is declared with its type (see ``sterling/field_types.py``).
"""

from __future__ import annotations

import dataclasses
import itertools
import operator
from collections.abc import Collection, Iterable, Mapping
from typing import Any

from sterling.config_class import Rule, field_rules
from sterling.field_types import SIZES_TYPE, LayerSizes, OneOf, Within
from sterling.lookup.name_suggestions import did_you_mean
from sterling.lookup.peer_names import unknown_option
from sterling.statistics.scores.score_bounds import check_failed_score, parse_bounds
from sterling.types import Mistake

MAX_ITERATIONS = 2**31  # iterations are counted in signed 32-bit integers
SEED_LIMIT = 2**31  # seeds are signed 32-bit integers
MAX_SEEDS = 10_000  # of one run
MAX_EPISODES = 1_000_000  # of an evaluation, for each seed
MAX_EPISODE_STEPS = 10_000_000  # of an evaluation episode


def make_config(module: Any, fields: Mapping[str, Any], algorithm: str) -> Any:
    """Return the algorithm's Config with ``fields`` set.

    Raise Mistake for unknown names (all of them in one), values of a wrong type, and numbers out
    of range: an empty batch, a negative step size, a discount above 1.
    """
    kinds = {field.name: str(field.type) for field in dataclasses.fields(module.Config)}
    if wrong := [name for name in fields if name not in kinds]:
        raise Mistake("; ".join(_unknown_field(algorithm, x, fields[x], kinds) for x in wrong))
    rules, checked = field_rules(module.Config), {}
    for name, value in fields.items():
        checked[name] = _convert_type(algorithm, name, kinds[name], value)
        check_rule(algorithm, name, checked[name], rules.get(name, Within(endless=True)))
    return module.Config(**checked)


def _unknown_field(algorithm: str, name: str, value: Any, known: Collection[str]) -> str:
    near = unknown_option(name, known, value=repr(value), otherwise=f"it has {', '.join(known)}")
    return f"{algorithm} has no field {name!r}{near}"


def _convert_type(algorithm: str, name: str, kind: str, value: Any) -> Any:
    """Return ``value`` converted to the field's type; raise Mistake if it has another type."""
    if kind == SIZES_TYPE:  # config.json has a list
        return tuple(value) if isinstance(value, list) else value
    kind, *optional = kind.split(" | ")
    if optional and (value is None or str(value).lower() == "none"):  # TOML has no None
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


def check_rule(algorithm: str, name: str, value: Any, rule: Rule) -> None:
    """Raise :class:`Mistake` if a value violates its field's rule."""
    if isinstance(rule, OneOf):
        if value not in rule.words:
            near = did_you_mean(str(value), rule.words, f"use one of {', '.join(rule.words)}")
            raise Mistake(f"Unknown {name}={value!r} of {algorithm}{near}")
        return
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if isinstance(rule, LayerSizes):
        wanted = rule.unmet_requirement(value)
    else:
        wanted = rule.unmet_requirement(float(value)) if number else ""
    if wanted:
        raise Mistake(f"{algorithm}'s field {name} must be {wanted}; got {value!r}")


def check_layer_sizes(fields: Mapping[str, Any], algorithm: str) -> Mapping[str, Any]:
    """Return the fields that a user gave; raise Mistake if a list of layer sizes is among them
    together with a number of layers."""
    for name in fields:
        depth = name.removesuffix("width") + "depth"
        if name.endswith("width") and isinstance(fields[name], (list, tuple)) and depth in fields:
            sizes = ",".join(map(str, fields[name]))
            raise Mistake(
                f"{algorithm}: {name}={sizes} already says that there are {len(fields[name])} "
                f"hidden layers. Leave out {depth}."
            )
    return fields


def whole_number(name: str, value: Any, least: int = 0) -> int:
    """Return ``value`` as an int of at least ``least``; whole floats such as 1e6 are allowed."""
    fits = isinstance(value, float) and value.is_integer()
    try:
        found = int(value) if fits else operator.index(value)
    except TypeError as error:
        raise Mistake(f"{name} must be a whole number; got {value!r}") from error
    if found < least or isinstance(value, bool):
        raise Mistake(f"{name} must be a whole number of at least {least}; got {value!r}")
    return found


def episode_count(name: str, value: Any, least: int = 0) -> int:
    """Return the number of evaluation episodes for each seed, checked: at most a million."""
    found = whole_number(name, value, least)
    if found > MAX_EPISODES:
        raise Mistake(f"{name} must be at most {MAX_EPISODES:,} for each seed; got {found:,}")
    return found


def episode_step_limit(value: Any) -> int:
    """Return the checked number of steps after which an evaluation episode is cut."""
    found = whole_number("evaluate_limit", value, 1)
    if found > MAX_EPISODE_STEPS:
        raise Mistake(f"evaluate_limit must be at most {MAX_EPISODE_STEPS:,} steps; got {found:,}")
    return found


def seed_numbers(asked: Any) -> tuple[int, ...]:
    """Return the seeds: 0, 1, ... for a number, or the given ones. They are different signed 32-bit
    integers, at most ten thousand."""
    many = isinstance(asked, Iterable) and not isinstance(asked, str)
    given = asked if many else range(whole_number("seeds", asked, 1))
    listed = list(itertools.islice(given, MAX_SEEDS + 1))  # a range may have 2^31 numbers
    if len(listed) > MAX_SEEDS:
        raise Mistake(f"seeds={asked}: a run takes at most {MAX_SEEDS:,} seeds. Use fewer.")
    found = tuple(whole_number("a seed", seed, -SEED_LIMIT) for seed in listed)
    if not found or len(set(found)) != len(found) or max(found) >= SEED_LIMIT:
        raise Mistake(f"seeds must be at least one, all different, below 2^31; got {asked}")
    return found


def check_counts(rest: dict[str, Any]) -> dict[str, Any]:
    """Return a run's options with checked numbers: how often it is evaluated, logged and saved."""
    names = ("evaluate_every", "log_every")
    numbers = {name: whole_number(name, rest[name]) for name in names if name in rest}
    if "evaluate_episodes" in rest:
        number = episode_count("evaluate_episodes", rest["evaluate_episodes"])
        numbers["evaluate_episodes"] = number
    if "evaluate_limit" in rest:
        numbers["evaluate_limit"] = episode_step_limit(rest["evaluate_limit"])
    minutes = rest.get("checkpoint_minutes", 0.0)
    if isinstance(minutes, bool) or not isinstance(minutes, (int, float)) or not minutes >= 0:
        raise Mistake(f"checkpoint_minutes must be a number of at least 0; got {minutes!r}")
    return rest | numbers


def check_scoring(rest: dict[str, Any]) -> dict[str, Any]:
    """Return checked scoring options: bounds of returns, and what a failed seed counts as."""
    within = rest.get("return_within")
    return {
        "return_within": None if within is None else parse_bounds(within),
        "failed": check_failed_score(rest.get("failed")),
    }


def check_iteration_count(name: str, iterations: int) -> int:
    """Return the iterations of a run of algorithm ``name``; raise Mistake for 2^31 or more."""
    if iterations >= MAX_ITERATIONS:
        raise Mistake(f"{name} would make 2^31 iterations or more. Use fewer steps or updates.")
    return iterations
