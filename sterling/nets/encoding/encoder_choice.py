"""Find the encoder of observations that a user chose: a preset's name, or the user's own code."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn

from sterling.lookup import user_imports
from sterling.lookup.name_suggestions import did_you_mean
from sterling.types import Mistake

PRESETS = {  # and what they are called in a run's first lines
    "nature": "Nature CNN",
    "impala": "IMPALA ResNet",
    "impala-wide": "IMPALA ResNet with 4 times its channels",
    "grid": "grid CNN",
    "drq": "DrQ CNN",
    "flat": "flattened",
}


class InMemoryEncoder(str):
    """The name of an encoder's factory that was defined in a script and cannot be imported again.

    It is a string, so that it can be used like any encoder's name; ``factory`` is the object
    itself. It cannot be sent to other processes, nor stored in a run folder.
    """

    factory: Callable[..., Any]

    def __new__(cls, name: str, factory: Callable[..., Any]) -> InMemoryEncoder:
        """Create the string, and attach the object."""
        self = super().__new__(cls, name)
        self.factory = factory
        return self

    def __reduce__(self) -> NoReturn:
        """Raise :class:`Mistake`: it is pickled only to be sent to another process."""
        raise Mistake(
            f"Other processes cannot import the encoder {self}. Put it into a file of its own, "
            'or run in this process (strategy="map"; in a study workers=1).'
        )


def check_can_be_stored(word: str) -> None:
    """Raise Mistake for an encoder that a run folder cannot name."""
    if isinstance(word, InMemoryEncoder):
        raise Mistake(
            f"the run folder could not be opened again without the encoder {word}, which cannot be "
            "imported. Put it into a file and name that, as my_nets.py:make, or leave out `out`."
        )


def encoder_reference(chosen: Any) -> str:
    """Return how settings hold an encoder: "" for none, a preset's name, a reference with an
    absolute path, or an :class:`InMemoryEncoder`. Raises Mistake for anything else."""
    if chosen is None or chosen == "":
        return ""
    if not isinstance(chosen, str):
        if not callable(chosen):
            kind = type(chosen).__name__
            raise Mistake(f"encoder must be a name or a function make(key, space), not a {kind}")
        found = user_imports.reference_to(chosen)
        return found or InMemoryEncoder(user_imports.display_name(chosen), chosen)
    if not user_imports.is_reference(chosen):
        if chosen not in PRESETS:
            near = did_you_mean(chosen, PRESETS, f"use {', '.join(PRESETS)} or FILE.py:make")
            raise Mistake(f"Unknown encoder {chosen!r}{near}")
        return chosen
    word = user_imports.absolute_reference(chosen)
    find_encoder(word)  # raises for a wrong reference
    return word


def find_encoder(word: str) -> Any:
    """Return what ``Spec.encoder`` holds: None, a preset's name, or ``(factory, name)``."""
    if not word or word in PRESETS:
        return word or None
    name = user_imports.short_name(word)
    if isinstance(word, InMemoryEncoder):
        return word.factory, name
    if not user_imports.split_reference(word)[1]:
        raise Mistake(f"encoder {name} names no function. Write {name}:make.")
    factory = user_imports.load(word)
    if not callable(factory):
        kind = type(factory).__name__
        raise Mistake(f"the encoder {name} is a {kind}, not a function make(key, space)")
    return factory, name
