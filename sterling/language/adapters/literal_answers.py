r"""Check how an answer is written: as a finished number, or as a copy of the question.

``math_verify`` computes whatever it reads, so ``12*7+3`` equals 87 and a question is its own
answer. The functions here look at how an answer is written; what it equals is compared as well,
elsewhere.
"""

from __future__ import annotations

import re
from fractions import Fraction

_NUMBER = r"(?:(?:\d{1,3}(?:,\d{3})+|\d+)(?:\.\d*)?|\.\d+)"
_PART = rf"(?:\{{\s*-?{_NUMBER}\s*\}}|\d)"  # argument of \frac, where one digit needs no braces
_DIVIDED = re.compile(
    rf"(?:{_NUMBER}\s*)?\\[dt]?frac\s*(?P<top>{_PART})\s*(?P<bottom>{_PART})"
    rf"|(?:{_NUMBER}\s+)?(?P<over>{_NUMBER})\s*/\s*(?P<under>{_NUMBER})"
)
_POWER = re.compile(
    rf"(?:{_NUMBER}\s*(?:\\times|\\cdot|\*|\u00d7)\s*)?10\s*\^\s*(?:\{{\s*-?\d+\s*\}}|\d)"
)
# one number, with words, signs, units and braces around it; other digits only as a unit's exponent
_WRITTEN = re.compile(
    rf"(?P<before>[^\d.]*)(?P<number>{_POWER.pattern}|{_DIVIDED.pattern}|{_NUMBER})"
    r"(?P<after>(?:[^\d]|(?<=[A-Za-z}]\^)\d|(?<=[A-Za-z}]\^\{)\d|(?<=[A-Za-z}]\^-)\d)*)"
)
_RELATION = re.compile(r"=|≈|\\(?:approx|in|equiv)(?![A-Za-z])")
_LAYOUT = re.compile(r"\\(?:left|right|displaystyle)(?![A-Za-z])|\\[,;:!]|\$")


def last_side(text: str) -> str:
    """Return what stands after the last sign of equality: ``42`` of ``6*7=42``; without one, all of
    it."""
    return _RELATION.split(text)[-1].strip()


def is_written_number(text: str) -> bool:
    r"""Whether the text is one number, written out: ``-1,000.5 km``, ``\frac{1}{2}``, ``50\%``,
    ``2\frac12``, ``1.5\times 10^3``; neither ``12*7`` nor ``84/2``, which leaves the division to
    do."""
    found = _WRITTEN.fullmatch(text.replace("{,}", ","))
    if found is None or found["before"].count("-") > 1:
        return False
    parts = _fraction_parts(found["number"])
    return parts is None or (parts[0] / parts[1]).denominator > 1


def is_unfinished(text: str) -> bool:
    r"""Whether a written number still leaves something to compute: ``6/8``, ``3\times 10^2``."""
    found = _WRITTEN.fullmatch(text.replace("{,}", ","))
    if found is None or _POWER.fullmatch(found["number"]):
        return True
    parts = _fraction_parts(found["number"])
    return parts is not None and (parts[0] / parts[1]).denominator != parts[1]


def same_text(first: str, second: str) -> bool:
    """Whether two texts differ only in blanks and layout."""
    return _without_blanks(first) == _without_blanks(second)


def appears_in(answer: str, prompt: str) -> bool:
    """Whether the prompt contains the answer as it is written, except for blanks and layout."""
    signs = r"\s*".join(map(re.escape, _without_blanks(answer)))
    whole = rf"(?<![\w.]){signs}(?!\w)"  # x+1 does not count as a part of 2x+1
    return bool(signs) and re.search(whole, _without_layout(prompt)) is not None


def _fraction_parts(number: str) -> tuple[Fraction, Fraction] | None:
    """Return a fraction's numerator and denominator; None for other numbers, and for a denominator
    of 0."""
    found = _DIVIDED.fullmatch(number)
    if found is None:
        return None
    top, bottom = found["top"] or found["over"], found["bottom"] or found["under"]
    parts = [Fraction(part.strip("{} ").replace(",", "").rstrip(".")) for part in (top, bottom)]
    return (parts[0], parts[1]) if parts[1] else None


def _without_layout(text: str) -> str:
    return _LAYOUT.sub("", text).replace("\\dfrac", "\\frac").replace("\\tfrac", "\\frac")


def _without_blanks(text: str) -> str:
    return re.sub(r"\s", "", _without_layout(text))
