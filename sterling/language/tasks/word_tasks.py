"""Tasks about the letters of a word: reverse, sort and copy."""

from __future__ import annotations

import re
import string
from random import Random

from sterling.language.task import Task, Verdict
from sterling.language.tasks.task_checks import Puzzle, compare_values

LETTERS = ((3, 4), (5, 6), (7, 9), (10, 14), (15, 24))  # fewest and most letters, by level
WORD = re.compile(r"[a-z]+")


class _Word(Puzzle):
    levels = range(len(LETTERS))
    verb: str

    def pose(self, random: Random, level: int) -> tuple[str, str]:
        word = "".join(random.choices(string.ascii_lowercase, k=random.randint(*LETTERS[level])))
        return f"{self.verb} {word}", self.change(word)

    def judge(self, task: Task, answer: str) -> Verdict:
        return compare_values(answer if WORD.fullmatch(answer) else None, task.answer)

    def change(self, word: str) -> str:
        return word


class ReverseText(_Word):
    """A word backwards: ``reverse abcd`` -> ``dcba``.

    The answer is the letters alone, lower case. Levels 0 to 4: words of 3-4, 5-6, 7-9, 10-14 and
    15-24 letters. Prompt 11-12, 13-14, 15-17, 18-22, 23-32 characters; answer as many as letters.
    """

    name, verb = "reverse-text", "reverse"

    def change(self, word: str) -> str:
        """Return the letters from the last to the first."""
        return word[::-1]


class SortLetters(_Word):
    """A word's letters in alphabetical order: ``sort dbca`` -> ``abcd``.

    The answer is the letters alone, lower case, repeated ones repeated. Levels 0 to 4: words of
    3-4, 5-6, 7-9, 10-14 and 15-24 letters. Prompt 8-9, 10-11, 12-14, 15-19, 20-29 characters;
    answer as many as letters.
    """

    name, verb = "sort-letters", "sort"

    def change(self, word: str) -> str:
        """Return the letters in order."""
        return "".join(sorted(word))


class CopyText(_Word):
    """A word as it is: ``copy abcd`` -> ``abcd``.

    The answer is the letters alone, lower case. Levels 0 to 4: words of 3-4, 5-6, 7-9, 10-14 and
    15-24 letters. Prompt 8-9, 10-11, 12-14, 15-19, 20-29 characters; answer as many as letters.
    """

    name, verb = "copy-text", "copy"
