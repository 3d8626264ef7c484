"""A run's algorithm and environment where they come from outside: how config.json holds them, and
what must be given again when a run is loaded."""

from __future__ import annotations

import functools
from collections.abc import Iterable
from typing import Any

from sterling import algorithms, importing
from sterling.algorithms.outside import Given
from sterling.naming import called
from sterling.notice import say
from sterling.types import Mistake

_FILE = "put it into a file and name that, as {} (docs/extending.md)"
NAMED = {
    "algorithm": _FILE.format("my_algorithm.py"),
    "environment": _FILE.format("my_world.py:make"),
}


def word_of_environment(environment: Any) -> Any:
    """Return the word for an environment: a name as it is, a reference with an absolute path, and
    for an object its reference where it has one, else the object itself."""
    if isinstance(environment, str):
        place = importing.split(environment)[0]
        return importing.absolute(environment) if place.endswith(importing.SUFFIX) else environment
    return importing.word_of(environment) or environment


def to_json(algorithm: str, environment: Any, files: Iterable[str] = ()) -> dict[str, Any]:
    """Return what config.json says of a run's algorithm and environment: their words, whether they
    must be given again, and the hashes of the files that they, and other parts, come from."""
    custom = not isinstance(environment, str)
    words = [algorithm, *files] if custom else [algorithm, environment, *files]
    return {
        "algorithm": str(algorithm),
        "environment": called(environment) if custom else environment,
        "custom_algorithm": isinstance(algorithm, Given),
        "custom_environment": custom,
        "code": importing.hashes(words),
    }


def given_again(environment: Any, algorithm: Any) -> dict[str, Any]:
    """Return the words for what is given again with a stored run, None where nothing is. Raises
    Mistake for what is no algorithm."""
    return {
        "environment": None if environment is None else word_of_environment(environment),
        "algorithm": None if algorithm is None else algorithms.word_of(algorithm),
    }


def from_json(plain: dict[str, Any], environment: Any, algorithm: Any) -> dict[str, Any]:
    """Return a stored run's ``algorithm`` and ``environment``, with those that were given again in
    place of what could not be stored; what can be imported may be replaced as well.

    Raises Mistake where one is missing, or is given although the run has it by its listed name.
    """
    given = given_again(environment, algorithm)
    return {name: _word(name, plain, thing) for name, thing in given.items()}


def is_own(plain: dict[str, Any], given: dict[str, Any]) -> bool:
    """Return whether a stored run or study rests on a user's own code, or is given some again: what
    does not fit may then be that code, and the file as it was written."""
    code, parts = plain.get("code"), ("algorithm", "environment")
    custom = any(plain.get(f"custom_{name}") is True or given[name] is not None for name in parts)
    return custom or (isinstance(code, dict) and bool(code))


def _word(name: str, plain: dict[str, Any], thing: Any) -> Any:
    stored = plain[name]
    if plain.get(f"custom_{name}"):
        if thing is None:
            what = {"algorithm": "the algorithm", "environment": "the environment factory"}[name]
            raise Mistake(
                f"this run used {what} {stored!r}, which is not stored: in Python, sterling.load "
                f"and sterling.resume take it again as {name}=...; for the command line, "
                + NAMED[name]
            )
    elif thing is None:
        return stored
    elif not importing.is_reference(stored):
        raise Mistake(f"this run's {name} is {stored!r}, by name; leave {name} out")
    return thing


def warn_of_changes(plain: dict[str, Any]) -> None:
    """Say in a line which of the run's source files are not what they were when it began."""
    before = plain.get("code") or {}
    now = importing.hashes(before)
    changed = [place for place, digest in before.items() if now.get(place) not in (None, digest)]
    if changed:
        _say_once(f"{', '.join(changed)} has changed since the run began; it is used as it is now")


@functools.cache  # the parts of a run are loaded one by one
def _say_once(line: str) -> None:
    say(line)


def warn_of_what_is_not_stored(plain: dict[str, Any]) -> None:
    """Say in a line what a later load or resume of a new run must be given again."""
    again = [name for name in ("algorithm", "environment") if plain.get(f"custom_{name}")]
    if again:
        which = " and ".join(f"{plain[name]} ({name}=...)" for name in again)
        say(f"{which} cannot be imported again: sterling.load and sterling.resume need it; or "
            + NAMED[again[0]])  # fmt: skip
