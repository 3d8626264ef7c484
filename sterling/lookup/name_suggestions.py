"""Suggestions for misspelt names, and literals typed by users."""

from __future__ import annotations

import ast
import difflib
import re
from collections.abc import Iterable
from typing import Any

SHORT = 6  # letters; a shorter name may have one wrong letter, a longer one two
LEAST_START = 3  # letters of an abbreviation
LEAST_PART = 4  # letters of a word that is suggested as a part of a longer name


def did_you_mean(wrong: str, known: Iterable[str], otherwise: str = "", count: int = 1) -> str:
    """Return '; did you mean X?' with up to ``count`` near names; if there are none,
    '; ``otherwise``', or "" without ``otherwise``. See :func:`nearest_names`."""
    if near := nearest_names(wrong, known, count):
        return f"; did you mean {' or '.join(near)}?"
    return f"; {otherwise}" if otherwise else ""


def nearest_names(wrong: str, known: Iterable[str], count: int = 1, letters: int = 2) -> list[str]:
    """Return up to ``count`` names that ``wrong`` may stand for, the nearest first.

    Near are a name with up to ``letters`` wrong, missing, added or swapped letters (short names:
    one), the same words in another order, a longer or shorter name that has all words of the other,
    and a name that begins with ``wrong``. Case and the marks between words are ignored.
    """
    scored = (
        (_distance(wrong, each, letters), place, each)
        for place, each in enumerate(dict.fromkeys(known))
    )
    return [each for far, _, each in sorted(one for one in scored if one[0] is not None)[:count]]


def _distance(wrong: str, right: str, letters: int) -> float | None:
    """Return how far a name is from a known one; None if they are not alike."""
    mine, other = _plain_letters(wrong), _plain_letters(right)
    if not mine or not other:
        return None
    allowed = min(letters, 1 if min(len(mine), len(other)) < SHORT else 2)
    edits = _edits(mine, other, allowed)
    if edits <= allowed and edits < min(len(mine), len(other)):
        return edits + 0.4 * (1.0 - difflib.SequenceMatcher(None, mine, other).ratio())
    words, others = _split_words(wrong), _split_words(right)
    if sorted(words) == sorted(others):
        return 1.5
    fewer, more = sorted((words, others), key=len)
    has_all = all(any(_same_word(one, each) for each in more) for one in fewer)
    if has_all and max(map(len, fewer)) >= LEAST_PART:
        return 3.0 + abs(len(mine) - len(other)) / 100
    is_start = len(mine) >= LEAST_START and other.startswith(mine)
    if is_start or (len(mine) > LEAST_PART and mine in other and 2 * len(mine) > len(other)):
        return 4.0 + len(other) / 100
    return None


def _plain_letters(name: str) -> str:
    return re.sub(r"[\s_\-/:.]+", "", name.lower())


def _split_words(name: str) -> list[str]:
    """Return the words of a name: ``max_episode_steps``, ``HalfCheetah-v5``."""
    apart = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", " ", name)
    return [word for word in re.split(r"[\s_\-/:.]+", apart.lower()) if word]


def _same_word(one: str, other: str) -> bool:
    """Whether two words are the same but for a plural's s or one letter of a long word."""
    if one.rstrip("s") == other.rstrip("s"):
        return True
    return min(len(one), len(other)) >= SHORT and _edits(one, other, 1) <= 1


def _edits(one: str, other: str, limit: int) -> int:
    """Return how many letters must be changed, added, left out, or swapped with the next one, to
    make one word of the other; ``limit + 1`` if they are more than ``limit``."""
    if abs(len(one) - len(other)) > limit:
        return limit + 1
    before, row = [0] * (len(other) + 1), list(range(len(other) + 1))
    for i, letter in enumerate(one, 1):
        older, before, row = before, row, [i]
        for j, wanted in enumerate(other, 1):
            cost = min(before[j] + 1, row[-1] + 1, before[j - 1] + (letter != wanted))
            if i > 1 and j > 1 and letter == other[j - 2] and one[i - 2] == wanted:
                cost = min(cost, older[j - 2] + 1)
            row.append(cost)
        if min(row) > limit:
            return limit + 1
    return row[-1]


def parse_literal(text: str) -> Any:
    """Return the value of a Python literal, of true, false or none; any other text as it is."""
    plain = {"true": True, "false": False, "none": None}
    if text.lower() in plain:
        return plain[text.lower()]
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError):  # a word
        return text
