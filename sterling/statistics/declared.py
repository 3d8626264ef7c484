"""Declared bounds of scores: what no score of a task can lie below or above.

A pair ``(low, high)``; either may be None where nothing is declared on that side. Bounds are
declared by whoever knows the task (``sterling/references/return_bounds.json``), never guessed from
scores: three returns of 0 are not three failures of a task whose scores lie between 0 and 1.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from jaxtyping import Bool, Float

from sterling.statistics.scores import Failed
from sterling.types import Mistake

Bounds = tuple[float | int | None, float | int | None]
Within = Sequence[float | int | None] | None  # as a caller declares them
NEAR = 0.02  # share of the range within which a score counts as lying at a bound
ROUNDING = 1e-6  # share of the range by which a score may pass a bound: float32 sums


def checked(within: Any) -> Bounds:
    """Return the bounds as two floats or Nones; infinity declares nothing.

    Raises Mistake for anything but two numbers of which the first is lower.
    """
    if within is None:
        return None, None
    try:
        low, high = (None if x is None or math.isinf(x) else float(x) for x in within)
    except (TypeError, ValueError, OverflowError) as error:
        raise Mistake(
            f"bounds of scores are two numbers, low and high (or None); got {within!r}"
        ) from error
    if low is not None and high is not None and not low < high:
        raise Mistake(f"the lower bound of scores must lie below the upper one; got {within!r}")
    return low, high


def kept(values: Float[np.ndarray, "score"], bounds: Bounds) -> tuple[Bounds, str]:
    """Return the bounds that no score passes, and one line on those that are dropped ("": none)."""
    low, high = bounds
    slack = ROUNDING * _scale(values, bounds)
    notes = []
    if low is not None and float(values.min()) < low - slack:
        notes.append(f"declared lower bound {low:g} dropped: a score is {values.min():g}")
        low = None
    if high is not None and float(values.max()) > high + slack:
        notes.append(f"declared upper bound {high:g} dropped: a score is {values.max():g}")
        high = None
    return (low, high), "; ".join(notes)


def at_bound(values: Float[np.ndarray, "run *rest"], bounds: Bounds) -> Bool[np.ndarray, "*rest"]:
    """Return whether a score of each column lies at a declared bound, or within 2 % of the range.

    Where one bound alone is declared the range is from there to the score farthest from it.
    """
    found = np.zeros(values.shape[1:], bool)
    scale = _scale(values, bounds)
    for bound in bounds:
        if bound is not None:
            found |= (np.abs(values - bound) <= NEAR * scale).any(0)
    return found


def _scale(values: Float[np.ndarray, "run *rest"], bounds: Bounds) -> Any:
    low, high = bounds
    if low is not None and high is not None:
        return high - low
    bound = low if low is not None else high
    return 0.0 if bound is None else np.abs(values - bound).max(0)


def worst(within: Within, better: int = 1) -> float | None:
    """Return the worst score that is possible: the lower bound, or the upper one where less is
    better (``better`` below 0); None where it is not declared or neither direction is better."""
    low, high = checked(within)
    return {1: low, -1: high}.get(better)


def counted_as(failed: Failed, within: Within, better: int = 1) -> Failed:
    """Return ``failed`` with "worst" replaced by the declared bound that is worst.

    Raises Mistake where none is declared.
    """
    if failed != "worst":
        return failed
    low = worst(within, better)
    if low is None:
        raise Mistake(
            "failed='worst' needs the worst possible score, and none is declared here; "
            "declare the bounds of scores, or give failed=<number>"
        )
    return low


def checked_failed(failed: Any) -> Failed:
    """Return what a failed run counts as; Mistake unless a finite number, "worst" or "exclude"."""
    if failed in (None, "worst", "exclude"):
        return failed
    if (
        isinstance(failed, bool)
        or not isinstance(failed, (int, float))
        or not abs(failed) < math.inf
    ):
        raise Mistake(
            f"a failed run counts as a finite number, 'worst' or 'exclude'; got {failed!r}"
        )
    return failed


def unseen_share(n: int, chance: float = 0.05) -> float:
    """Return the largest share of all runs that n runs miss altogether with chance ``chance``.

    (1 - p)^n = chance: 45 % at 5 runs, 26 % at 10, 14 % at 20.
    """
    return 1.0 - chance ** (1.0 / n)


def rule_of(n: int) -> str:
    """Return the sentence that says what n runs cannot exclude."""
    share = unseen_share(n)
    return (
        f"a collapse of up to {100 * share:.0f} % of all runs would have stayed unseen in {n} seeds"
    )
