"""Read the setting ``plasticity``: what is done to networks during training, and measured of them.

    reset:EVERY             every EVERY steps networks and optimisers begin anew
    perturb:EVERY,KEEP      every EVERY steps weights become KEEP w + (1 - KEEP) new ones
    decay:RATE              after every iteration matrices are multiplied by 1 - RATE
    units                   logs the shares of dormant units and the rank of hidden layers

Several are joined by "+". In learning from a dataset EVERY counts updates.
"""

from __future__ import annotations

import dataclasses
import math
from typing import Any

from sterling.lookup.name_suggestions import did_you_mean
from sterling.types import Mistake

FORMS = {
    "reset": "reset:EVERY, as reset:200_000",
    "perturb": "perturb:EVERY,KEEP, as perturb:40_000,0.8",
    "decay": "decay:RATE, as decay:0.0001",
    "units": "units, without numbers",
}


@dataclasses.dataclass(frozen=True)
class Plasticity:
    """What the setting asks for; :func:`parse_plasticity` reads it."""

    every: int = 0  # steps (or updates) between renewals of the weights; 0: never
    keep: float = 0.0  # share of the old weights in renewed ones
    decay: float = 0.0  # share of matrices that is lost in every iteration
    units: bool = False  # whether hidden units are measured


def parse_plasticity(words: str) -> Plasticity:
    """Return what ``words`` ask for; raise :class:`Mistake` for unknown words and wrong numbers."""
    found = Plasticity()
    seen: list[str] = []
    for part in words.split("+") if words else ():
        word, _, rest = part.strip().partition(":")
        if word not in FORMS:
            known = ", ".join(FORMS)
            raise Mistake(f"Unknown plasticity={word!r}{did_you_mean(word, list(FORMS), known)}")
        kind = "reset or perturb" if word in ("reset", "perturb") else word
        if kind in seen:
            raise Mistake(f"plasticity={words}: give {kind} once.")
        seen.append(kind)
        found = dataclasses.replace(found, **_numbers(word, rest))
    return found


def _numbers(word: str, rest: str) -> dict[str, Any]:
    """Return the fields of :class:`Plasticity` that one word sets."""
    try:
        numbers = [float(each) for each in rest.split(",")] if rest else []
    except ValueError:
        numbers = [math.nan]
    wrong = Mistake(f"plasticity={word}{':' if rest else ''}{rest}: write {FORMS[word]}.")
    if word == "units":
        if numbers:
            raise wrong
        return {"units": True}
    if len(numbers) != (2 if word == "perturb" else 1) or not all(map(math.isfinite, numbers)):
        raise wrong
    if word == "decay":
        if not 0.0 < numbers[0] < 1.0:
            raise Mistake(f"plasticity={word}:{rest}: RATE must be between 0 and 1.")
        return {"decay": numbers[0]}
    every, keep = numbers[0], numbers[1] if word == "perturb" else 0.0
    if every < 1 or every != int(every):
        raise Mistake(f"plasticity={word}:{rest}: EVERY must be a whole number of at least 1.")
    if word == "perturb" and not 0.0 < keep < 1.0:
        raise Mistake(f"plasticity={word}:{rest}: KEEP must be between 0 and 1.")
    return {"every": int(every), "keep": keep}
