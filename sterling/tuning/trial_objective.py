"""Objectives: the score of a trial, one number per seed, larger is better, then one over the seeds.

    last      interquartile mean of the newest tenth of the returns logged in training (default)
    bound     ``last``, and over seeds the mean less one standard error
    area      the mean of all returns logged: early learning counts as well
    final     the mean return of deterministic episodes of the last policy

Returns, or a channel that the environment reports; where less of it is better, scores are negated.
Not the best over time, which rewards luck. A tenth is a tenth of the rows a full run would log;
rows in which no episode ended are skipped. A seed that diverged counts as the lowest return it ever
logged; one that never finished an episode has no score, and a trial with such a seed ranks last.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from jaxtyping import Float

from sterling.lookup.name_suggestions import did_you_mean
from sterling.tuning.searchers.searchers import Combine, lower_bound_score, mean_score
from sterling.types import Mistake

Returns = Sequence[float | None]  # one seed's logged returns, oldest first; None: no episode ended
OBJECTIVES = ("last", "bound", "area", "final")
FULL_RUN_ROWS = 100  # approximate number of rows of a full run


def check_objective(name: str) -> str:
    """Return the name; raises Mistake for an unknown one."""
    if name not in OBJECTIVES:
        near = did_you_mean(name, OBJECTIVES, f"use one of {', '.join(OBJECTIVES)}")
        raise Mistake(f"unknown objective {name!r}{near}")
    return name


def seed_combiner(name: str) -> Combine:
    """Return the function that combines the scores of several seeds."""
    return lower_bound_score if name == "bound" else mean_score


def worst_return(returns: Returns, better: int = 1) -> float | None:
    """Return what a diverged seed counts as; ``better`` -1: for a metric that is better when
    low."""
    logged = [float(value) for value in returns if value is not None]
    if not logged:
        return None
    return max(logged) if better < 0 else min(logged)


def score_seed(name: str, returns: Returns, rows: int, failed: bool) -> float | None:
    """Return one seed's score from its logged returns; ``rows`` is how many a full run logs.

    ``final`` uses no rows: it is measured by evaluating the agents.
    """
    logged = [float(value) for value in returns if value is not None]
    if not logged:
        return None
    if failed:
        return worst_return(logged)
    if name == "area":
        return float(np.mean(logged))
    newest = [value for value in returns[-max(1, math.ceil(rows / 10)) :] if value is not None]
    return interquartile_mean(np.array(newest or logged[-1:], np.float64))


def interquartile_mean(values: Float[np.ndarray, "n"]) -> float:
    """Return the mean without the lowest and the highest quarter (floor(n / 4) each)."""
    cut = len(values) // 4
    return float(np.sort(values)[cut : len(values) - cut].mean())
