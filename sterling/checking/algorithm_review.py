"""The review of an algorithm: its functions and Config, one update, and whole runs."""

from __future__ import annotations

import dataclasses
import inspect
import tempfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from sterling import algorithms
from sterling.algorithms.strict_algorithm import StrictAlgorithm
from sterling.algorithms.user_algorithm import REQUIRED_PARTS
from sterling.checking.example_batch import ACTION_SPACES
from sterling.checking.needed_batches import first_subjects
from sterling.checking.planner_checks import planner_checks
from sterling.checking.problems.checked_problem import (
    Problem,
    asks_random_log,
    declared_settings,
    names_place,
    problem_label,
)
from sterling.checking.problems.made_problems import (
    TASKS,
    complete_problem,
    has_known_answers,
    made_problems,
)
from sterling.checking.problems.small_settings import small_fields
from sterling.checking.review_findings import (
    NOT_CHECKED,
    Check,
    CheckFailed,
    Finding,
    fail_section,
    run_checks,
    section_checks,
)
from sterling.checking.training_checks import TrainingRuns, answer_checks, comparison_checks
from sterling.checking.trial_checks import adapt_checks, memory_checks
from sterling.checking.update_checks import Subject, may_learn_from_rewards, update_checks
from sterling.field_types import SIZES_TYPE
from sterling.needs.feed import FRESH, LABELS, REPLAY
from sterling.training.fields.config_fields import make_config
from sterling.types import Mistake

FORMS = {name: words for name, words in REQUIRED_PARTS.items() if "(" in words}
FORMS |= {
    "prior": "prior(state, obs, key, explore)",
    "held_out_metrics": "held_out_metrics(state, batch)",
}
FORMS_WITH_MEMORY = {
    "prior": "prior(state, past, obs, key, explore)",
    "value": "value(state, past, obs, key)",
}
RUN_CHECKS = "its updates and runs"
FIELD_TYPES = ("float", "int", "bool", "str")


class Named(NamedTuple):
    """An algorithm and how it is reviewed."""

    module: Any
    word: Any  # the word that names it, or the object
    fields: dict[str, Any]  # of its Config
    config: Any
    needs: Any
    quick: bool


def check_algorithm(
    algorithm: Any,
    fields: dict[str, Any] | None = None,
    *,
    environment: Any = None,
    data: Any = None,
    quick: bool = False,
    **options: Any,
) -> Iterator[Finding]:
    """Yield the findings of an algorithm's review.

    Args:
        algorithm: a name, file, module or object, as for :func:`sterling.train`.
        fields: settings to check it with, beside small ones that make the review quick.
        environment: check it in this world, not on probes.
        data: check it on this log; "random" is one of random actions in ``environment``, or
            on probes; those that learn from logs only get one without being asked.
        quick: leave out most probes.
        **options: further arguments of :func:`sterling.train`, such as ``env_options``.

    What is not given is taken from the algorithm's dict ``checked_in``, if it has one: arguments of
    :func:`sterling.train`, settings among them. Raises Mistake if ``algorithm`` is no algorithm, or
    refuses the world or log that is named.
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
    if needs.speaks:
        why = "only for online learning and logs; it learns from texts"
        yield Finding(RUN_CHECKS, NOT_CHECKED, why)
        return
    where = {"environment": environment, "data": data, **options}
    own, given = declared_settings(module, fields or {}, where)
    small = small_fields(module.Config, needs.has_feed(FRESH), own)
    config = make_config(module, small, str(word))
    named = word if word == algorithm else algorithm
    asked = Named(module, named, small, config, module.needs(config), quick)
    yield from run_checks(_behaviour_checks(asked, given))


def _form_checks(module: Any) -> Iterator[Check]:
    yield "its Config", partial(_check_config, module.Config), module.Config
    forms = FORMS | FORMS_WITH_MEMORY if hasattr(module, "recall") else FORMS
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


def _behaviour_checks(named: Named, given: dict[str, Any]) -> Iterator[Check]:
    """Yield the checks on the problem that is ``given``, or else for each kind of actions that the
    algorithm supports."""
    if names_place(given):
        yield from _problem_checks(named, given, problem_label(given))
        return
    refused: dict[str, str] = {}
    made = made_problems(named.module, named.needs, asks_random_log(given))
    for form, problem in made.items():
        try:
            yield from _problem_checks(named, {**problem, **given}, f"{form} actions", form)
        except Mistake as mistake:
            refused[form] = str(mistake)
            what = f"it supports {form} actions, or says that it does not"
            yield what, partial(str, mistake), named.module.init
    if len(refused) == len(ACTION_SPACES):
        what = "it supports discrete or continuous actions"
        yield what, partial(_no_action_kind, refused), named.module.init


def _problem_checks(
    named: Named, options: dict[str, Any], label: str, form: str = ""
) -> Iterator[Check]:
    """Yield the checks of acting, updates and runs on one problem; with a ``form`` of actions the
    first batches may be made up. Raises Mistake if the algorithm refuses the problem in words."""
    with tempfile.TemporaryDirectory() as folder:
        options = complete_problem(options, named.needs, Path(folder))
        problem = Problem(named.word, named.fields, options, label, named.needs.beside_log)
        subjects: list[Any] = []
        try:
            subjects = _begin(named, problem, form)
        except Mistake:
            raise
        except (Exception, SystemExit) as error:
            yield f"one update ({label})", partial(fail_section, error), named.module.init
        yield from update_checks(subjects, f" ({label})")
        if subjects:
            yield from planner_checks(subjects[0], f" ({label})")
            yield from memory_checks(subjects[0], f" ({label})")
        if named.needs.adapt:
            hidden = {"environment": TASKS[form]} if form else {}
            tasks = dataclasses.replace(problem, options=options | hidden)
            adapts = partial(adapt_checks, tasks, f" ({label})")
            yield from section_checks(f"adaptation ({label})", adapts)
        runs = partial(_run_checks, named, problem, bool(form), subjects)
        yield from section_checks(f"whole runs ({label})", runs)


def _begin(named: Named, problem: Problem, form: str) -> list[Any]:
    """Return what is updated once: by batches made by hand if they can be, else by those of the
    first iteration of a run."""
    probe = form and has_known_answers(problem.options) and hasattr(named.module, "act")
    if probe and _has_simple_batches(named.needs):
        return [Subject(StrictAlgorithm(named.module), named.config, form)]
    return first_subjects(problem)


def _run_checks(named: Named, problem: Problem, made: bool, subjects: list[Any]) -> Iterator[Check]:
    """Yield the checks of runs that must be equal, and on probes, for an algorithm that learns from
    rewards or from labels of them, of known answers."""
    runs = TrainingRuns(problem, named.needs)
    yield from comparison_checks(runs, named.module)
    taught = named.needs.has_feed(LABELS) or may_learn_from_rewards(subjects)
    if made and has_known_answers(problem.options) and taught:
        yield from answer_checks(runs, named.module, named.quick)


def _has_simple_batches(needs: Any) -> bool:
    """Whether the algorithm learns only from a rollout or from single rows of a replay.

    Such batches are made by hand, with ends and truncations; others are drawn from a run.
    """
    feed = needs.feeds[0]
    if needs.keep or needs.adapt or feed.beside or (needs.has_feed(FRESH) and needs.collect == 1):
        return False
    return len(needs.feeds) == 1 and feed.of in (FRESH, REPLAY) and not (feed.length or feed.name)


def _raise(error: Exception) -> str:
    raise error


def _no_action_kind(unsupported: dict[str, str]) -> str:
    raise CheckFailed(
        "init fails for discrete and for continuous actions", "; ".join(unsupported.values())
    )
