"""The numbers of a run: names, types and what they may be, checked before anything is built.

A field's name means the same in every algorithm, so what it may be stands here once.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
import operator
from collections.abc import Iterable, Mapping
from typing import Any

from sterling.naming import hint
from sterling.nets.mlp import ACTIVATIONS
from sterling.statistics.declared import checked, checked_failed
from sterling.types import Mistake


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


AT_LEAST_ONE = _names(
    "batch capacity collect delay epochs flow_steps group heads horizon layers learn length limit"
    " members minibatch minibatches n_actions n_step prompts rounds subset target_period width"
)
POSITIVE = _names("cap clip dual huber max_grad_norm most target_kl temperature")
NOT_NEGATIVE = _names(
    "actor_lr actor_penalty again alpha beta centring critic_penalty depth desirable diversity"
    " entropy_coef exploration_noise kl_coef lag lr multiplier_lr noise_clip overlong penalty piece"
    " priority reset rise target_noise top_k turns undesirable value_coef value_lr warmup"
    " weight_decay"
)
SHARES = _names(
    "correction exploration_final exploration_fraction exploration_initial gae_lambda"
    " gamma lam smoothing tau"
)
PARTS = _names("top_p")
BETWEEN = _names("expectile weight")
ANY = _names("cost_limit high log_std low margin target target_entropy target_gap")
MOST_LAYERS = 1_000  # each is traced by itself: more take hours before anything is learned
MOST_ITERATIONS = 2**31  # they are counted in 32 bits, with a sign
SEEDS = 2**31  # they are numbers of 32 bits, with a sign
MOST_SEEDS = 10_000  # that one run takes
ENDLESS = _names("cap clip dual high huber low max_grad_norm most noise_clip target_kl")


def make_config(module: Any, fields: Mapping[str, Any], algorithm: str) -> Any:
    """The algorithm's Config with ``fields`` set.

    Raises Mistake for names that it has not, values of another type, and numbers that no run can
    use: batches of nothing, step sizes below 0, discounts above 1.
    """
    kinds = {field.name: str(field.type) for field in dataclasses.fields(module.Config)}
    checked = {}
    for name, value in fields.items():
        if name not in kinds:
            near = hint(name, kinds, f"it has {', '.join(kinds)}")
            raise Mistake(f"{algorithm} has no field {name!r}{near}")
        checked[name] = _typed(algorithm, name, kinds[name], value)
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
    wanted = _unmet(name, float(value)) if number else ""
    if wanted:
        raise Mistake(f"{algorithm}'s field {name} must be {wanted}; got {value!r}")
    if name == "activation" and value not in ACTIVATIONS:
        near = hint(value, ACTIVATIONS, f"use one of {', '.join(ACTIVATIONS)}")
        raise Mistake(f"{algorithm}'s activation {value!r} is not known{near}")
    return float(value) if kind == "float" else value


def _unmet(name: str, value: float) -> str:
    """What the field must be, where ``value`` is not."""
    if math.isnan(value) or (math.isinf(value) and name not in ENDLESS):
        return "a finite number"
    rules = (
        (AT_LEAST_ONE, value >= 1, "at least 1"),
        (_names("depth layers"), value <= MOST_LAYERS, f"at most {MOST_LAYERS:,}"),
        (POSITIVE, value > 0, "above 0"),
        (NOT_NEGATIVE, value >= 0, "0 or more"),
        (SHARES, 0 <= value <= 1, "between 0 and 1"),
        (PARTS, 0 < value <= 1, "above 0 and at most 1"),
        (BETWEEN, 0 < value < 1, "above 0 and below 1"),
    )
    return next((wanted for names, met, wanted in rules if name in names and not met), "")


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
