"""What the families of the registry share: a level's check, the final answer, its length."""

from __future__ import annotations

import abc
import re
from random import Random
from typing import Any

from sterling.language.task import (
    MALFORMED,
    NOTHING,
    RIGHT,
    WRONG,
    Task,
    Verdict,
    check_level,
    dice,
    final_answer,
)

LONGEST = 20_000  # characters of an answer; a longer one is malformed
WHOLE = re.compile(r"[+-]?[0-9]{1,30}")


class Puzzle(abc.ABC):
    """A family that poses a prompt with its answer, and judges a final answer's text."""

    name: str
    levels: range

    @abc.abstractmethod
    def pose(self, random: Random, level: int) -> tuple[str, Any]:
        """A prompt, and what ``judge`` needs to know (plain JSON)."""

    @abc.abstractmethod
    def judge(self, task: Task, answer: str) -> Verdict:
        """What a final answer (not empty, at most ``LONGEST`` characters) is worth."""

    def extract(self, response: str) -> str:
        """The part of a response that is judged."""
        return final_answer(response)

    def sample(self, seed: int, level: int) -> Task:
        """The task of this seed and level; see :class:`sterling.language.task.Family`."""
        check_level(self.name, self.levels, level)
        prompt, answer = self.pose(dice(self.name, seed, level), level)
        return Task(self.name, seed, level, prompt, answer)

    def verify(self, task: Task, response: str) -> Verdict:
        """Judge what the response answers in the end."""
        answer = self.extract(response)
        if not answer:
            return NOTHING
        return MALFORMED if len(answer) > LONGEST else self.judge(task, answer)

    def solve(self, task: Task) -> str:
        """A response that gets reward 1."""
        return str(task.answer)


def whole(text: str) -> int | None:
    """The whole number that a text consists of, or None; only ASCII digits count."""
    return int(text) if WHOLE.fullmatch(text) else None


def same(found: Any, truth: Any) -> Verdict:
    """Right, wrong, or (None) malformed."""
    if found is None:
        return MALFORMED
    return RIGHT if found == truth else WRONG
