r"""Answers that are said and not merely copied: numbers as they are written, and texts of prompts.

``math_verify`` computes whatever it reads, so ``12*7+3`` equals 87 and a question is its own
answer. Here is looked at how an answer is written, which only counts beside what it equals.
"""

from __future__ import annotations

import re
from fractions import Fraction

_NUMBER = r"(?:(?:\d{1,3}(?:,\d{3})+|\d+)(?:\.\d*)?|\.\d+)"
_PART = rf"(?:\{{\s*-?{_NUMBER}\s*\}}|\d)"  # of \frac, where one digit needs no braces
_DIVIDED = re.compile(
    rf"(?:{_NUMBER}\s*)?\\[dt]?frac\s*(?P<top>{_PART})\s*(?P<bottom>{_PART})"
    rf"|(?:{_NUMBER}\s+)?(?P<over>{_NUMBER})\s*/\s*(?P<under>{_NUMBER})"
)
_POWER = re.compile(
    rf"(?:{_NUMBER}\s*(?:\\times|\\cdot|\*|\u00d7)\s*)?10\s*\^\s*(?:\{{\s*-?\d+\s*\}}|\d)"
)
# one number; around it words, signs, units and braces, with digits as a unit's exponent alone
_WRITTEN = re.compile(
    rf"(?P<before>[^\d.]*)(?P<number>{_POWER.pattern}|{_DIVIDED.pattern}|{_NUMBER})"
    r"(?P<after>(?:[^\d]|(?<=[A-Za-z}]\^)\d|(?<=[A-Za-z}]\^\{)\d|(?<=[A-Za-z}]\^-)\d)*)"
)
_RELATION = re.compile(r"=|≈|\\(?:approx|in|equiv)(?![A-Za-z])")
_LAYOUT = re.compile(r"\\(?:left|right|displaystyle)(?![A-Za-z])|\\[,;:!]|\$")


def last_side(text: str) -> str:
    """What stands behind the last sign of equality: ``42`` of ``6*7=42``; else all of it."""
    return _RELATION.split(text)[-1].strip()


def written(text: str) -> bool:
    r"""Whether it is one number as it is written: ``-1,000.5 km``, ``\frac{1}{2}``, ``50\%``,
    ``2\frac12``, ``1.5\times 10^3``; neither ``12*7`` nor ``84/2``, which leaves the division
    undone."""
    found = _WRITTEN.fullmatch(text.replace("{,}", ","))
    if found is None or found["before"].count("-") > 1:
        return False
    parts = _parts(found["number"])
    return parts is None or (parts[0] / parts[1]).denominator > 1


def undone(text: str) -> bool:
    r"""Whether a written number still asks for something: ``6/8``, ``3\times 10^2``."""
    found = _WRITTEN.fullmatch(text.replace("{,}", ","))
    if found is None or _POWER.fullmatch(found["number"]):
        return True
    parts = _parts(found["number"])
    return parts is not None and (parts[0] / parts[1]).denominator != parts[1]


def alike(first: str, second: str) -> bool:
    """Whether two texts differ in blanks and layout alone."""
    return _plain(first) == _plain(second)


def stands_in(answer: str, prompt: str) -> bool:
    """Whether the prompt holds the answer as it is written, but for blanks and layout."""
    signs = r"\s*".join(map(re.escape, _plain(answer)))
    whole = rf"(?<![\w.]){signs}(?!\w)"  # x+1 does not stand in 2x+1
    return bool(signs) and re.search(whole, _laid_out(prompt)) is not None


def _parts(number: str) -> tuple[Fraction, Fraction] | None:
    """Above and below the line of a fraction; None for other numbers, and for a line over 0."""
    found = _DIVIDED.fullmatch(number)
    if found is None:
        return None
    top, bottom = found["top"] or found["over"], found["bottom"] or found["under"]
    parts = [Fraction(part.strip("{} ").replace(",", "").rstrip(".")) for part in (top, bottom)]
    return (parts[0], parts[1]) if parts[1] else None


def _laid_out(text: str) -> str:
    return _LAYOUT.sub("", text).replace("\\dfrac", "\\frac").replace("\\tfrac", "\\frac")


def _plain(text: str) -> str:
    return re.sub(r"\s", "", _laid_out(text))
