"""A world's questions in two parts: those that are learned from, and those that are kept to judge.

Questions are drawn from seeds, so that two seeds may ask the same: where a level has few questions
a model that learned them by heart is judged by what it was taught. Here what is asked decides,
whichever seed asks it and whichever world it is asked in.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from random import Random
from typing import Any

from sterling.language import posing
from sterling.language.scene import Message, Scene, TextWorld
from sterling.types import Mistake

TRIES = 1000  # seeds that are tried until one asks a question of the part that is wanted


def held_out(messages: Sequence[Message], share: float) -> bool:
    """Whether a conversation's opening is kept to judge; so is a ``share`` of all questions.

    What the user says last is the question: it is kept, or not, with every system message. What is
    kept at a small share is kept at a larger one.
    """
    users = [each.content for each in messages if each.role == "user"]
    question = users[-1] if users else "".join(each.content for each in messages)
    number = int.from_bytes(hashlib.blake2b(question.encode(), digest_size=8).digest(), "big")
    return number < share * 2**64


class Apart:
    """The scenes of ``world`` whose questions are held out (``judging``), or all the others.

    A seed whose question is of the other part is replaced by another, always the same. Where a
    level's questions have an end, those of this part do: every block of seeds poses each once.
    """

    def __init__(self, world: TextWorld, share: float, *, judging: bool):
        self.world, self.share, self.judging = world, share, judging
        self.name, self.seats = world.name, world.seats
        self.levels, self.turns = world.levels, world.turns
        if hasattr(world, "solve"):
            self.solve: Any = world.solve
        self._seeds: dict[int, list[int]] = {}  # by level, of this part

    def count(self, level: int) -> int:
        """How many questions of this part there are; 0: without end. Mistake where none is."""
        return len(self._part(level)) if posing.count(self.world, level) else 0

    def begin(self, seed: int, level: int) -> Scene:
        """The scene of this seed and level; Mistake where the level has no such question."""
        if many := self.count(level):
            return self.world.begin(self._part(level)[posing.shuffled(seed, many)], level)
        for attempt in range(TRIES):
            other = Random(f"{seed}/{attempt}").randrange(2**31) if attempt else seed
            scene = self.world.begin(other, level)
            if self._own(scene):
                return scene
        raise self._none(level)

    def _part(self, level: int) -> list[int]:
        """Seeds that pose the questions of this part, each once."""
        if level not in self._seeds:
            every = range(posing.count(self.world, level))
            own = [seed for seed in every if self._own(self.world.begin(seed, level))]
            if not own:
                raise self._none(level)
            self._seeds[level] = own
        return self._seeds[level]

    def _own(self, scene: Scene) -> bool:
        opening = scene.turn.messages if scene.turn is not None else ()
        return held_out(opening, self.share) == self.judging

    def _none(self, level: int) -> Mistake:
        part = "held out" if self.judging else "left to learn from"
        return Mistake(
            f"at level {level} of {self.name} no question is {part} with held_out={self.share:g}: "
            "it has too few; choose another share, or leave it out"
        )

    def close(self) -> None:
        """Release what the world holds."""
        getattr(self.world, "close", lambda: None)()
