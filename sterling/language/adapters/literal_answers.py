"""Compare how answers are written: as the same text, or as a copy of the question."""

from __future__ import annotations

import re

_LAYOUT = re.compile(r"\\(?:left|right|displaystyle)(?![A-Za-z])|\\[,;:!]|\$")
_FRACTIONS = re.compile(r"\\[dtc]frac(?![A-Za-z])")


def same_text(first: str, second: str) -> bool:
    """Whether two texts differ only in blanks and layout."""
    return _without_blanks(first) == _without_blanks(second)


def appears_in(answer: str, prompt: str) -> bool:
    """Whether the prompt contains the answer as it is written, except for blanks and layout."""
    signs = r"\s*".join(map(re.escape, _without_blanks(answer)))
    whole = rf"(?<![\w.]){signs}(?!\w)"  # x+1 does not count as a part of 2x+1
    return bool(signs) and re.search(whole, _without_layout(prompt)) is not None


def _without_layout(text: str) -> str:
    return _FRACTIONS.sub(r"\\frac", _LAYOUT.sub("", text))


def _without_blanks(text: str) -> str:
    return re.sub(r"\s", "", _without_layout(text))
