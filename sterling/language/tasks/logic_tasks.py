"""Logic tasks: who tells the truth, and what a circuit computes."""

from __future__ import annotations

import itertools
import re
import string
from random import Random
from typing import NamedTuple

from sterling.language.task import Task, Verdict
from sterling.language.tasks.task_checks import Puzzle, compare_values

PEOPLE = (2, 3, 4, 5, 6)  # by level
SEPARATOR = re.compile(r"[ ,]+")


class Statement(NamedTuple):
    """What one person says; people are numbers."""

    speaker: int
    kind: str  # a key of MEANING
    about: tuple[int, ...]

    @property
    def text(self) -> str:
        """Return the statement as in the prompt, without a full stop."""
        people = [string.ascii_lowercase[each] for each in self.about]
        statement = STATEMENT_WORDS[self.kind].format(*people)
        return f"{string.ascii_lowercase[self.speaker]} says {statement}"

    def holds(self, knights: tuple[bool, ...]) -> bool:
        """Whether the statement is true if these people are knights."""
        are_knights = [knights[each] for each in self.about]
        if self.kind in ("knight", "both"):
            return all(are_knights)
        if self.kind in ("knave", "neither"):
            return not any(are_knights)
        if self.kind == "either":
            return any(are_knights)
        return (are_knights[0] == are_knights[1]) == (self.kind == "alike")


STATEMENT_WORDS = {
    "knight": "{} is a knight",
    "knave": "{} is a knave",
    "alike": "{} and {} are alike",
    "differ": "{} and {} differ",
    "both": "{} and {} are knights",
    "either": "{} or {} is a knight",
    "neither": "{} and {} are knaves",
}


class KnightsAndKnaves(Puzzle):
    """Knights only say what is true, knaves only what is false: ``a says b is a knave. b says a
    and b differ. knights?`` -> ``b``.

    The answer is the letters of all knights, with blanks or commas between them, in any order, or
    ``none``. Every puzzle has exactly one solution. Levels 0 to 4: 2 to 6 people, who say one
    thing each. Prompt 52-62, 73-91, 94-119, 115-146, 138-174 characters; answer 1-4, 1-5, 1-7,
    1-9, 1-11.
    """

    name = "knights-and-knaves"
    levels = range(len(PEOPLE))

    def pose(self, random: Random, level: int) -> tuple[str, list[str]]:
        """Return statements that only one assignment fits, and its knights."""
        count = PEOPLE[level]
        while True:
            statements = [_random_statement(random, speaker, count) for speaker in range(count)]
            found = find_solutions(statements)
            if len(found) == 1:
                prompt = "".join(f"{each.text}. " for each in statements)
                letters = [string.ascii_lowercase[at] for at in range(count) if found[0][at]]
                return f"{prompt}knights?", letters

    def judge(self, task: Task, answer: str) -> Verdict:
        """Check that exactly the knights are named, each once."""
        found = [] if answer == "none" else sorted(SEPARATOR.split(answer))
        named = all(len(each) == 1 and "a" <= each <= "z" for each in found)
        return compare_values(found if named else None, task.answer)

    def solve(self, task: Task) -> str:
        """Return the knights with blanks between them."""
        return " ".join(task.answer) or "none"


def find_solutions(statements: list[Statement]) -> list[tuple[bool, ...]]:
    """Return every assignment (True: a knight) in which exactly the knights say what is true."""
    everyone = itertools.product((False, True), repeat=len(statements))
    return [
        knights
        for knights in everyone
        if all(each.holds(knights) == knights[each.speaker] for each in statements)
    ]


def _random_statement(random: Random, speaker: int, count: int) -> Statement:
    kind = random.choice(list(STATEMENT_WORDS))
    people = [each for each in range(count) if each != speaker]
    if kind in ("knight", "knave"):
        return Statement(speaker, kind, (random.choice(people),))
    pair = random.sample(range(count), 2)
    return Statement(speaker, kind, tuple(sorted(pair)))


class BooleanCircuit(Puzzle):
    """The values of a circuit's gates: ``a=1 b=0 c=a&b d=!c cd?`` -> ``01``.

    ``&`` is and, ``|`` or, ``^`` exclusive or, ``!`` not. The answer is one digit for each gate in
    the order asked (blanks and commas between them are allowed), so that guessing pays little.
    Levels 0 to 4: 2, 3, 4, 6 and 10 gates on 2, 2, 3, 4 and 4 inputs. Prompt 21-23, 27-30, 37-41,
    53-59, 79-87 characters; answer 2, 3, 4, 6, 10.
    """

    name = "boolean-circuit"
    sizes = ((2, 2), (2, 3), (3, 4), (4, 6), (4, 10))  # inputs, gates
    levels = range(len(sizes))

    def pose(self, random: Random, level: int) -> tuple[str, str]:
        """Return inputs and gates on what came before them, and the gates' values."""
        inputs, gates = self.sizes[level]
        names = string.ascii_lowercase[: inputs + gates]
        values = [random.randint(0, 1) for _ in range(inputs)]
        parts = [f"{name}={value}" for name, value in zip(names, values, strict=False)]
        for place in range(inputs, inputs + gates):
            operator = random.choice("&|^!")
            first, second = random.sample(range(place), 2)
            if operator == "!":
                parts.append(f"{names[place]}=!{names[first]}")
                values.append(1 - values[first])
                continue
            parts.append(f"{names[place]}={names[first]}{operator}{names[second]}")
            one, other = values[first], values[second]
            values.append({"&": one & other, "|": one | other, "^": one ^ other}[operator])
        bits = "".join(map(str, values[inputs:]))
        return f"{' '.join(parts)} {names[inputs:]}?", bits

    def judge(self, task: Task, answer: str) -> Verdict:
        """Compare the answer with the right one digit by digit."""
        bits = SEPARATOR.sub("", answer)
        return compare_values(bits if set(bits) <= {"0", "1"} and bits else None, task.answer)
