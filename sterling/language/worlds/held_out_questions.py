"""Split a world's questions in two parts: questions to learn from, and held-out questions.

Questions are drawn from seeds, and two seeds may ask the same question. At a level with few
questions, a model that learned them by heart would be evaluated on what it was taught. Here the
question itself decides its part, whichever seed and whichever world asks it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from random import Random
from typing import Any

from sterling.language import question_order
from sterling.language.scene import Message, Scene, TextWorld, context_count
from sterling.system.mistake import Mistake

MAX_TRIES = 1000  # seeds that are tried until one asks a question of the wanted part


def is_held_out(messages: Sequence[Message], share: float) -> bool:
    """Whether a conversation's question is held out, as a ``share`` of all questions is.

    The user's last message is the question; system messages do not matter. A question that is held
    out at a small share is held out at a larger one, too.
    """
    users = [each.content for each in messages if each.role == "user"]
    question = users[-1] if users else "".join(each.content for each in messages)
    number = int.from_bytes(
        hashlib.blake2b(question.encode("utf-8", "replace"), digest_size=8).digest(), "big"
    )
    return number < share * 2**64


def kept_out_rule(share: float, *, judging: bool) -> Callable[[Sequence[Message]], bool] | None:
    """Return the rule that tells whether a conversation's question is not in the part to learn
    from, or for ``judging`` not in the held-out part; None if nothing is held out."""
    if not share:
        return None
    return lambda messages: is_held_out(messages, share) != judging


class HeldOutSplit:
    """The scenes of ``world`` whose questions are held out (``judging``), or all the others.

    A seed whose question is in the other part is replaced by another seed, always the same. If a
    level has a limited number of questions, so has this part: every block of seeds asks each of
    them once.
    """

    def __init__(self, world: TextWorld, share: float, *, judging: bool):
        self.world, self.share, self.judging = world, share, judging
        self.name, self.seats = world.name, world.seats
        self.levels, self.turns = world.levels, world.turns
        self.contexts = context_count(world)
        if hasattr(world, "solve"):
            self.solve: Any = world.solve
        self._seeds: dict[int, list[int]] = {}  # of this part, by level

    def count(self, level: int) -> int:
        """Return the number of questions in this part; 0: unlimited. Mistake if there are none."""
        return (
            len(self._part_seeds(level)) if question_order.question_count(self.world, level) else 0
        )

    def begin(self, seed: int, level: int) -> Scene:
        """Return the scene of this seed and level; Mistake if the level has no question of this
        part."""
        if count := self.count(level):
            return self.world.begin(
                self._part_seeds(level)[question_order.shuffled_index(seed, count)], level
            )
        for attempt in range(MAX_TRIES):
            other = Random(f"{seed}/{attempt}").randrange(2**31) if attempt else seed
            scene = self.world.begin(other, level)
            if self._is_in_part(scene):
                return scene
        raise self._none(level)

    def _part_seeds(self, level: int) -> list[int]:
        """Return seeds that ask the questions of this part, each once."""
        if level not in self._seeds:
            every = range(question_order.question_count(self.world, level))
            own = [seed for seed in every if self._is_in_part(self.world.begin(seed, level))]
            if not own:
                raise self._none(level)
            self._seeds[level] = own
        return self._seeds[level]

    def _is_in_part(self, scene: Scene) -> bool:
        opening = scene.turn.messages if scene.turn else getattr(scene, "opening", ())
        return is_held_out(opening, self.share) == self.judging

    def _none(self, level: int) -> Mistake:
        part = "held out" if self.judging else "left to learn from"
        return Mistake(
            f"at level {level} of {self.name} no question is {part} with held_out={self.share:g}: "
            "the level has too few questions; choose another share, or leave held_out out"
        )

    def close(self) -> None:
        """Release what the world holds."""
        getattr(self.world, "close", lambda: None)()
