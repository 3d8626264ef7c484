"""The review of an algorithm: its functions and Config, one update, and whole runs."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from functools import partial
from typing import Any

from sterling import algorithms
from sterling.algorithms.user_algorithm import REQUIRED_PARTS
from sterling.checking.example_batch import ACTION_SPACES, make_spec
from sterling.checking.needed_batches import feed_checks
from sterling.checking.review_findings import (
    NOT_CHECKED,
    Check,
    CheckFailed,
    Finding,
    not_checked,
    run_checks,
    section_checks,
)
from sterling.checking.small_settings import small_fields
from sterling.checking.training_checks import TrainingRuns, training_checks
from sterling.checking.update_checks import Subject, update_checks
from sterling.field_types import SIZES_TYPE
from sterling.needs.feed import FRESH, REPLAY
from sterling.training.fields.config_fields import make_config
from sterling.types import Mistake

FORMS = {name: words for name, words in REQUIRED_PARTS.items() if "(" in words}
VALUE_WITH_MEMORY = "value(state, past, obs, key)"
RUN_CHECKS = "its updates and runs"
FIELD_TYPES = ("float", "int", "bool", "str")


def check_algorithm(
    algorithm: Any, fields: dict[str, Any] | None = None, *, quick: bool = False
) -> Iterator[Finding]:
    """Yield the findings of an algorithm's review.

    ``fields`` are settings to check it with, beside small ones that make the review quick. Raises
    Mistake if ``algorithm`` is no algorithm.
    """
    word = algorithms.reference_to(algorithm)
    module: Any = algorithms.find(word)
    yield from run_checks(_form_checks(module))
    try:
        needs = module.needs(module.Config())
    except Exception as error:
        yield from run_checks(iter([("needs(config)", partial(_raise, error), module.needs)]))
        yield Finding(RUN_CHECKS, NOT_CHECKED, "what it needs is not known")
        return
    if needs.speaks or needs.only_from_logs:
        kind = "texts" if needs.speaks else "a log"
        yield Finding(RUN_CHECKS, NOT_CHECKED, f"only for online learning; it learns from {kind}")
        return
    if getattr(module, "several_agents", False):
        yield Finding(RUN_CHECKS, NOT_CHECKED, "only for one agent; this algorithm is for several")
        return
    small = small_fields(module.Config, needs.has_feed(FRESH), fields or {})
    config = make_config(module, small, str(word))
    given = word if word == algorithm else algorithm
    yield from run_checks(_behaviour_checks(module, given, config, small, quick))


def _form_checks(module: Any) -> Iterator[Check]:
    yield "its Config", partial(_check_config, module.Config), module.Config
    forms = {**FORMS, "value": VALUE_WITH_MEMORY} if hasattr(module, "recall") else FORMS
    for name, form in forms.items():
        if hasattr(module, name):
            function = getattr(module, name)
            yield form, partial(_check_signature, form, function), function


def _check_config(config: Any) -> str:
    kinds = {name: field.type for name, field in config.__dataclass_fields__.items()}
    for name, kind in kinds.items():
        if kind.removesuffix(" | None") not in (*FIELD_TYPES, SIZES_TYPE):
            raise CheckFailed(
                f"the field {name} has the type {kind}",
                f"use {', '.join(FIELD_TYPES)}, each also with `| None`, or {SIZES_TYPE}",
            )
        value = getattr(config(), name)
        if kind == "float" and not isinstance(value, (int, float)):
            raise CheckFailed(f"the field {name} is a float, but its default is {value!r}")
    return f"{len(kinds)} fields"


def _check_signature(form: str, function: Any) -> str:
    name, _, arguments = form.partition("(")
    wanted = arguments.rstrip(")").split(", ")
    try:
        inspect.signature(function).bind(*wanted)
    except TypeError as error:
        raise CheckFailed(
            f"{name} cannot be called with {', '.join(wanted)}: {error}",
            f"write def {form}",
        ) from error
    return ""


def _behaviour_checks(
    module: Any, word: Any, config: Any, fields: dict[str, Any], quick: bool
) -> Iterator[Check]:
    """Yield the checks for each kind of actions that the algorithm supports."""
    unsupported: dict[str, str] = {}
    for form in ACTION_SPACES:
        try:
            module.init(_init_key(), make_spec(form), config)
        except Mistake as mistake:
            unsupported[form] = str(mistake)
        except Exception as error:
            yield f"init ({form} actions)", partial(_raise, error), module.init
            unsupported[form] = ""
    for form, why in unsupported.items():
        if why:
            yield (
                f"{form} actions",
                partial(not_checked, f"it does not support them: {why}"),
                module.init,
            )
    if len(unsupported) == len(ACTION_SPACES):
        yield (
            "it supports discrete or continuous actions",
            partial(_no_action_kind, unsupported),
            module.init,
        )
    for form in [form for form in ACTION_SPACES if form not in unsupported]:
        named = (module, word)
        update, runs = f"one update ({form} actions)", f"whole runs ({form} actions)"
        yield from section_checks(update, partial(_update_checks, named, config, fields, form))
        yield from section_checks(runs, partial(_run_checks, named, config, fields, form, quick))


def _update_checks(
    named: tuple[Any, Any], config: Any, fields: dict[str, Any], form: str
) -> Iterator[Check]:
    """Yield the checks of one update, on batches made by hand or drawn from a short run; ``named``:
    the algorithm, and the word that names it."""
    module = named[0]
    if hasattr(module, "act") and _has_simple_batches(module.needs(config)):
        yield from update_checks(Subject(module, config, form))
        return
    why = "its batches come from a run, so only its updates and whole runs are checked"
    yield f"act by itself ({form} actions)", partial(not_checked, why), module.init
    for feed in module.needs(config).feeds:
        yield from feed_checks(named, fields, form, feed)


def _run_checks(
    named: tuple[Any, Any], config: Any, fields: dict[str, Any], form: str, quick: bool
) -> Iterator[Check]:
    module, word = named
    runs = TrainingRuns(word, fields, module.needs(config), form)
    yield from training_checks(runs, module, quick)


def _has_simple_batches(needs: Any) -> bool:
    """Whether the algorithm learns only from a rollout or from single rows of a replay.

    Such batches are made by hand, with ends and truncations; others are drawn from a run.
    """
    feed = needs.feeds[0]
    if needs.keep:
        return False
    return len(needs.feeds) == 1 and feed.of in (FRESH, REPLAY) and not (feed.length or feed.name)


def _raise(error: Exception) -> str:
    raise error


def _no_action_kind(unsupported: dict[str, str]) -> str:
    raise CheckFailed(
        "init fails for discrete and for continuous actions", "; ".join(unsupported.values())
    )


def _init_key() -> Any:
    import jax

    return jax.random.key(0)
