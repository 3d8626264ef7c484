"""Rewards with names, and the one number that a model learns from.

A verifier returns a number, or several with names: ``{"right": 1, "format": 0.2, "length": -0.1}``.
They are added up, unless a rule says otherwise::

    right + 0.2*format - 0.1*length
    right*gate(format)                  gate(x) is 1 if x is above 0, else 0

A name that an answer's rewards lack does not apply to it: what it is multiplied with is left out of
the sum.
"""

from __future__ import annotations

import ast
import math
from collections.abc import Iterable, Mapping
from typing import Any, NoReturn

from sterling.lookup.name_suggestions import did_you_mean
from sterling.system.shown_values import shown_value
from sterling.system.terminal_messages import print_notice
from sterling.types import Mistake

GATE = "gate"
RULE_FORM = "write names, numbers, + - * and gate(NAME), as in right+0.2*format"

Value = float | None  # None: does not apply


class RewardRule:
    """How named rewards are combined. ``text``: "" adds all of them up.

    Raises Mistake for a text that is no rule.
    """

    def __init__(self, text: str = ""):
        self.text, self.names, self._reported = text, set[str](), set[str]()
        self._root: ast.expr | None = None
        if text.strip():
            try:
                self._root = ast.parse(text.strip(), mode="eval").body
            except SyntaxError:
                _refuse(text)
            self._check(self._root)

    def __call__(self, rewards: Mapping[str, float]) -> float:
        """Return the number that named rewards are worth together."""
        if self._root is None:
            return math.fsum(rewards.values())
        return _evaluate(self._root, rewards) or 0.0

    def check_names(self, found: Iterable[str]) -> None:
        """Raise Mistake if the rule has names and none of them is among those ``found``."""
        known = sorted(found)
        if not self.names or self.names & set(known):
            return
        has = f"they are {', '.join(known)}" if known else "a verdict is one number without a name"
        wrong = min(self.names)
        raise Mistake(
            f"rewards={self.text!r} names no reward that answers get"
            f"{did_you_mean(wrong, known, has)}"
        )

    def report_missing(self, found: Iterable[str]) -> None:
        """Print a line, once, for each name of the rule that no answer of a batch has: it may be
        misspelt, or not have applied yet."""
        known = sorted(found)
        for name in sorted(self.names - set(known) - self._reported):
            near = did_you_mean(name, known, f"they have {', '.join(known)}")
            print_notice(f"--rewards: no answer of this batch has the reward {name}{near}")
            self._reported.add(name)

    def _check(self, node: ast.AST) -> None:
        """Raise Mistake for a part that rules do not have, and collect the names."""
        match node:
            case ast.Constant(value=bool()):
                _refuse(self.text)
            case ast.Constant(value=int() | float() as number) if math.isfinite(number):
                return
            case ast.Name(id=name) if name != GATE:
                self.names.add(name)
            case ast.BinOp(left=left, op=ast.Add() | ast.Sub() | ast.Mult(), right=right):
                self._check(left)
                self._check(right)
            case ast.UnaryOp(op=ast.USub(), operand=inside):
                self._check(inside)
            case ast.Call(func=ast.Name(id="gate"), args=[inside], keywords=[]):
                self._check(inside)
            case _:
                _refuse(self.text)


def _refuse(text: str) -> NoReturn:
    raise Mistake(f"Cannot read rewards={text!r}: {RULE_FORM}.")


def _evaluate(node: ast.AST, rewards: Mapping[str, float]) -> Value:
    match node:
        case ast.Constant(value=number):
            return float(number)  # type: ignore[arg-type]  # a number, as was checked
        case ast.Name(id=name):
            return rewards.get(name)
        case ast.UnaryOp(operand=inside):
            value = _evaluate(inside, rewards)
            return None if value is None else -value
        case ast.Call(args=[inside]):
            value = _evaluate(inside, rewards)
            return None if value is None else float(value > 0.0)
        case ast.BinOp(left=left, op=operation, right=right):
            both = (_evaluate(left, rewards), _evaluate(right, rewards))
            return _combine(operation, *both)
    raise AssertionError(node)  # no rule has it


def _combine(operation: ast.operator, left: Value, right: Value) -> Value:
    if isinstance(operation, ast.Mult):
        return None if left is None or right is None else left * right
    if isinstance(operation, ast.Sub) and right is not None:
        right = -right
    known = [each for each in (left, right) if each is not None]
    return sum(known) if known else None


def read_rewards(found: Any) -> float | dict[str, float]:
    """Return what a user's verifier returned as a finite number, also of NumPy's types, with True
    and False as 1 and 0, or as named ones; a name whose value is None is left out. Raises
    ValueError, in words that follow "it returned", for anything else."""
    if not isinstance(found, Mapping):
        number = _read_number(found)
        if number is None:
            raise ValueError(f"{shown_value(found)}, not a finite number")
        return number
    named = {name: each for name, each in found.items() if each is not None}
    numbers = {name: _read_number(each) for name, each in named.items()}
    wrong = [n for n, x in numbers.items() if x is None or not str(n).isidentifier() or n == GATE]
    if wrong or not named:
        said = f", whose {shown_value(wrong[0])} is" if wrong else ","
        raise ValueError(f"{shown_value(found)}{said} not a name (a word) with a finite number")
    return {str(name): number for name, number in numbers.items() if number is not None}


def _read_number(value: Any) -> float | None:
    if isinstance(value, str | bytes) or not hasattr(value, "__float__"):
        return None
    try:
        number = float(value)
    except (TypeError, ValueError):  # an array of several numbers
        return None
    return number if math.isfinite(number) else None
