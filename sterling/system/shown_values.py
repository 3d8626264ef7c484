"""Show values and other programs' errors in messages: in one line, and never cut inside a value."""

from __future__ import annotations

from typing import Any

MOST_OF_VALUE, MOST_OF_TEXT = 200, 300  # characters; longer ones are cut between their parts


def shown_value(value: Any) -> str:
    """Return a value's repr in one line, whole up to ``MOST_OF_VALUE`` characters."""
    return short_text(repr(value), MOST_OF_VALUE)


def short_text(text: str, most: int = MOST_OF_TEXT) -> str:
    """Return a text in one line: whole, or cut where it is least inside brackets, with ``...``.

    A list is cut between its entries, and a sentence not within a list, a shape or a call.
    """
    line = " ".join(text.split())
    if len(line) <= most:
        return line
    depth, ends = 0, dict[int, int]()  # depth of brackets -> the last place between words there
    for place, letter in enumerate(line[: most + 1]):
        if letter == " " and place:
            ends[depth] = place
        depth += (letter in "([{") - (letter in ")]}")
    end = ends[min(ends)] if ends else most
    return f"{line[:end]} ..."
