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
from sterling.algorithms.user_algorithm import REQUIRED_PARTS
from sterling.checking.example_batch import ACTION_SPACES, make_spec
from sterling.checking.needed_batches import FirstIteration, problem_checks
from sterling.checking.problems.checked_problem import (
    Problem,
    declared_problem,
    problem_label,
    small_number_of_envs,
)
from sterling.checking.problems.random_log import write_random_log
from sterling.checking.review_findings import (
    NOT_CHECKED,
    Check,
    CheckFailed,
    Finding,
    run_checks,
    section_checks,
)
from sterling.checking.small_settings import small_fields
from sterling.checking.training_checks import (
    NAME_SUFFIXES,
    TrainingRuns,
    comparison_checks,
    training_checks,
)
from sterling.checking.update_checks import Subject, update_checks
from sterling.field_types import SIZES_TYPE
from sterling.needs.feed import FRESH, REPLAY
from sterling.training.fields.config_fields import make_config
from sterling.types import Mistake

FORMS = {name: words for name, words in REQUIRED_PARTS.items() if "(" in words}
VALUE_WITH_MEMORY = "value(state, past, obs, key)"
RUN_CHECKS = "its updates and runs"
RANDOM_LOG = "random"  # the word for a log that the check makes
PROBE_ENVS = 8
MADE_PROBLEMS: dict[str, dict[str, dict[str, Any]]] = {  # of those that no probe suits
    "team": {
        "discrete": {"environment": "probe:limits-team"},
        "continuous": {"environment": "probe:limits-continuous-team"},
    },
    "goals": {
        "discrete": {"environment": "probe:goals", "data": RANDOM_LOG},
        "continuous": {"environment": "probe:goals-continuous", "data": RANDOM_LOG},
    },
    "log": {
        "discrete": {"environment": "probe:limits", "data": RANDOM_LOG},
        "continuous": {"environment": "probe:limits-continuous", "data": RANDOM_LOG},
    },
}
FIELD_TYPES = ("float", "int", "bool", "str")


class Named(NamedTuple):
    """An algorithm, the word that names it, its fields, and whether the review is a quick one."""

    module: Any
    word: Any
    fields: dict[str, Any]
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
        data: check it on this log; "random" is one that is made by random actions in
            ``environment``, a world of Tasks.
        quick: leave out most probes.
        **options: further arguments of :func:`sterling.train`, such as ``env_options``.

    What is not given is taken from the algorithm's dict ``checked_in``, if it has one. Raises
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
    if needs.speaks:
        why = "only for online learning and logs; it learns from texts"
        yield Finding(RUN_CHECKS, NOT_CHECKED, why)
        return
    small = small_fields(module.Config, needs.has_feed(FRESH), fields or {})
    config = make_config(module, small, str(word))
    named = Named(module, word if word == algorithm else algorithm, small, quick)
    given = declared_problem(module, {"environment": environment, "data": data, **options})
    with tempfile.TemporaryDirectory() as folder:
        yield from run_checks(_behaviour_checks(named, config, given, Path(folder)))


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
    named: Named, config: Any, given: dict[str, Any], folder: Path
) -> Iterator[Check]:
    """Yield the checks on the problem that is ``given``, or for each kind of actions that the
    algorithm supports; ``folder``: for logs that are made."""
    needs = named.module.needs(config)
    if given:
        options = {"envs": small_number_of_envs(needs), **given}
        yield from _problem_checks(named, options, problem_label(given), folder)
        return
    kind = _problem_kind(named.module, needs)
    refused: dict[str, str] = {}
    for form in ACTION_SPACES:
        if kind:
            options = {"envs": small_number_of_envs(needs), **MADE_PROBLEMS[kind][form]}
            checks = _problem_checks(named, options, f"{form} actions", folder, refused)
        else:
            checks = _form_of_actions_checks(named, config, form, refused)
        yield from checks
    if len(refused) == len(ACTION_SPACES):
        what = "it supports discrete or continuous actions"
        yield what, partial(_no_action_kind, refused), named.module.init


