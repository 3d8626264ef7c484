"""What task families share: the check of a level, the final answer, and its length."""

from __future__ import annotations

import abc
import re
from random import Random
from typing import Any

from sterling.language.task import (
    MALFORMED,
    NO_ANSWER,
    RIGHT,
    WRONG,
    Task,
    Verdict,
    check_level,
    final_answer,
    task_random,
)

MAX_CHARACTERS = 20_000  # of an answer; a longer one is malformed
WHOLE_NUMBER = re.compile(r"[+-]?[0-9]{1,30}")


class Puzzle(abc.ABC):
    """A family that makes a prompt with its answer, and judges the text of a final answer."""

    name: str
    levels: range

    @abc.abstractmethod
    def pose(self, random: Random, level: int) -> tuple[str, Any]:
        """Return a prompt, and what ``judge`` needs to know (plain JSON)."""

    @abc.abstractmethod
    def judge(self, task: Task, answer: str) -> Verdict:
        """Judge a final answer (not empty, at most ``MAX_CHARACTERS`` characters)."""

    def extract(self, response: str) -> str:
        """Return the part of a response that is judged."""
        return final_answer(response)

    def sample(self, seed: int, level: int) -> Task:
        """Return the task of this seed and level; see :class:`sterling.language.task.Family`."""
        check_level(self.name, self.levels, level)
        prompt, answer = self.pose(task_random(self.name, seed, level), level)
        return Task(self.name, seed, level, prompt, answer)

    def verify(self, task: Task, response: str) -> Verdict:
        """Judge the response's final answer."""
        answer = self.extract(response)
        if not answer:
            return NO_ANSWER
        return MALFORMED if len(answer) > MAX_CHARACTERS else self.judge(task, answer)

    def solve(self, task: Task) -> str:
        """Return a response that gets reward 1."""
        return str(task.answer)


def parse_whole_number(text: str) -> int | None:
    """Return the whole number that a text consists of, or None; only ASCII digits count."""
    return int(text) if WHOLE_NUMBER.fullmatch(text) else None


def compare_values(found: Any, truth: Any) -> Verdict:
    """Return the verdict on an answer: right or wrong, or malformed if it is None."""
    if found is None:
        return MALFORMED
    return RIGHT if found == truth else WRONG
