"""Countdown: make a number from other numbers, as in the television game."""

from __future__ import annotations

from collections import Counter
from random import Random
from typing import Any, NamedTuple

from sterling.language.task import MALFORMED, RIGHT, WRONG, Task, Verdict
from sterling.language.tasks import arithmetic_text
from sterling.language.tasks.task_checks import Puzzle

LARGE = (25, 50, 75, 100)
FORBIDDEN = Verdict(0.0, "forbidden")


class _Size(NamedTuple):
    many: int  # how many numbers
    largest: int
    operators: str
    target: int = 99  # the largest target
    large: int = 0  # how many of the numbers are from LARGE


class Countdown(Puzzle):
    """An expression with a given value: ``make 22 from 3 5 7`` -> ``3*5+7``.

    The answer is an expression of the numbers with ``+ - * /`` and parentheses. It may use each
    number at most once (another number, or one used too often, is "forbidden"); division is
    exact. Every task can be solved, and no number is the target itself. Levels:

    ===== =================== ============ ======= ========== =========
    level numbers             operators    target  prompt     answer
    ===== =================== ============ ======= ========== =========
    0     3 up to 10          ``+ - *``    <= 99   17-21      5-9
    1     4 up to 10          ``+ - *``    <= 99   19-23      7-13
    2     4 up to 25          ``+ - * /``  <= 99   19-24      7-15
    3     5 up to 50          ``+ - * /``  <= 99   21-27      9-20
    4     4 up to 10, 2 large ``+ - * /``  <= 999  25-31      13-23
    ===== =================== ============ ======= ========== =========

    The large numbers are 25, 50, 75 and 100. Lengths are in characters.
    """

    name = "countdown"
    sizes: tuple[_Size, ...] = (
        _Size(3, 10, "+-*"),
        _Size(4, 10, "+-*"),
        _Size(4, 25, "+-*/"),
        _Size(5, 50, "+-*/"),
        _Size(6, 10, "+-*/", 999, 2),
    )
    levels = range(len(sizes))

    def pose(self, random: Random, level: int) -> tuple[str, dict[str, Any]]:
        """Return numbers, and a target that all of them together can make."""
        size = self.sizes[level]
        while True:
            small = random.choices(range(1, size.largest + 1), k=size.many - size.large)
            numbers = [*random.sample(LARGE, size.large), *small]
            random.shuffle(numbers)
            made = _random_expression(random, numbers, size)
            if made is not None and made.value not in numbers:
                target = int(made.value)
                prompt = f"make {target} from {' '.join(map(str, numbers))}"
                answer = {"numbers": numbers, "target": target, "solution": made.text}
                return prompt, answer

    def judge(self, task: Task, answer: str) -> Verdict:
        """Judge an expression, which is read without ``eval``; its numbers are checked before its
        value."""
        found = arithmetic_text.evaluate_text(answer)
        if found is None:
            return MALFORMED
        value, numbers = found
        if Counter(numbers) - Counter(task.answer["numbers"]):
            return FORBIDDEN
        return RIGHT if value == task.answer["target"] else WRONG

    def solve(self, task: Task) -> str:
        """Return the expression that the target was made with."""
        return str(task.answer["solution"])


class CountdownMini(Countdown):
    """Countdown for models of a million parameters: ``make 8 from 3 5`` -> ``3+5``.

    Rules and answers are those of :class:`Countdown`. Levels 0 to 3: two numbers up to 12 with
    ``+ -``; two with ``+ - *``; three up to 9 with ``+ -``; three with ``+ - *``; targets up to
    99. Prompt 15-18, 15-18, 17-18, 17-18 characters; answer 3-5, 3-5, 5-7, 5-7.
    """

    name = "countdown-mini"
    sizes = (_Size(2, 12, "+-"), _Size(2, 12, "+-*"), _Size(3, 9, "+-"), _Size(3, 9, "+-*"))
    levels = range(len(sizes))


def _random_expression(
    random: Random, numbers: list[int], size: _Size
) -> arithmetic_text.Term | None:
    """Return a random expression of all numbers; None if a step would leave the positive integers,
    or the value is above the largest target."""
    terms = [arithmetic_text.number_term(value) for value in numbers]
    random.shuffle(terms)
    while len(terms) > 1:
        left, right = terms.pop(), terms.pop()
        made = arithmetic_text.join_terms(left, random.choice(size.operators), right)
        if made is None or made.value < 1 or made.value.denominator > 1:
            return None
        terms.insert(random.randrange(len(terms) + 1), made)
    return terms[0] if terms[0].value <= size.target else None
