"""Layers: the sources that the setting ``sources`` can put around a run's source.

A file that implements one offers a :class:`Layer` under the name ``LAYER``; packages register
theirs as entry points of the group ``sterling.sources``. training/assembly/build_sources.py builds
them.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

from jaxtyping import Array, Key

from sterling.actor import Actor
from sterling.types import Mistake

Numbers = tuple[float, ...]


def _unchanged_rollouts(
    source: Any, numbers: Numbers, keys: Key[Array, "seed"], actor: Actor
) -> Any:
    return source


def _unchanged_source(source: Any, numbers: Numbers) -> Any:
    return source


@dataclasses.dataclass(frozen=True)
class Layer:
    """Describes what ``WORD`` or ``WORD:NUMBER,NUMBER`` puts around a run's source.

    ``rollouts(source, numbers, keys, actor)`` wraps the rollout, inside a replay buffer if there is
    one; ``whole(source, numbers)`` wraps the whole source. Either may be left out. A replay buffer
    stores the extras named in ``keep``. ``right`` says whether the numbers are valid.
    """

    word: str
    help: str  # one line
    numbers: Numbers = ()  # the defaults
    example: str = ""  # the word with numbers, and what they mean
    right: Callable[[Numbers], bool] = lambda numbers: True
    rollouts: Callable[[Any, Numbers, Key[Array, "seed"], Actor], Any] = _unchanged_rollouts
    whole: Callable[[Any, Numbers], Any] = _unchanged_source
    keep: tuple[str, ...] = ()
    begins: bool = False  # whether it decides where episodes begin; only one layer may

    def read(self, text: str) -> Numbers:
        """Parse the numbers after the word's colon; "" gives the defaults."""
        if not text:
            return self.numbers
        try:
            found = tuple(float(each) for each in text.split(","))
        except ValueError:
            found = ()
        if len(found) != len(self.numbers) or not self.right(found):
            wanted = f"write {self.example}" if self.numbers else f"{self.word} takes no numbers"
            raise Mistake(f"sources={self.word}:{text}: {wanted}")
        return found
