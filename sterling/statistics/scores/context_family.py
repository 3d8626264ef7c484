"""Statistics over a family of environments: contexts such as masses, lengths, maps, opponents.

Scores here are ``(run, context)``; a row is *one* run evaluated in every context, so rows are
resampled whole. The mean over contexts is ``estimate(scores, shared=True)``; CVaR over contexts is
``estimate(scores, cvar(0.1), shared=True)``.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from itertools import combinations

import numpy as np

from sterling.statistics.intervals.aggregates import AGGREGATES_BY_NAME
from sterling.statistics.intervals.estimates import Estimate, check_confidence_level, estimate
from sterling.statistics.intervals.stratified_resampling import (
    random_generator,
    resample_statistic,
    resample_weights,
)
from sterling.statistics.scores.score_table import FailedRule, ScoresLike, as_scores, make_sample
from sterling.types import Mistake


@dataclasses.dataclass(frozen=True)
class Worst:
    """The context with the lowest mean."""

    context: str
    estimate: Estimate
    probability: float  # share of resamples in which this context is the worst


@dataclasses.dataclass(frozen=True)
class RankChange:
    """How likely two algorithms are ranked differently on two sets of contexts."""

    first: str
    second: str
    there: float  # mean of first - mean of second on the reference contexts
    here: float  # the same on the contexts of interest
    probability: float  # share of resamples in which the two orders differ


def generalisation_gap(
    train: ScoresLike,
    test: ScoresLike,
    *,
    level: float = 0.95,
    key: int = 0,
    failed: FailedRule = None,
) -> Estimate:
    """Estimate the mean over training contexts minus the mean over test contexts, of the same runs.

    Both have the same runs in the same order. Each run's own gap is one number, so whatever makes a
    run good everywhere cancels. With NaN, ``failed="exclude"`` is refused: it could leave different
    runs on either side.
    """
    if failed == "exclude":
        raise Mistake(
            "a gap pairs the runs of both sides, so none can be left out; use failed=<number>"
        )
    sides = [run_means(side, failed) for side in (train, test)]
    if sides[0].size != sides[1].size:
        raise Mistake(
            f"{sides[0].size} training and {sides[1].size} test runs are not the same runs"
        )
    return estimate(sides[0] - sides[1], level=level, key=key)


def run_means(given: ScoresLike, failed: FailedRule) -> np.ndarray:
    """Return each run's mean over contexts."""
    made = make_sample(given, failed)
    if len(set(made.counts)) > 1:
        raise Mistake("every run needs a score in every context")
    return made.values.reshape(made.tasks, made.n).mean(0)


def worst_context(
    scores: ScoresLike,
    *,
    level: float = 0.95,
    key: int = 0,
    failed: FailedRule = None,
    draws: int = 10_000,
) -> Worst:
    """Find the context with the lowest mean over runs, its mean, and how surely it is the worst."""
    check_confidence_level(level)
    made = make_sample(scores, failed)
    means = np.array([column.mean() for column in made.columns])
    at = int(means.argmin())
    found = estimate(made.columns[at], level=level, key=key)
    rng, hits = random_generator(key, "worst"), 0
    for drawn in resample_weights(made, draws, rng, shared=len(set(made.counts)) == 1):
        parts = np.split(drawn * made.values, made.starts[1:], axis=1)
        tries = np.stack([p.sum(1) / n for p, n in zip(parts, made.counts, strict=True)])
        hits += int((tries.argmin(0) == at).sum())
    return Worst(as_scores(scores).tasks[at], found, hits / draws)


def rank_changes(
    there: Mapping[str, ScoresLike],
    here: Mapping[str, ScoresLike],
    *,
    key: int = 0,
    failed: FailedRule = None,
    draws: int = 10_000,
) -> list[RankChange]:
    """Return, for each pair, how likely the order ``here`` differs from the order ``there``.

    ``there`` might be one point of a family, ``here`` the whole family. Runs of both sides are
    resampled independently; equal means count half.
    """
    if set(there) != set(here) or len(here) < 2:
        raise Mistake("rank changes need the same names on both sides, two or more")
    means = {
        side: {
            name: _resampled_means(given, key, f"{side} {name}", failed, draws)
            for name, given in of
        }
        for side, of in (("there", there.items()), ("here", here.items()))
    }
    made = []
    for first, second in combinations(here, 2):
        away = {s: means[s][first] - means[s][second] for s in ("there", "here")}
        signs = np.sign(away["there"][1:]) * np.sign(away["here"][1:])
        probability = float((1.0 - signs).mean() / 2.0)
        points = (float(away["there"][0]), float(away["here"][0]))
        made.append(RankChange(first, second, *points, probability))
    return made


def _resampled_means(
    given: ScoresLike, key: int, purpose: str, failed: FailedRule, draws: int
) -> np.ndarray:
    """Return the mean of the scores, followed by the mean of each resample of whole rows."""
    made = make_sample(given, failed)
    together = len(set(made.counts)) == 1
    rng = random_generator(key, purpose)
    found = resample_statistic(made, AGGREGATES_BY_NAME["mean"], draws, rng, shared=together)
    return np.concatenate([[AGGREGATES_BY_NAME["mean"].point(made)], found])
