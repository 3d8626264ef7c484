"""A calculator for untrusted text: Python's arithmetic, evaluated on its syntax tree, within
limits."""

from __future__ import annotations

import ast
import math
import operator
from collections.abc import Callable
from typing import Any

MAX_CHARACTERS = 200  # of an expression
MAX_BITS = 4096  # of a whole number
MAX_PLACES = 400  # before or behind the point, to which numbers may be rounded


def _round(value: int | float, places: int = 0) -> int | float:
    """Return ``round(value, places)``; refused for places far before the point, which take
    hours."""
    if abs(places) > MAX_PLACES:
        raise ValueError(f"round knows {MAX_PLACES} places")
    return round(value, places) if places else round(value)


_BINARY: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.Pow: operator.pow,
}
_UNARY: dict[type[ast.unaryop], Callable[[Any], Any]] = {
    ast.UAdd: operator.pos,
    ast.USub: operator.neg,
}
_FUNCTIONS: dict[str, Callable[..., Any]] = {
    **{"abs": abs, "min": min, "max": max, "round": _round, "sqrt": math.sqrt, "gcd": math.gcd},
    **{"exp": math.exp, "log": math.log, "sin": math.sin, "cos": math.cos, "tan": math.tan},
}
_CONSTANTS = {"pi": math.pi, "e": math.e}


def calculate(expression: str) -> str:
    """Return the value of an expression as text: whole numbers exactly, others to 12 digits.

    Allowed are numbers, ``+ - * / // % **``, parentheses, pi, e, and abs, min, max, round, sqrt,
    gcd, exp, log, sin, cos, tan. Raises ValueError (with a reason of one line) for anything else,
    and for what is too long, too large or has no value.
    """
    if len(expression) > MAX_CHARACTERS:
        raise ValueError(f"the expression is longer than {MAX_CHARACTERS} characters")
    try:
        value = _evaluate(ast.parse(expression.strip(), mode="eval").body)
        if isinstance(value, float) and not math.isfinite(value):
            raise ValueError("the value is not finite")
        return str(value) if isinstance(value, int) else f"{value:.12g}"
    except (SyntaxError, RecursionError, MemoryError):  # what Python's parser may raise
        raise ValueError("this is no expression") from None
    except ZeroDivisionError:
        raise ValueError("division by zero") from None
    except (OverflowError, TypeError) as error:
        raise ValueError(str(error)) from None


def _evaluate(node: ast.expr) -> int | float:
    if isinstance(node, ast.Constant) and type(node.value) in (int, float):
        return _check_size(node.value)
    if isinstance(node, ast.Name) and node.id in _CONSTANTS:
        return _CONSTANTS[node.id]
    if isinstance(node, ast.UnaryOp) and type(node.op) in _UNARY:
        return _UNARY[type(node.op)](_evaluate(node.operand))
    if isinstance(node, ast.BinOp) and type(node.op) in _BINARY:
        left, right = _evaluate(node.left), _evaluate(node.right)
        if isinstance(node.op, ast.Pow):
            _check_power(left, right)
        return _check_size(_BINARY[type(node.op)](left, right))
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and not node.keywords:
        function = _FUNCTIONS.get(node.func.id)
        if function is not None:
            return _check_size(function(*map(_evaluate, node.args)))
    raise ValueError("only numbers and arithmetic are known")


def _check_power(base: int | float, exponent: int | float) -> None:
    """Refuse a power before it is computed, if it would be too large."""
    if isinstance(base, int) and abs(exponent) * base.bit_length() > MAX_BITS:
        raise ValueError("the number is too large")


def _check_size(value: Any) -> int | float:
    if isinstance(value, int) and value.bit_length() <= MAX_BITS:
        return value
    if isinstance(value, float):
        return value
    raise ValueError("the value is complex" if isinstance(value, complex) else "it is too large")
