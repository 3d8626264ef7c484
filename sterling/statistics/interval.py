"""The mean of several runs, and how far it can be trusted.

    mean +- t_{n-1} * s / sqrt(n)

where s is the sample deviation (n - 1 below the fraction) and t_{n-1} the quantile of Student's
distribution (Student 1908, "The probable error of a mean"). Exact for normal scores. The unit is
one run, that is one seed: the episodes of a run share its policy and are not independent.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from jaxtyping import Array, Num

from sterling.types import Mistake


@dataclasses.dataclass(frozen=True)
class Estimate:
    """A number and its interval, in the unit of the scores."""

    value: float
    low: float | None  # None where one run cannot give an interval
    high: float | None
    n: int  # runs it rests on
    method: str  # how the interval was made
    level: float  # share of such intervals that hold the true mean

    def __str__(self) -> str:
        bounds = [bound for bound in (self.low, self.high) if bound is not None]
        value, *ends = _written([self.value, *bounds])
        return f"{value} [{', '.join(ends)}]" if ends else f"{value} (one run, no interval)"

    def to_json(self) -> dict[str, Any]:
        """Plain values under the fields' names."""
        return dataclasses.asdict(self)

    @classmethod
    def from_json(cls, plain: dict[str, Any]) -> Estimate:
        """The inverse, other entries passed over; ``result.json`` says ``estimate`` for value."""
        plain = {"value": plain.get("estimate"), **plain}
        return cls(**{field.name: plain[field.name] for field in dataclasses.fields(cls)})


def estimate(
    scores: Sequence[float | int] | Num[np.ndarray | Array, "run"], level: float = 0.95
) -> Estimate:
    """The mean of one score per run, with Student's t interval at ``level``.

    One run gives no interval (``low`` and ``high`` are None). Runs that all scored the same give
    an interval of width zero: their spread says nothing of chance that did not show.

    Raises Mistake for no scores, for more than one number per run, and for NaN or infinity: the
    caller has to say what a failed run counts as.
    """
    values = np.asarray(scores, np.float64)
    if values.ndim != 1 or values.size == 0:
        raise Mistake(f"an estimate needs one score per run; got an array of shape {values.shape}")
    if not np.isfinite(values).all():
        bad = int((~np.isfinite(values)).sum())
        raise Mistake(f"{bad} of {values.size} scores are not finite; leave out failed runs first")
    if not 0.0 < level < 1.0:
        raise Mistake(f"the level of an interval lies between 0 and 1; got {level}")
    mean, n = float(values.mean()), values.size
    if n == 1:
        return Estimate(mean, None, None, 1, "none (one run)", level)
    from scipy.special import stdtrit  # slow to import, and not every use needs an interval

    spread = 0.0 if np.ptp(values) == 0.0 else float(values.std(ddof=1))
    half = float(stdtrit(n - 1, 0.5 + level / 2)) * spread / math.sqrt(n)
    return Estimate(mean, mean - half, mean + half, n, "t", level)


def _written(numbers: Sequence[float]) -> list[str]:
    """The numbers with one common count of decimals: four digits for the largest."""
    largest = max(abs(number) for number in numbers)
    decimals = 3 if largest == 0.0 else min(max(3 - math.floor(math.log10(largest)), 0), 12)
    return [f"{round(number, decimals) + 0.0:.{decimals}f}" for number in numbers]
