"""A run's algorithm and environment where they come from outside: how config.json holds them, and
what must be given again when a run is loaded."""

from __future__ import annotations

import functools
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


def to_json(algorithm: str, environment: Any) -> dict[str, Any]:
    """Return what config.json says of a run's algorithm and environment: their words, whether they
    must be given again, and the hashes of the files that they come from."""
    custom = not isinstance(environment, str)
    words = [algorithm] if custom else [algorithm, environment]
    return {
        "algorithm": str(algorithm),
        "environment": called(environment) if custom else environment,
        "custom_algorithm": isinstance(algorithm, Given),
        "custom_environment": custom,
        "code": importing.hashes(words),
    }


def from_json(plain: dict[str, Any], environment: Any, algorithm: Any) -> dict[str, Any]:
    """Return a stored run's ``algorithm`` and ``environment``, with those that were given again in
    place of what could not be stored; what can be imported may be replaced as well.

    Raises Mistake where one is missing, or is given although the run has it by its listed name.
    """
    given = {"algorithm": algorithm, "environment": environment}
    return {name: _given_again(name, plain, thing) for name, thing in given.items()}


def _given_again(name: str, plain: dict[str, Any], thing: Any) -> Any:
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
    convert = algorithms.word_of if name == "algorithm" else word_of_environment
    return convert(thing)


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
