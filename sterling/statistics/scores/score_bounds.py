"""Declared bounds of scores: no score of a task can lie below the first or above the second.

Bounds are a pair ``(low, high)``; either may be None where nothing is declared on that side. They
are declared by whoever knows the task (``sterling/references/return_bounds.json``) and never
guessed from scores: three returns of 0 are not three failures of a task whose scores lie between 0
and 1.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from jaxtyping import Bool, Float

from sterling.statistics.scores.score_table import FailedRule
from sterling.types import Mistake

Bounds = tuple[float | int | None, float | int | None]
BoundsLike = Sequence[float | int | None] | None  # bounds in the form that callers pass
NEAR_BOUND_SHARE = 0.02  # share of the range within which a score counts as lying at a bound
ROUNDING_SHARE = 1e-6  # share of the range by which float32 sums may exceed a bound


def parse_bounds(within: Any) -> Bounds:
    """Return the bounds as two floats or Nones; an infinite bound counts as not declared.

    Raises Mistake for anything but two numbers of which the first is lower.
    """
    if within is None:
        return None, None
    try:
        low, high = (None if x is None or math.isinf(x) else float(x) for x in within)
    except (TypeError, ValueError, OverflowError) as error:
        raise Mistake(
            f"the bounds of scores must be two numbers, low and high (or None); got {within!r}"
        ) from error
    if low is not None and high is not None and not low < high:
        raise Mistake(f"the lower bound of scores must lie below the upper one; got {within!r}")
    return low, high


def drop_violated_bounds(values: Float[np.ndarray, "score"], bounds: Bounds) -> tuple[Bounds, str]:
    """Return the bounds that no score violates, and one line about those dropped ("" if none)."""
    low, high = bounds
    slack = ROUNDING_SHARE * _bounds_range(values, bounds)
    notes = []
    if low is not None and float(values.min()) < low - slack:
        notes.append(f"declared lower bound {low:g} dropped: a score is {values.min():g}")
        low = None
    if high is not None and float(values.max()) > high + slack:
        notes.append(f"declared upper bound {high:g} dropped: a score is {values.max():g}")
        high = None
    return (low, high), "; ".join(notes)


def has_score_at_bound(
    values: Float[np.ndarray, "run *rest"], bounds: Bounds
) -> Bool[np.ndarray, "*rest"]:
    """Return for each column whether a score lies at a declared bound.

    Within 2 % of the range counts as at the bound. Where only one bound is declared, the range is
    from there to the score farthest from it.
    """
    found = np.zeros(values.shape[1:], bool)
    scale = _bounds_range(values, bounds)
    for bound in bounds:
        if bound is not None:
            found |= (np.abs(values - bound) <= NEAR_BOUND_SHARE * scale).any(0)
    return found


def _bounds_range(values: Float[np.ndarray, "run *rest"], bounds: Bounds) -> Any:
    """Return the range of the scores: between both bounds, or from one to the farthest score."""
    low, high = bounds
    if low is not None and high is not None:
        return high - low
    bound = low if low is not None else high
    return 0.0 if bound is None else np.abs(values - bound).max(0)


def worst_score(within: BoundsLike, better: int = 1) -> float | None:
    """Return the worst possible score by the declared bounds; None where it is not declared.

    The lower bound, or the upper one where lower scores are better (``better`` below 0); None where
    neither direction is better.
    """
    low, high = parse_bounds(within)
    return {1: low, -1: high}.get(better)


def resolve_failed_score(failed: FailedRule, within: BoundsLike, better: int = 1) -> FailedRule:
    """Return ``failed`` with "worst" replaced by the worst possible score.

    Raises Mistake where the bounds do not declare it.
    """
    if failed != "worst":
        return failed
    low = worst_score(within, better)
    if low is None:
        raise Mistake(
            "failed='worst' needs the worst possible score, and none is declared here; "
            "declare the bounds of scores, or use failed=<number>"
        )
    return low


def check_failed_score(failed: Any) -> FailedRule:
    """Return ``failed``; Mistake unless it is a finite number, "worst", "exclude" or None."""
    if failed in (None, "worst", "exclude"):
        return failed
    if (
        isinstance(failed, bool)
        or not isinstance(failed, (int, float))
        or not abs(failed) < math.inf
    ):
        raise Mistake(f"failed must be a finite number, 'worst' or 'exclude'; got {failed!r}")
    return failed


def unseen_share(n: int, chance: float = 0.05) -> float:
    """Return the largest share of all runs that n runs miss entirely with chance ``chance``.

    (1 - p)^n = chance: 45 % at 5 runs, 26 % at 10, 14 % at 20.
    """
    return 1.0 - chance ** (1.0 / n)


def unseen_collapse_text(n: int) -> str:
    """Return the sentence that says what n runs cannot exclude."""
    return f"{n} seeds cannot exclude that up to {100 * unseen_share(n):.0f} % of runs fail"
