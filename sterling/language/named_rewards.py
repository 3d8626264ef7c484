"""Rewards with names, and the one number that a model learns from.

A verifier returns a number, or several with names: ``{"right": 1, "format": 0.2, "length": -0.1}``.
They are added up, unless a rule says otherwise::

    right + 0.2*format - 0.1*length
    right*gate(format)                  gate(x) is 1 if x is above 0, else 0

A name that an answer's rewards lack does not apply to it: what it is multiplied with is left out of
the sum. A condition on one name, as ``format>=0.5``, says which answers are right.
"""

from __future__ import annotations

import ast
import math
import operator
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NoReturn

from sterling.language.task import Verdict, is_right
from sterling.lookup.name_suggestions import did_you_mean
from sterling.system.mistake import Mistake
from sterling.system.shown_values import shown_value
from sterling.system.terminal_messages import print_notice

GATE = "gate"
RULE_FORM = "write names, numbers, + - * and gate(NAME), as in right+0.2*format"
RIGHT_FORM = "write NAME>=X, or >, < or <= and a number, as in format>=0.5"
COMPARISONS = {">=": operator.ge, "<=": operator.le, ">": operator.gt, "<": operator.lt}
ROUNDING = 1e-9  # a sum of rewards this close to the number of a condition equals it

Value = float | None  # None: does not apply


class RewardRule:
    """How named rewards are combined. ``text``: "" adds all of them up. With ``each`` the terms of
    its sum are normalised one by one (:mod:`sterling.equations.term_advantages`).

    Raises Mistake for a text that is no rule, and with ``each`` for one that is no sum.
    """

    def __init__(self, text: str = "", *, each: bool = False):
        self.each = each
        self.text, self.names, self._reported = text.strip(), set[str](), set[str]()
        self._known = False  # whether answers had a name of the rule
        self._root: ast.expr | None = None
        if self.text:
            try:
                self._root = ast.parse(self.text, mode="eval").body
            except SyntaxError:
                _refuse(text)
            self._check(self._root)
        self._terms = _split_terms(self._root) if self._root is not None else []
        if each and len(self._terms) < 2:
            rule = f"rewards={self.text!r} is one term" if self.text else "there is no rule rewards"
            raise Mistake(
                f"rewards_each normalises the terms of a sum, and {rule}. Write for instance "
                "rewards='right+0.2*format', without parentheses around the sum."
            )

    def __call__(self, rewards: Mapping[str, float]) -> float:
        """Return the number that named rewards are worth together."""
        if self._root is None:
            return math.fsum(rewards.values())
        return _evaluate(self._root, rewards) or 0.0

    def terms(self, verdicts: Sequence[Verdict]) -> list[tuple[float, float]]:
        """Return the value of each term of the sum without its numeric factor, added up over an
        answer's verdicts, and that factor, which is 0 for terms that do not apply. Where no verdict
        has names every value is 0. Mistake for verdicts that are another number without a name."""
        if wrong := [one.reward for one in verdicts if one.reward and not one.rewards]:
            said = f"a verdict is {wrong[0]:g} without a name"
            raise Mistake(f"rewards_each needs named rewards, and {said}. Leave out rewards_each.")
        named = [one.rewards for one in verdicts if one.rewards]
        found = []
        for factor, term in self._terms:
            values = [x for each in named if (x := _evaluate(term, each)) is not None]
            found.append((math.fsum(values), factor if values or not named else 0.0))
        return found

    @property
    def term_count(self) -> int:
        """Return the number of terms of the sum."""
        return len(self._terms)

    def check_names(self, found: Iterable[str]) -> None:
        """Raise Mistake if the rule has names and none of them is among those ``found``, nor was
        before: a batch may have none that applies."""
        self._known = self._known or _check_names(f"rewards={self.text!r}", self.names, found)

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


class RightRule:
    """Which answers are right. ``text``: a condition on a named reward, as "format>=0.5"; "": see
    :func:`sterling.language.task.is_right`.

    Raises Mistake for a text that is no condition.
    """

    def __init__(self, text: str = ""):
        self.text, self.name, self.names = text, "", set[str]()
        self._known = False  # whether answers had the name
        if text.strip():
            parts = re.fullmatch(r"\s*([^\W\d]\w*)\s*(>=|<=|>|<)\s*(\S+)\s*", text)
            number = _read_number_text(parts[3]) if parts else None
            if parts is None or number is None:
                raise Mistake(f"Cannot read right_if={text!r}: {RIGHT_FORM}.")
            self.name, self.names = parts[1], {parts[1]}
            self._compare, self._number = COMPARISONS[parts[2]], number

    def __call__(self, verdicts: Sequence[Verdict]) -> bool:
        """Whether an answer with these verdicts, one a turn, is right. The last one says so if its
        scene has decided; else the named reward's sum over the turns that have it does."""
        if verdicts and verdicts[-1].right is not None:
            return verdicts[-1].right
        if not self.name:
            return is_right(verdicts)
        own = [one.rewards[self.name] for one in verdicts if self.name in one.rewards]
        above = math.fsum([*own, -self._number])
        return bool(own) and self._compare(0.0 if abs(above) <= ROUNDING else above, 0.0)

    def check_names(self, found: Iterable[str]) -> None:
        """Raise Mistake if the condition's name is not among those ``found``, nor was before."""
        self._known = self._known or _check_names(f"right_if={self.text!r}", self.names, found)


def _refuse(text: str) -> NoReturn:
    raise Mistake(f"Cannot read rewards={text!r}: {RULE_FORM}.")


def _check_names(option: str, names: set[str], found: Iterable[str]) -> bool:
    """Return True; Mistake if an option has names of rewards and none is among those ``found``."""
    known = sorted(found)
    if not names or names & set(known):
        return True
    has = f"they are {', '.join(known)}" if known else "a verdict is one number without a name"
    wrong = did_you_mean(min(names), known, has)
    raise Mistake(f"{option} names no reward that answers get{wrong}")


def _read_number_text(text: str) -> float | None:
    try:
        number = float(text)
    except ValueError:
        return None
    return number if math.isfinite(number) else None


def _split_terms(node: ast.expr, sign: float = 1.0) -> list[tuple[float, ast.expr]]:
    """Return the terms of a sum: the numeric factor of each, and what it multiplies."""
    match node:
        case ast.BinOp(left=left, op=ast.Add() | ast.Sub() as operation, right=right):
            second = -sign if isinstance(operation, ast.Sub) else sign
            return [*_split_terms(left, sign), *_split_terms(right, second)]
        case ast.UnaryOp(operand=inside):
            return _split_terms(inside, -sign)
    factor, rest = _split_factor(node)
    return [(sign * factor, rest or ast.Constant(1.0))]


def _split_factor(node: ast.expr) -> tuple[float, ast.expr | None]:
    """Return the numeric factor of a product, and the product of all others (None: of none)."""
    match node:
        case ast.Constant(value=number):
            return float(number), None  # type: ignore[arg-type]  # a number, as was checked
        case ast.UnaryOp(operand=inside):
            factor, rest = _split_factor(inside)
            return -factor, rest
        case ast.BinOp(left=left, op=ast.Mult(), right=right):
            (first, one), (second, other) = _split_factor(left), _split_factor(right)
            both = ast.BinOp(one, ast.Mult(), other) if one and other else one or other
            return first * second, both
    return 1.0, node


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
