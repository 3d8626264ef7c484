"""Sources that stand around others, by the words of a run's settings.

A :class:`Layer` is what a file of a source offers under the name ``LAYER``, and what packages
register as entry points of the group ``sterling.sources``; training/sources.py builds them.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

from jaxtyping import Array, Key

from sterling.actor import Actor
from sterling.types import Mistake

Numbers = tuple[float, ...]


def _rollouts(source: Any, numbers: Numbers, keys: Key[Array, "seed"], actor: Actor) -> Any:
    return source


def _whole(source: Any, numbers: Numbers) -> Any:
    return source


@dataclasses.dataclass(frozen=True)
class Layer:
    """What ``WORD`` or ``WORD:NUMBER,NUMBER`` puts around a run's source.

    ``rollouts(source, numbers, keys, actor)`` stands around what is lived step by step, inside a
    replay if there is one; ``whole(source, numbers)`` around all of it. Either may be left out. A
    replay keeps the extras that ``keep`` names. ``right`` says whether numbers can be used.
    """

    word: str
    help: str  # a line
    numbers: Numbers = ()  # where none are given
    example: str = ""  # the word with numbers, and which they are
    right: Callable[[Numbers], bool] = lambda numbers: True
    rollouts: Callable[[Any, Numbers, Key[Array, "seed"], Actor], Any] = _rollouts
    whole: Callable[[Any, Numbers], Any] = _whole
    keep: tuple[str, ...] = ()
    begins: bool = False  # it says where every episode begins, which one layer can

    def read(self, text: str) -> Numbers:
        """The numbers written after the word's colon; "" for the usual ones."""
        if not text:
            return self.numbers
        try:
            found = tuple(float(each) for each in text.split(","))
        except ValueError:
            found = ()
        if len(found) != len(self.numbers) or not self.right(found):
            wanted = f"as {self.example}" if self.numbers else f"{self.word} takes no numbers"
            raise Mistake(f"sources={self.word}:{text}: {wanted}")
        return found
