"""Tasks with whole numbers: expressions, chains of steps modulo a number, modular addition."""

from __future__ import annotations

from random import Random
from typing import Any, NamedTuple

from sterling.language.task import Task, Verdict
from sterling.language.tasks.arithmetic_text import Term, join_terms, number_term
from sterling.language.tasks.task_checks import Puzzle, compare_values, parse_whole_number


class _Size(NamedTuple):
    terms: int
    largest: int  # operand
    operators: str
    nested: bool = False


class Arithmetic(Puzzle):
    """The value of an expression: ``12+7*3=`` -> ``33``.

    The answer is a whole number, with a minus where it is negative. Levels:

    ===== ======== ============ =========== ========= =========
    level operands up to        operators   prompt    answer
    ===== ======== ============ =========== ========= =========
    0     2        9            ``+ -``     4         1-2
    1     2        99           ``+ -``     4-6       1-3
    2     3        99           ``+ - *``   6-9       1-4
    3     4        99           also ``()`` 9-16      1-8
    4     5        999          also ``()`` 16-26     1-15
    ===== ======== ============ =========== ========= =========

    A factor of a product is at most 9 at level 2. Lengths are in characters.
    """

    name = "arithmetic"
    sizes = (
        _Size(2, 9, "+-"),
        _Size(2, 99, "+-"),
        _Size(3, 99, "+-*"),
        _Size(4, 99, "+-*", True),
        _Size(5, 999, "+-*", True),
    )
    levels = range(len(sizes))

    def pose(self, random: Random, level: int) -> tuple[str, int]:
        """Return an expression with an equals sign, and its value."""
        size = self.sizes[level]
        term = _nested_expression(random, size) if size.nested else _flat_expression(random, size)
        return f"{term.text}=", int(term.value)

    def judge(self, task: Task, answer: str) -> Verdict:
        """Compare the answer as a number."""
        return compare_values(parse_whole_number(answer), task.answer)


def _flat_expression(random: Random, size: _Size) -> Term:
    """Return operands in a row; the factors of a product have one digit."""
    operators = random.choices(size.operators, k=size.terms - 1)
    beside = ["*" in pair for pair in zip(["", *operators], [*operators, ""], strict=True)]
    operands = [number_term(random.randint(0, 9 if small else size.largest)) for small in beside]
    product, terms, signs = operands[0], [], []
    for operator, operand in zip(operators, operands[1:], strict=True):
        if operator == "*":
            product = _join(product, "*", operand)
        else:
            terms.append(product)
            signs.append(operator)
            product = operand
    total, *others = [*terms, product]
    for sign, other in zip(signs, others, strict=True):
        total = _join(total, sign, other)
    return total


def _nested_expression(random: Random, size: _Size) -> Term:
    """Join neighbours at random, until one expression is left; return it."""
    terms = [number_term(random.randint(1, size.largest)) for _ in range(size.terms)]
    while len(terms) > 1:
        at = random.randrange(len(terms) - 1)
        terms[at : at + 2] = [_join(terms[at], random.choice(size.operators), terms[at + 1])]
    return terms[0]


def _join(left: Term, operator: str, right: Term) -> Term:
    term = join_terms(left, operator, right)
    assert term is not None  # there is no division here
    return term


class Chain(Puzzle):
    """Steps from the left, modulo a number: ``((3+5)*2)%7=`` -> ``1,2####2``.

    The answer is the remainder (0 to modulus - 1); what is written before ``####`` is not judged.
    The demonstration writes the remainder after each step. Levels 0 to 4: 2, 3, 4, 6
    and 8 steps, moduli up to 7, 9, 11, 13 and 17. Prompt 12, 16, 20-21, 28-29, 36-37 characters;
    answer 1 to 2, with all steps 8, 10, 12-15, 16-21, 20-28.
    """

    name = "chain"
    sizes = ((2, 7), (3, 9), (4, 11), (6, 13), (8, 17))  # steps, largest modulus
    levels = range(len(sizes))

    def pose(self, random: Random, level: int) -> tuple[str, dict[str, Any]]:
        """Return a chain with a modulus, and the remainders after each step."""
        steps, largest = self.sizes[level]
        modulus = random.randint(5, largest)
        total = random.randint(1, 9)
        text, left = str(total), []
        for _ in range(steps):
            operator, operand = random.choice("+-*"), random.randint(2, 9)
            change = {"+": total + operand, "-": total - operand, "*": total * operand}
            total = change[operator] % modulus
            text = f"({text}{operator}{operand})"
            left.append(total)
        return f"{text}%{modulus}=", {"steps": left, "value": total}

    def judge(self, task: Task, answer: str) -> Verdict:
        """Compare the answer as a number."""
        return compare_values(parse_whole_number(answer), task.answer["value"])

    def solve(self, task: Task) -> str:
        """Return the remainders after each step, then the last one as the answer."""
        return f"{','.join(map(str, task.answer['steps']))}####{task.answer['value']}"


class ModularAddition(Puzzle):
    """A sum's remainder: ``(7+9)%11=`` -> ``5``.

    The answer is a whole number from 0 to modulus - 1. Levels 0 to 4: moduli 11, 23, 47, 97 and
    197 (121 to 38,809 different tasks: small moduli can be memorised, large ones show
    whether a rule was learned). Prompt 9-11, at the last level 10-14 characters; answer 1-2, at
    the last 1-3.
    """

    name = "modular-addition"
    moduli = (11, 23, 47, 97, 197)
    levels = range(len(moduli))

    def pose(self, random: Random, level: int) -> tuple[str, int]:
        """Return two numbers below the modulus as a sum, and its remainder."""
        modulus = self.moduli[level]
        first, second = random.randrange(modulus), random.randrange(modulus)
        return f"({first}+{second})%{modulus}=", (first + second) % modulus

    def judge(self, task: Task, answer: str) -> Verdict:
        """Compare the answer as a number."""
        return compare_values(parse_whole_number(answer), task.answer)
