r"""Read a number that is written out, exactly: ``-1,000.5 km``, ``\frac{1}{2}``, ``1.6e3``.

Nothing is computed: neither ``12*7`` nor ``84/2`` is a written number.
"""

from __future__ import annotations

import dataclasses
import functools
import re
from fractions import Fraction

from sterling.language.adapters.written_units import CURRENCY, read_scale, read_unit

LARGEST_EXPONENT = 5_000  # of ten; what is beyond is compared as text
_NUMBER = r"(?:(?:\d{1,3}(?:,\d{3})+|\d{1,3}(?: \d{3})+(?![\d/])|\d+)(?:\.\d*)?|\.\d+)"
_PART = rf"(?:\{{\s*-?\s*{_NUMBER}\s*\}}|\s*\d)"  # argument of \frac: one digit needs no braces
_FRACTION = (
    rf"(?:(?P<whole>\d[\d,]*)\s*)?\\frac\s*(?P<top>{_PART})\s*(?P<bottom>{_PART})"
    rf"|(?:(?P<wholes>\d[\d,]*)\s+)?(?P<over>{_NUMBER})\s*/\s*(?P<under>{_NUMBER})"
)
_EXPONENT = r"(?:\{\s*[-+]?\s*\d+\s*\}|\(\s*[-+]?\s*\d+\s*\)|[-+]?\d+)"
_POWER = (
    rf"(?:(?P<mantissa>{_NUMBER})\s*(?:\\times|\\cdot|\\ast|\*|x|X)\s*)?(?:10|\{{10\}})\s*(?:\^|\*\*)\s*(?P<power>{_EXPONENT})"
    rf"|(?P<float>{_NUMBER})[eE](?P<exponent>[-+]?\d+)"
)
_REPEATED = (
    r"(?P<start>\d*\.\d*)(?:\\(?:overline|bar|dot)\s*\{?\s*(?P<cycle>\d+)\s*\}?|\((?P<round>\d+)\))"
)
_WRITTEN = re.compile(
    rf"(?P<sign>[-+]?)\s*(?:{CURRENCY})?\s*(?P<second>[-+]?)\s*"
    rf"(?:{_POWER}|{_REPEATED}|{_FRACTION}|(?P<number>{_NUMBER}))(?P<after>.*)",
    re.DOTALL,
)
_FRACTION_OF_POWER = re.compile(r"\\frac\s*\{([^{}]*)\}\s*\{\s*10\s*\^\s*\{?\s*(\d+)\s*\}?\s*\}")
_OVER_POWER = re.compile(rf"(-?\s*{_NUMBER})\s*/\s*10\s*\^\s*\{{?\s*(\d+)\s*\}}?")
_CURRENCY = re.compile(rf"[-+]?\s*({CURRENCY})")


@dataclasses.dataclass(frozen=True)
class WrittenNumber:
    """A number as it was written: its exact value (percent and "million" counted in)."""

    value: Fraction
    last_digit: Fraction | None  # worth 1 of the last written digit; None for an exact fraction
    is_decimal: bool  # written with a decimal point
    unit: str  # "" without one
    is_finished: bool  # nothing is left to compute, as in 6/8 or 3 * 10^2


@functools.lru_cache(maxsize=8_000)
def read_number(text: str) -> WrittenNumber | None:
    r"""Return the number that the text (plain LaTeX) is, with a unit or without; None for anything
    else, also for a fraction that is a whole number (``84/2``)."""
    text = _FRACTION_OF_POWER.sub(r"\1/10^\2", _without_brackets(text.strip()))
    text = _OVER_POWER.sub(r"\1*10^{-\2}", text)
    found = _WRITTEN.fullmatch(text)
    if found is None or (found["sign"] and found["second"]):
        return None
    factor, rest = read_scale(found["after"])
    unit = read_unit(rest) if factor == 1 or not rest or rest[0] in " /" else None
    read = _core(found)
    if unit is None or read is None:
        return None
    value, last_digit, is_decimal, is_finished = read
    sign = -1 if "-" in (found["sign"], found["second"]) else 1
    currency = _CURRENCY.match(text)
    return WrittenNumber(
        sign * value * factor,
        None if last_digit is None else last_digit * factor,
        is_decimal,
        unit or (read_unit(f" {currency[1]}") or "" if currency else ""),
        is_finished,
    )


def equal_numbers(truth: WrittenNumber, answer: WrittenNumber) -> bool:
    """Whether the values agree, and the units if both have one.

    Exact values must be equal. If either is a decimal, they may differ by half a unit of the
    truth's last digit, at most by 1e-4 relative.
    """
    if truth.unit and answer.unit and truth.unit != answer.unit:
        return False
    if not (truth.is_decimal or answer.is_decimal):
        return truth.value == answer.value
    limit = Fraction(1, 10**4) * max(abs(truth.value), abs(answer.value))
    if truth.last_digit is not None:
        limit = min(limit, truth.last_digit / 2)
    return abs(truth.value - answer.value) <= limit


def _without_brackets(text: str) -> str:
    """Take braces and round brackets off that enclose all of the text."""
    for before, after in (("\\{", "\\}"), ("{", "}"), ("(", ")")):
        inside = text[len(before) : len(text) - len(after)]
        if text.startswith(before) and text.endswith(after) and not set(inside) & set("(){},"):
            return inside.strip()
    negative = re.fullmatch(r"-\s*\(([^-+(){},]*)\)", text)
    return f"-{negative[1]}" if negative else text


def _core(found: re.Match[str]) -> tuple[Fraction, Fraction | None, bool, bool] | None:
    """Return value, worth of the last digit, whether a decimal, whether finished."""
    if found["power"] or found["exponent"]:
        return _scientific(found)
    if found["start"]:
        start, cycle = found["start"], found["cycle"] or found["round"]
        digits = len(start.partition(".")[2])
        repeated = Fraction(int(cycle), 10**digits * (10 ** len(cycle) - 1))
        return _exact(start if start != "." else "0") + repeated, None, False, True
    if found["number"]:
        number = found["number"]
        return _exact(number), _last_digit(number), "." in number.rstrip("."), True
    return _fraction(found)


def _scientific(found: re.Match[str]) -> tuple[Fraction, Fraction | None, bool, bool] | None:
    mantissa = found["mantissa"] or found["float"]
    exponent = int(re.sub(r"[^\d-]", "", found["power"] or found["exponent"])[:20])
    if abs(exponent) > LARGEST_EXPONENT:
        return None
    scale = Fraction(10) ** exponent
    if mantissa is None:
        return scale, None, False, False
    is_decimal = "." in mantissa or bool(found["float"] and exponent < 0)
    return _exact(mantissa) * scale, _last_digit(mantissa) * scale, is_decimal, False


def _fraction(found: re.Match[str]) -> tuple[Fraction, Fraction | None, bool, bool] | None:
    top = _exact(found["top"] or found["over"])
    bottom = _exact(found["bottom"] or found["under"])
    whole = _exact(found["whole"] or found["wholes"] or "0")
    if not bottom or (top / bottom).denominator == 1:
        return None
    if whole and top / bottom < 0:
        return None
    written = (found["top"] or found["over"]) + (found["bottom"] or found["under"])
    return whole + top / bottom, None, "." in written, (top / bottom).denominator == bottom


def _exact(number: str) -> Fraction:
    return Fraction(re.sub(r"[{}, ]", "", number).rstrip("."))


def _last_digit(number: str) -> Fraction:
    return Fraction(1, 10 ** len(number.partition(".")[2]))
