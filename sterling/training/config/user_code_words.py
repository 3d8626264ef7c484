"""User code in config.json: how a run's own algorithm and environment are stored, and which of
them must be given again when the run is loaded."""

from __future__ import annotations

import functools
import os
from collections.abc import Iterable
from typing import Any

from sterling import algorithms
from sterling.algorithms.user_algorithm import InMemoryAlgorithm
from sterling.lookup import user_imports
from sterling.lookup.factory_names import factory_name
from sterling.nets.encoding import encoder_choice
from sterling.system.terminal_messages import print_notice
from sterling.types import Mistake

_FILE_REMEDY = "put it into a file and name that, as {} (docs/extending.md)"
REMEDIES = {
    "algorithm": _FILE_REMEDY.format("my_algorithm.py"),
    "environment": _FILE_REMEDY.format("my_world.py:make"),
}


def environment_reference(environment: Any) -> Any:
    """Return how settings hold an environment: a name unchanged, a reference with an absolute path,
    an object as its reference if it has one, otherwise the object itself."""
    if isinstance(environment, str):
        return user_imports.absolute_reference(environment)
    return user_imports.reference_to(environment) or environment


def to_json(algorithm: str, environment: Any, files: Iterable[str] = ()) -> dict[str, Any]:
    """Return config.json's entries of a run's algorithm and environment: their names, whether they
    must be given again, and the hashes of all source files of user code."""
    custom = not isinstance(environment, str)
    words = [algorithm, *files] if custom else [algorithm, environment, *files]
    return {
        "algorithm": str(algorithm),
        "environment": factory_name(environment) if custom else environment,
        "custom_algorithm": isinstance(algorithm, InMemoryAlgorithm),
        "custom_environment": custom,
        "code": user_imports.source_hashes(words),
    }


def given_references(environment: Any, algorithm: Any) -> dict[str, Any]:
    """Return the references of an environment and algorithm that are given again with a stored run;
    None for one that is not given. Raise Mistake for an object that is not an algorithm."""
    return {
        "environment": None if environment is None else environment_reference(environment),
        "algorithm": None if algorithm is None else algorithms.reference_to(algorithm),
    }


def from_json(plain: dict[str, Any], environment: Any, algorithm: Any) -> dict[str, Any]:
    """Return a stored run's ``algorithm`` and ``environment``; those that are given again replace
    what could not be stored, or what is imported from a file.

    Raise Mistake if one is missing, or is given although the run stores it by a listed name.
    """
    given = given_references(environment, algorithm)
    return {name: _choose_reference(name, plain, thing) for name, thing in given.items()}


def uses_own_code(plain: dict[str, Any], given: dict[str, Any]) -> bool:
    """Whether a stored run or study uses user code, or is given some again. If so, a mismatch may
    be caused by that code, and not by an edited config.json."""
    code, parts = plain.get("code"), ("algorithm", "environment")
    custom = any(plain.get(f"custom_{name}") is True or given[name] is not None for name in parts)
    return custom or (isinstance(code, dict) and bool(code))


def _choose_reference(name: str, plain: dict[str, Any], thing: Any) -> Any:
    stored = plain[name]
    if plain.get(f"custom_{name}"):
        if thing is None:
            what = {"algorithm": "the algorithm", "environment": "the environment factory"}[name]
            raise Mistake(
                f"this run used {what} {stored!r}, which is not stored. In Python, pass it to "
                f"sterling.load or sterling.resume as {name}=...; for the command line, "
                + REMEDIES[name]
            )
    elif thing is None:
        return stored
    elif not user_imports.is_reference(stored):
        raise Mistake(f"this run's {name} is stored as {stored!r}. Leave {name} out.")
    return thing


def warn_of_changes(plain: dict[str, Any]) -> None:
    """Print a notice of the run's source files, and of its judge's folder, that have changed since
    it began."""
    before = plain.get("code") or {}
    now = user_imports.source_hashes(before)
    changed = [place for place, digest in before.items() if now.get(place) not in (None, digest)]
    models = [place for place in changed if os.path.isdir(place)]
    for kind, places in (("code", [x for x in changed if x not in models]), ("model", models)):
        if places:
            which = ", ".join(places)
            _say_once(f"{which} has changed since the run began; the new {kind} is used")


@functools.cache  # the parts of a run are loaded one by one, with the same notice
def _say_once(line: str) -> None:
    print_notice(line)


def check_can_be_stored(settings: Any) -> None:
    """Raise Mistake for an encoder or a judge that a run folder cannot name."""
    encoder_choice.check_can_be_stored(settings.encoder)
    if settings.speech is not None and settings.speech.judge:
        from sterling.language.worlds import judged_questions

        judged_questions.check_can_be_stored(settings.speech.judge)


def warn_of_unstored(plain: dict[str, Any]) -> None:
    """Print a notice of objects that must be given again to load or resume a new run."""
    again = [name for name in ("algorithm", "environment") if plain.get(f"custom_{name}")]
    if again:
        which = " and ".join(f"{plain[name]} ({name}=...)" for name in again)
        print_notice(
            f"{which} cannot be imported: pass it again to sterling.load and sterling.resume; or "
            + REMEDIES[again[0]]
        )
