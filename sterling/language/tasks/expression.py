"""Arithmetic written as text: built with the fewest parentheses, and read without ``eval``."""

from __future__ import annotations

import ast
import re
from fractions import Fraction
from typing import NamedTuple

LONGEST = 120  # characters of an expression that is read: Python's parser nests that deep safely
ALPHABET = re.compile(r"[0-9+\-*/() ]+")
RANK = {"+": 1, "-": 1, "*": 2, "/": 2}
_ATOM = 3


class Term(NamedTuple):
    """An expression under construction; ``binds`` is the rank of its outermost operator."""

    text: str
    value: Fraction
    binds: int = _ATOM


def number(value: int) -> Term:
    """A number that is not negative."""
    return Term(str(value), Fraction(value))


def join(left: Term, operator: str, right: Term) -> Term | None:
    """``left operator right``, in parentheses only where needed; None for a division by zero."""
    rank = RANK[operator]
    if operator == "/" and right.value == 0:
        return None
    value = _apply(operator, left.value, right.value)
    first = left.text if left.binds >= rank else f"({left.text})"
    tight = right.binds > rank or (right.binds == rank and operator in "+*")
    return Term(f"{first}{operator}{right.text if tight else f'({right.text})'}", value, rank)


def read(text: str) -> tuple[Fraction | None, list[int]] | None:
    """The value of an expression and the numbers in it, or None where it is not one.

    Known are whole numbers, ``+ - * /``, a minus before a term, and parentheses. Division is
    exact; the value is None where something is divided by zero.
    """
    if len(text) > LONGEST or not ALPHABET.fullmatch(text):
        return None
    try:
        tree = ast.parse(text.strip(), mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):  # what the parser may raise
        return None
    numbers: list[int] = []
    try:
        return _value(tree, numbers), numbers
    except ZeroDivisionError:
        return None, numbers
    except _Unknown:
        return None


class _Unknown(Exception):
    """Something that is no part of an expression, such as a call or a power."""


_OPERATORS = {ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.Div: "/"}


def _value(node: ast.expr, numbers: list[int]) -> Fraction:
    if isinstance(node, ast.Constant) and type(node.value) is int:
        numbers.append(node.value)
        return Fraction(node.value)
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        return -_value(node.operand, numbers)
    if isinstance(node, ast.BinOp) and type(node.op) in _OPERATORS:
        left, right = _value(node.left, numbers), _value(node.right, numbers)
        return _apply(_OPERATORS[type(node.op)], left, right)
    raise _Unknown


def _apply(operator: str, left: Fraction, right: Fraction) -> Fraction:
    if operator == "+":
        return left + right
    if operator == "-":
        return left - right
    return left * right if operator == "*" else left / right
