"""Who says which of two stretches of experience is the better one.

return                  the larger sum of the world's rewards; equal ones 0.5
ask                     whoever sits at the terminal
FILE.py:object          ``object(first, second)``, also package.module:object

A labeller is given two :class:`Record` of NumPy arrays, ``(time, ...)``, and answers 0 for the
first, 1 for the second, 0.5 where it cannot tell.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from sterling import importing
from sterling.types import Mistake, Record

Labeller = Callable[[Record, Record], float]
RETURN, ASK = "return", "ask"
SHOWN = 10  # rows of a stretch that the terminal shows
ANSWERS = {"1": 0.0, "2": 1.0, "=": 0.5}


def find(word: str) -> Labeller:
    """Return the labeller of this name; Mistake where there is none."""
    if word in OWN:
        return OWN[word]
    if not importing.is_reference(word):
        raise Mistake(f"labeller={word!r} is not known; use return, ask or FILE.py:object")
    found = importing.load(importing.absolute(word))
    if not callable(found):
        raise Mistake(f"labeller={word!r} cannot be called; name a function of two stretches")
    return found


def by_return(first: Record, second: Record) -> float:
    """By the sum of the world's rewards."""
    one, other = (float(np.sum(each.reward, dtype=np.float64)) for each in (first, second))
    return 0.5 if one == other else float(other > one)


def by_asking(first: Record, second: Record) -> float:
    """By what is typed: 1, 2 or =. Each stretch is shown as numbers, some rows of it."""
    for number, each in enumerate((first, second), 1):
        print(f"\n{number}: observation -> action, {len(each.mask)} steps")
        for row in np.unique(np.linspace(0, len(each.mask) - 1, SHOWN).astype(int)):
            print(f"  {row:4d}  {np.ravel(each.obs[row])} -> {np.ravel(each.action[row])}")
    while (said := input("Which is better, 1 or 2 (= for neither)? ").strip()) not in ANSWERS:
        print("Type 1, 2 or =.")
    return ANSWERS[said]


OWN: dict[str, Labeller] = {RETURN: by_return, ASK: by_asking}
