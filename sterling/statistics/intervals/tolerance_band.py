"""Tolerance bands: where the next run will land, which is not the interval of the mean.

The interval of a mean shrinks with more runs; the spread of runs does not. Distribution-free (Wilks
1941): the scores from the r-th lowest to the r-th highest of n hold at least the share p of all
runs with confidence

    P(Beta(n + 1 - 2 r, 2 r) > p);    r = 1, lowest to highest:  1 - n p^(n-1) + (n-1) p^n
"""

from __future__ import annotations

import dataclasses

import numpy as np

from sterling.statistics.scores.score_table import FailedRule, ScoresLike, make_sample
from sterling.types import Mistake


@dataclasses.dataclass(frozen=True)
class Tolerance:
    """A band that holds at least ``coverage`` of all runs with ``confidence``."""

    low: float | None  # None for one run
    high: float | None
    coverage: float
    confidence: float  # reached with n runs; may be below the one requested
    n: int
    method: str

    def __str__(self) -> str:
        if self.low is None:
            return "one run shows no spread"
        return (
            f"[{self.low:.4g}, {self.high:.4g}] holds {self.coverage:.0%} of runs "
            f"with confidence {self.confidence:.0%}"
        )


def tolerance(
    scores: ScoresLike,
    coverage: float | int = 0.8,
    *,
    confidence: float = 0.95,
    failed: FailedRule = None,
) -> Tolerance:
    """Return the narrowest pair of ordered scores that holds ``coverage`` with ``confidence``.

    Where n runs cannot support that confidence, the band is from the lowest to the highest score,
    and the result states the confidence reached: 62 % for n = 10 at coverage 0.8. One task at a
    time.
    """
    for name, share in (("coverage", coverage), ("confidence", confidence)):
        if not 0.0 < share < 1.0:
            raise Mistake(f"{name} must lie between 0 and 1; got {share}")
    sample = make_sample(scores, failed)
    if sample.tasks > 1:
        raise Mistake(f"tolerance takes one task, but these scores have {sample.tasks}; select one")
    values, n = np.sort(sample.values), sample.n
    method = f"order statistics; {sample.note}" if sample.note else "order statistics"
    if n == 1:
        return Tolerance(None, None, coverage, 0.0, 1, "none (one run)")
    enough = [r for r in range(1, (n + 1) // 2) if _band_confidence(n, r, coverage) >= confidence]
    r = max(enough, default=1)
    sure = _band_confidence(n, r, coverage)
    return Tolerance(float(values[r - 1]), float(values[n - r]), coverage, sure, n, method)


def _band_confidence(n: int, r: int, coverage: float) -> float:
    """Return the confidence that the r-th lowest to the r-th highest of n hold ``coverage``."""
    from scipy.special import betainc

    return 1.0 - float(betainc(n + 1 - 2 * r, 2 * r, coverage))
