"""Compare expressions, equations and inequalities exactly; they are read by the package that
``math_verify`` reads LaTeX with."""

from __future__ import annotations

import functools
import importlib
import re
from fractions import Fraction
from typing import Any

from sterling.language.adapters.written_units import read_unit

DIGITS = 100  # of a number that has no exact form; two that agree in all but ten are equal
POINTS = 6  # where expressions with variables are compared
_PLAIN_FUNCTION = re.compile(
    r"(?<![A-Za-z\\])(arcsin|arccos|arctan|sinh|cosh|tanh|sin|cos|tan|cot|sec|csc|log|ln|exp|sqrt"
    r"|alpha|beta|gamma|delta|theta|lambda|sigma|omega|phi|mu)(?![A-Za-z])"
)
_TRAILING_UNIT = re.compile(
    r"(?P<body>.*(?:[\d})]|\\pi))(?P<unit>\s+[A-Za-z^\\].*|\^\\circ)", re.DOTALL
)


@functools.cache
def _package(name: str) -> Any:
    return importlib.import_module(name)


def split_unit(text: str) -> tuple[str, str]:
    r"""Return an expression and the unit after it: ``2\sqrt{3}`` and ``cm`` of
    ``2\sqrt{3} cm``."""
    found = _TRAILING_UNIT.fullmatch(text)
    unit = read_unit(found["unit"]) if found is not None else None
    return (found["body"], unit) if found is not None and unit else (text, "")


@functools.lru_cache(maxsize=1_000)
def read_expression(text: str) -> Any:
    """Return the SymPy object of a text (plain LaTeX); None if it cannot be read."""
    package = _package("latex2sympy2_extended.latex2sympy2")
    text = _PLAIN_FUNCTION.sub(r"\\\1", text.replace("**", "^"))
    text = re.sub(r"\\sqrt\s*\(([^()]*)\)", r"\\sqrt{\1}", text)
    text = re.sub(r"\^\s*(-\d+|\d{2,})", r"^{\1}", text)
    normalization = package.NormalizationConfig(
        basic_latex=True, units=False, malformed_operators=True, nits=True, boxed="none"
    )
    conversion = package.ConversionConfig(lowercase_symbols=False)
    try:
        return package.latex2sympy(
            package.normalize_latex(text, normalization),
            is_real=True,
            normalization_config=None,
            conversion_config=conversion,
        )
    except Exception:  # whatever a foreign parser raises for a text that is no mathematics
        return None


def is_same(truth: Any, answer: Any) -> bool:
    """Whether two SymPy objects are equal: expressions, matrices, equations up to a factor."""
    sympy = _package("sympy")
    has_decimal = any(
        getattr(each, "has", lambda _: False)(sympy.Float) for each in (truth, answer)
    )
    first, second = (_exact(each) for each in (truth, answer))
    if getattr(first, "is_Matrix", False) or getattr(second, "is_Matrix", False):
        return bool(
            getattr(first, "shape", 0) == getattr(second, "shape", 1)
            and all(map(is_same, truth.flat(), answer.flat()))
        )
    if isinstance(first, sympy.core.relational.Relational):
        return isinstance(second, sympy.core.relational.Relational) and _same_relation(
            first, second
        )
    if not (isinstance(first, sympy.Expr) and isinstance(second, sympy.Expr)):
        return bool(first == second)
    if first.free_symbols or second.free_symbols:
        return _same_function(first, second)
    return _same_constant(first, second, has_decimal)


def is_same_value(truth: Any, value: Fraction, is_decimal: bool) -> bool:
    """Whether a SymPy object is a constant of this value; a decimal may differ by 1e-4 relative."""
    sympy = _package("sympy")
    if not isinstance(truth, sympy.Expr):
        return False
    exact = sympy.Rational(value.numerator, value.denominator)
    has_decimal = is_decimal or truth.has(sympy.Float)
    first = _exact(truth)
    if first.free_symbols:
        return _same_function(first, exact)
    return _same_constant(first, exact, has_decimal)


def value_of(expression: Any) -> Fraction | None:
    """Return the value of a constant: exact if it is rational, else to 100 digits; None for what
    has no finite real value."""
    sympy = _package("sympy")
    if not isinstance(expression, sympy.Expr) or expression.free_symbols:
        return None
    number = _exact(expression)
    if not number.is_Rational:
        number = number.evalf(DIGITS, maxn=20 * DIGITS)
    if not number.is_Float and not number.is_Rational:
        return None
    exact = sympy.Rational(number)
    return Fraction(int(exact.p), int(exact.q))


def _exact(expression: Any) -> Any:
    """Return the expression with decimals as fractions, and what can be evaluated evaluated."""
    sympy = _package("sympy")
    if not isinstance(expression, sympy.Basic):
        return expression
    decimals = {each: sympy.Rational(str(each)) for each in expression.atoms(sympy.Float)}
    expression = expression.xreplace(decimals)
    return expression.doit() if isinstance(expression, sympy.Expr) else expression


def _same_constant(first: Any, second: Any, has_decimal: bool) -> bool:
    if first == second or (first.is_Rational and second.is_Rational and not has_decimal):
        return bool(first == second)
    first, second = (each.evalf(DIGITS, maxn=20 * DIGITS) for each in (first, second))
    return _agree(first, second, 1e-4 if has_decimal else 0.0)


def _agree(first: Any, second: Any, relative: float) -> bool:
    """Whether two evaluated numbers agree; 0 means: in all but ten of their digits."""
    sympy = _package("sympy")
    if not (first.is_number and second.is_number and first.is_finite and second.is_finite):
        return False
    limit = sympy.Rational(str(relative)) if relative else sympy.Rational(10) ** (10 - DIGITS)
    return bool(abs(first - second) <= limit * max(abs(first), abs(second)))


def _same_function(first: Any, second: Any) -> bool:
    """Compare by algebra; where that is not enough, by values at points of either sign."""
    sympy = _package("sympy")
    if first == second or sympy.expand(first - second) == 0:
        return True
    names = sorted(first.free_symbols | second.free_symbols, key=str)
    compared = 0
    for place in range(POINTS):
        point = {
            name: sympy.Rational(
                (-1) ** (place * (number + 1)) * (7 + 4 * place + 3 * number), 5 + place
            )
            for number, name in enumerate(names)
        }
        left, right = (each.subs(point).doit() for each in (first, second))
        if not (left.is_Rational and right.is_Rational):
            left, right = (each.evalf(DIGITS, maxn=20 * DIGITS) for each in (left, right))
        if not (left.is_number and right.is_number and left.is_finite and right.is_finite):
            continue
        if not (
            left == right if left.is_Rational and right.is_Rational else _agree(left, right, 0.0)
        ):
            return False
        compared += 1
    return compared >= POINTS // 2


def _same_relation(first: Any, second: Any) -> bool:
    """Whether two relations say the same: their differences are multiples of each other."""
    sympy = _package("sympy")
    kinds, differences = [], []
    for each in (first, second):
        turned = each.rel_op in (">", ">=")
        kinds.append({">": "<", ">=": "<="}.get(each.rel_op, each.rel_op))
        differences.append((each.rhs - each.lhs if turned else each.lhs - each.rhs).doit())
    if kinds[0] != kinds[1]:
        return False
    if differences[0] == 0 or differences[1] == 0:
        return bool(differences[0] == differences[1])
    ratio = sympy.simplify(differences[0] / differences[1])
    if not ratio.is_number or not ratio.is_finite:
        return False
    return bool(ratio > 0 or (kinds[0] in ("==", "!=") and ratio != 0))
