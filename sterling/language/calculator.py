"""A calculator for untrusted text: Python's arithmetic, read from its syntax tree, in bounds."""

from __future__ import annotations

import ast
import math
import operator
from collections.abc import Callable
from typing import Any

LONGEST = 200  # characters of an expression
BITS = 4096  # of the largest whole number
PLACES = 400  # before or behind the point, that numbers may be rounded to


def _rounded(value: int | float, places: int = 0) -> int | float:
    """``round``, which takes hours for places far before the point."""
    if abs(places) > PLACES:
        raise ValueError(f"round knows {PLACES} places")
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
    **{"abs": abs, "min": min, "max": max, "round": _rounded, "sqrt": math.sqrt, "gcd": math.gcd},
    **{"exp": math.exp, "log": math.log, "sin": math.sin, "cos": math.cos, "tan": math.tan},
}
_CONSTANTS = {"pi": math.pi, "e": math.e}


def calculate(expression: str) -> str:
    """The value of an expression, as text: whole numbers exactly, others to 12 digits.

    Known are numbers, ``+ - * / // % **``, parentheses, pi, e, and abs, min, max, round, sqrt, gcd,
    exp, log, sin, cos, tan. Raises ValueError (one line that says why) for anything else, and for
    what is too long, too large or has no value.
    """
    if len(expression) > LONGEST:
        raise ValueError(f"the expression is longer than {LONGEST} characters")
    try:
        value = _value(ast.parse(expression.strip(), mode="eval").body)
        if isinstance(value, float) and not math.isfinite(value):
            raise ValueError("the value is not finite")
        return str(value) if isinstance(value, int) else f"{value:.12g}"
    except (SyntaxError, RecursionError, MemoryError):  # what Python's parser may raise
        raise ValueError("this is no expression") from None
    except ZeroDivisionError:
        raise ValueError("division by zero") from None
    except (OverflowError, TypeError) as error:
        raise ValueError(str(error)) from None


def _value(node: ast.expr) -> int | float:
    if isinstance(node, ast.Constant) and type(node.value) in (int, float):
        return _bounded(node.value)
    if isinstance(node, ast.Name) and node.id in _CONSTANTS:
        return _CONSTANTS[node.id]
    if isinstance(node, ast.UnaryOp) and type(node.op) in _UNARY:
        return _UNARY[type(node.op)](_value(node.operand))
    if isinstance(node, ast.BinOp) and type(node.op) in _BINARY:
        left, right = _value(node.left), _value(node.right)
        if isinstance(node.op, ast.Pow):
            _check_power(left, right)
        return _bounded(_BINARY[type(node.op)](left, right))
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and not node.keywords:
        function = _FUNCTIONS.get(node.func.id)
        if function is not None:
            return _bounded(function(*map(_value, node.args)))
    raise ValueError("only numbers and arithmetic are known")


def _check_power(base: int | float, exponent: int | float) -> None:
    """Refuse before it is computed what would not fit."""
    if isinstance(base, int) and abs(exponent) * base.bit_length() > BITS:
        raise ValueError("the number is too large")


def _bounded(value: Any) -> int | float:
    if isinstance(value, int) and value.bit_length() <= BITS:
        return value
    if isinstance(value, float):
        return value
    raise ValueError("the value is complex" if isinstance(value, complex) else "it is too large")
