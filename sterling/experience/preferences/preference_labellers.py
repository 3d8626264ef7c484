"""Labellers: functions that say which of two segments of experience is preferred.

    return                  the larger sum of the world's rewards; equal sums give 0.5
    ask                     a person at the terminal
    FILE.py:object          ``object(first, second)``, also package.module:object

A labeller is given two :class:`Record` of NumPy arrays, ``(time, ...)``. It returns 0 if it prefers
the first, 1 for the second, 0.5 if it cannot tell.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from sterling.lookup import user_imports
from sterling.types import Mistake, Record

Labeller = Callable[[Record, Record], float]
RETURN, ASK = "return", "ask"
ROWS_SHOWN = 10  # rows of a segment that are printed
ANSWERS = {"1": 0.0, "2": 1.0, "=": 0.5}


def find(word: str) -> Labeller:
    """Return the labeller of this name; Mistake if there is none."""
    if word in BUILT_IN:
        return BUILT_IN[word]
    if not user_imports.is_reference(word):
        raise Mistake(f"unknown labeller {word!r}; use return, ask or FILE.py:object")
    found = user_imports.load(user_imports.absolute_reference(word))
    if not callable(found):
        raise Mistake(f"labeller={word!r} is not callable; name a function of two segments")
    return found


def by_return(first: Record, second: Record) -> float:
    """Prefer the segment with the larger sum of rewards."""
    one, other = (float(np.sum(each.reward, dtype=np.float64)) for each in (first, second))
    return 0.5 if one == other else float(other > one)


def by_asking(first: Record, second: Record) -> float:
    """Ask at the terminal: print some rows of each segment, and read 1, 2 or =."""
    for number, each in enumerate((first, second), 1):
        print(f"\n{number}: observation -> action, {len(each.mask)} steps")
        for row in np.unique(np.linspace(0, len(each.mask) - 1, ROWS_SHOWN).astype(int)):
            print(f"  {row:4d}  {np.ravel(each.obs[row])} -> {np.ravel(each.action[row])}")
    while (said := input("Which is better, 1 or 2 (= for neither)? ").strip()) not in ANSWERS:
        print("Type 1, 2 or =.")
    return ANSWERS[said]


BUILT_IN: dict[str, Labeller] = {RETURN: by_return, ASK: by_asking}
