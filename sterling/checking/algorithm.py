"""The review of an algorithm: its form, one update, whole runs."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from functools import partial
from typing import Any

from sterling import algorithms
from sterling.algorithms.outside import PARTS
from sterling.checking.batch import SPACES, problem
from sterling.checking.drawn import feed_checks
from sterling.checking.finding import Check, Finding, Unseen, Wrong, carry_out
from sterling.checking.small import small_fields
from sterling.checking.training import Trials, training_checks
from sterling.checking.update import Subject, update_checks
from sterling.needs import FRESH, REPLAY
from sterling.training.fields import make_config
from sterling.types import Mistake

TAKEN = {name: words.partition("(")[2].rstrip(")").split(", ") for name, words in PARTS.items()
         if "(" in words}  # fmt: skip
RUNS = "its updates and runs"
TYPES = ("float", "int", "bool", "str")


def check_algorithm(
    algorithm: Any, fields: dict[str, Any] | None = None, *, quick: bool = False
) -> Iterator[Finding]:
    """Yield what a review of an algorithm finds; ``fields`` are settings to check it with, beside
    small ones that it needs to be quick. Raises Mistake for what is no algorithm."""
    word = algorithms.word_of(algorithm)
    made: Any = algorithms.find(word)
    yield from carry_out(_form_checks(made))
    needs = made.needs(made.Config())
    if needs.speaks or needs.of_logs_only:
        kind = "texts" if needs.speaks else "a log"
        yield Finding(RUNS, "not checked", f"it learns from {kind}")
        return
    if getattr(made, "several_agents", False):
        yield Finding(RUNS, "not checked", "only those of one agent are; this is for several")
        return
    small = small_fields(made.Config, needs.of(FRESH), fields or {})
    config = make_config(made, small, str(word))
    given = word if word == algorithm else algorithm
    yield from carry_out(_behaviour(made, given, config, small, quick))


def _form_checks(made: Any) -> Iterator[Check]:
    yield "its Config", partial(_config, made.Config), made.Config
    for name in TAKEN:
        if hasattr(made, name):
            function = getattr(made, name)
            yield f"{PARTS[name]}", partial(_signature, name, function), function


def _config(config: Any) -> str:
    kinds = {name: field.type for name, field in config.__dataclass_fields__.items()}
    for name, kind in kinds.items():
        if kind.removesuffix(" | None") not in TYPES:
            raise Wrong(f"the field {name} is of type {kind}", f"use {', '.join(TYPES)}, "
                        "each also with `| None`")  # fmt: skip
        value = getattr(config(), name)
        if kind == "float" and not isinstance(value, (int, float)):
            raise Wrong(f"the field {name} is a float and its default is {value!r}")
    return f"{len(kinds)} fields"


def _signature(name: str, function: Any) -> str:
    wanted = TAKEN[name]
    try:
        inspect.signature(function).bind(*wanted)
    except TypeError as error:
        raise Wrong(f"{name} cannot be called with {', '.join(wanted)}: {error}",
                    f"write def {PARTS[name]}") from error  # fmt: skip
    return ""


def _behaviour(
    made: Any, word: Any, config: Any, fields: dict[str, Any], quick: bool
) -> Iterator[Check]:
    """The checks for each kind of actions that the algorithm takes."""
    refused: dict[str, str] = {}
    for form in SPACES:
        try:
            made.init(_key(), problem(form), config)
        except Mistake as mistake:
            refused[form] = str(mistake)
        except Exception as error:
            yield f"init ({form} actions)", partial(_raised, error), made.init
            refused[form] = ""
    for form, why in refused.items():
        if why:
            yield f"{form} actions", partial(_unseen, f"it refuses them: {why}"), made.init
    if len(refused) == len(SPACES):
        yield "it takes some kind of actions", partial(_no_form, refused), made.init
    for form in [form for form in SPACES if form not in refused]:
        if hasattr(made, "act") and _is_plain(made.needs(config)):
            yield from update_checks(Subject(made, config, form))
        else:
            for feed in made.needs(config).feeds:
                yield from feed_checks((made, word), fields, form, feed)
        trials = Trials(word, fields, made.needs(config), form)
        yield from training_checks(trials, made, quick)


def _is_plain(needs: Any) -> bool:
    """Whether a rollout, or rows of a replay, are all that is learned from: such batches are made
    by hand, with ends and cuts; others are drawn."""
    feed = needs.feeds[0]
    if needs.keep:
        return False
    return len(needs.feeds) == 1 and feed.of in (FRESH, REPLAY) and not (feed.length or feed.name)


def _raised(error: Exception) -> str:
    raise error


def _unseen(why: str) -> str:
    raise Unseen(why)


def _no_form(refused: dict[str, str]) -> str:
    raise Wrong("neither discrete nor continuous actions can be made", "; ".join(refused.values()))


def _key() -> Any:
    import jax

    return jax.random.key(0)
