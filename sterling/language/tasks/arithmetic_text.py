"""Arithmetic as text: written with the fewest parentheses, and evaluated without ``eval``."""

from __future__ import annotations

import ast
import re
from fractions import Fraction
from typing import NamedTuple

MAX_CHARACTERS = 120  # of an expression that is read: Python's parser nests that deep safely
ALLOWED_TEXT = re.compile(r"[0-9+\-*/() ]+")
PRECEDENCE = {"+": 1, "-": 1, "*": 2, "/": 2}
_ATOM_PRECEDENCE = 3


class Term(NamedTuple):
    """An expression under construction; ``binds`` is the precedence of its outermost operator."""

    text: str
    value: Fraction
    binds: int = _ATOM_PRECEDENCE


def number_term(value: int) -> Term:
    """Return the term of a number that is not negative."""
    return Term(str(value), Fraction(value))


def join_terms(left: Term, operator: str, right: Term) -> Term | None:
    """Return ``left operator right``, with parentheses only where needed; None for a division by
    zero."""
    rank = PRECEDENCE[operator]
    if operator == "/" and right.value == 0:
        return None
    value = _compute(operator, left.value, right.value)
    first = left.text if left.binds >= rank else f"({left.text})"
    tight = right.binds > rank or (right.binds == rank and operator in "+*")
    return Term(f"{first}{operator}{right.text if tight else f'({right.text})'}", value, rank)


def evaluate_text(text: str) -> tuple[Fraction | None, list[int]] | None:
    """Return the value of an expression and the numbers in it, or None if the text is not one.

    Allowed are whole numbers, ``+ - * /``, a minus before a term, and parentheses. Division is
    exact; the value is None if something is divided by zero.
    """
    if len(text) > MAX_CHARACTERS or not ALLOWED_TEXT.fullmatch(text):
        return None
    try:
        tree = ast.parse(text.strip(), mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):  # what the parser may raise
        return None
    numbers: list[int] = []
    try:
        return _evaluate_node(tree, numbers), numbers
    except ZeroDivisionError:
        return None, numbers
    except _UnknownSyntax:
        return None


class _UnknownSyntax(Exception):
    """The text contains something that is not allowed, such as a call or a power."""


_OPERATORS = {ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.Div: "/"}


def _evaluate_node(node: ast.expr, numbers: list[int]) -> Fraction:
    if isinstance(node, ast.Constant) and type(node.value) is int:
        numbers.append(node.value)
        return Fraction(node.value)
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        return -_evaluate_node(node.operand, numbers)
    if isinstance(node, ast.BinOp) and type(node.op) in _OPERATORS:
        left, right = _evaluate_node(node.left, numbers), _evaluate_node(node.right, numbers)
        return _compute(_OPERATORS[type(node.op)], left, right)
    raise _UnknownSyntax


def _compute(operator: str, left: Fraction, right: Fraction) -> Fraction:
    if operator == "+":
        return left + right
    if operator == "-":
        return left - right
    return left * right if operator == "*" else left / right
