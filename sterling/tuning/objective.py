"""What a trial is scored by: one number per seed, larger is better, then one over the seeds.

    last      interquartile mean of the newest tenth of the returns logged while learning (default)
    bound     ``last``, and over seeds the mean less one standard error
    area      the mean of all returns logged: how early it learned counts as well
    final     the mean return of deterministic episodes of the last policy

Returns, or a channel that the world reports; where less of it is better, scores are the negatives.
Not the best over time, which rewards luck. A tenth is a tenth of the rows a full run would log;
rows in which no episode ended say nothing and are passed over. A seed that diverged counts as the
lowest return it ever logged; one that never finished an episode has no score, and a trial with
such a seed ranks last.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from jaxtyping import Float

from sterling.naming import hint
from sterling.tuning.search import Combine, lower_bound, mean
from sterling.types import Mistake

Returns = Sequence[float | None]  # one seed's logged returns, oldest first; None: no episode ended
OBJECTIVES = ("last", "bound", "area", "final")
ROWS = 100  # a full run logs about so many


def check(name: str) -> str:
    """The name, or a Mistake."""
    if name not in OBJECTIVES:
        near = hint(name, OBJECTIVES, f"there are {', '.join(OBJECTIVES)}")
        raise Mistake(f"objective {name!r} is not known{near}")
    return name


def combine(name: str) -> Combine:
    """How an objective's scores of several seeds become one."""
    return lower_bound if name == "bound" else mean


def worst(returns: Returns, better: int = 1) -> float | None:
    """What a seed that diverged counts as; ``better`` -1: of a metric of which less is better."""
    known = [float(value) for value in returns if value is not None]
    if not known:
        return None
    return max(known) if better < 0 else min(known)


def score(name: str, returns: Returns, rows: int, failed: bool) -> float | None:
    """One seed's score from its logged returns; ``rows`` is what a full run logs.

    ``final`` has no rows to look at and is measured by whoever holds the agents.
    """
    known = [float(value) for value in returns if value is not None]
    if not known:
        return None
    if failed:
        return worst(known)
    if name == "area":
        return float(np.mean(known))
    newest = [value for value in returns[-max(1, math.ceil(rows / 10)) :] if value is not None]
    return interquartile_mean(np.array(newest or known[-1:], np.float64))


def interquartile_mean(values: Float[np.ndarray, "n"]) -> float:
    """The mean without the lowest and the highest quarter (floor(n / 4) each)."""
    cut = len(values) // 4
    return float(np.sort(values)[cut : len(values) - cut].mean())