def _form_of_actions_checks(
    named: Named, config: Any, form: str, refused: dict[str, str]
) -> Iterator[Check]:
    """Yield the checks with made-up observations and probes, for one kind of actions; a kind that
    ``init`` refuses is noted in ``refused``."""
    module = named.module
    envs = small_number_of_envs(module.needs(config))
    try:
        module.init(_init_key(), make_spec(form, envs), config)
    except Mistake as mistake:
        refused[form] = str(mistake)
        yield _refusal(form, mistake, module)
        return
    except Exception as error:
        refused[form] = ""
        yield f"init ({form} actions)", partial(_raise, error), module.init
        return
    label = f"{form} actions"
    options = {"environment": f"probe:both{NAME_SUFFIXES[form]}", "envs": envs}
    problem = Problem(named.word, named.fields, options, label)
    if hasattr(module, "act") and _has_simple_batches(module.needs(config)):
        checks = partial(_simple_update_checks, module, config, form)
    else:
        checks = partial(_drawn_update_checks, problem)
    yield from section_checks(f"one update ({label})", checks)
    of_runs = dataclasses.replace(problem, options={**options, "envs": max(envs, PROBE_ENVS)})
    runs = TrainingRuns(of_runs if envs > 1 else problem, module.needs(config), NAME_SUFFIXES[form])
    yield from section_checks(
        f"whole runs ({label})", partial(training_checks, runs, module, named.quick)
    )


def _simple_update_checks(module: Any, config: Any, form: str) -> Iterator[Check]:
    yield from update_checks(Subject(module, config, form))


def _drawn_update_checks(problem: Problem) -> Iterator[Check]:
    yield from problem_checks(problem, FirstIteration(problem))


def _problem_checks(
    named: Named,
    options: dict[str, Any],
    label: str,
    folder: Path,
    refused: dict[str, str] | None = None,
) -> Iterator[Check]:
    """Yield the checks of acting, updates and short runs on one problem. One that the algorithm
    refuses is noted in ``refused``; without it that is a failure."""
    if options.get("data") == RANDOM_LOG:
        options = {**options, "data": write_random_log(options["environment"], folder)}
    if options.get("data") is not None:
        options = {name: value for name, value in options.items() if name != "envs"}
    problem = Problem(named.word, named.fields, options, label)
    try:
        begun = FirstIteration(problem)
    except Mistake as mistake:
        if refused is None:
            raise
        refused[label.split(maxsplit=1)[0]] = str(mistake)
        yield _refusal(label.split(maxsplit=1)[0], mistake, named.module)
        return
    except Exception as error:
        yield f"its first iteration ({label})", partial(_raise, error), named.module.init
        return
    yield from section_checks(f"one update ({label})", partial(problem_checks, problem, begun))
    runs = TrainingRuns(problem, begun.needs)
    yield from section_checks(
        f"whole runs ({label})", partial(comparison_checks, runs, named.module)
    )


def _problem_kind(module: Any, needs: Any) -> str:
    """Return which of ``MADE_PROBLEMS`` an algorithm is checked on; "" for the probes."""
    if getattr(module, "several_agents", False):
        return "team"
    if any(feed.goals for feed in needs.feeds):
        return "goals"
    return "log" if needs.only_from_logs else ""


def _refusal(form: str, mistake: Mistake, module: Any) -> Check:
    """Return the check that holds for a kind of actions that the algorithm refuses in words."""
    return (
        f"it supports {form} actions, or says that it does not",
        lambda: str(mistake),
        module.init,
    )


def _has_simple_batches(needs: Any) -> bool:
    """Whether the algorithm learns only from a rollout or from single rows of a replay.

    Such batches are made by hand, with ends and truncations; others are drawn from a run.
    """
    feed = needs.feeds[0]
    if needs.keep or needs.adapt or (needs.has_feed(FRESH) and needs.collect == 1):
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
