"""Algorithms judged on a family of worlds: contexts such as masses, lengths, maps, opponents.

Scores here are ``(run, context)``, and a row is *one* run tried in every context, so rows are
resampled whole. The mean over contexts is ``estimate(scores, shared=True)``; CVaR over contexts is
``estimate(scores, cvar(0.1), shared=True)``.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from itertools import combinations

import numpy as np

from sterling.statistics.aggregate import KNOWN
from sterling.statistics.interval import Estimate, checked_level, estimate
from sterling.statistics.resample import generator, resampled, weights
from sterling.statistics.scores import Failed, Given, sample, scores_of
from sterling.types import Mistake


@dataclasses.dataclass(frozen=True)
class Worst:
    """The context with the lowest mean."""

    context: str
    estimate: Estimate
    probability: float  # share of resamples in which this context is the worst


@dataclasses.dataclass(frozen=True)
class RankChange:
    """Whether two algorithms stand in another order on other contexts."""

    first: str
    second: str
    there: float  # mean of first - mean of second on the contexts compared with
    here: float  # the same on the contexts of interest
    probability: float  # share of resamples in which the two orders differ


def generalisation_gap(
    train: Given,
    test: Given,
    *,
    level: float = 0.95,
    key: int = 0,
    failed: Failed = None,
) -> Estimate:
    """Mean over training contexts - mean over test contexts, of the same runs in the same order.

    Each run's own gap is one number, so what makes a run good everywhere cancels. With NaN,
    ``failed="exclude"`` is refused: it could leave different runs on either side.
    """
    if failed == "exclude":
        raise Mistake("a gap pairs the runs of both sides; say failed=<number>")
    sides = [estimate_rows(side, failed) for side in (train, test)]
    if sides[0].size != sides[1].size:
        raise Mistake(f"{sides[0].size} training and {sides[1].size} test runs are not the same")
    return estimate(sides[0] - sides[1], level=level, key=key)


def estimate_rows(given: Given, failed: Failed) -> np.ndarray:
    """The mean over contexts of each run."""
    made = sample(given, failed)
    if len(set(made.counts)) > 1:
        raise Mistake("every run must have been tried in every context")
    return made.values.reshape(made.tasks, made.n).mean(0)


def worst_context(
    scores: Given,
    *,
    level: float = 0.95,
    key: int = 0,
    failed: Failed = None,
    draws: int = 10_000,
) -> Worst:
    """The context with the lowest mean over runs, that mean, and how surely it is the worst."""
    checked_level(level)
    made = sample(scores, failed)
    means = np.array([column.mean() for column in made.columns])
    at = int(means.argmin())
    found = estimate(made.columns[at], level=level, key=key)
    rng, hits = generator(key, "worst"), 0
    for drawn in weights(made, draws, rng, shared=len(set(made.counts)) == 1):
        parts = np.split(drawn * made.values, made.starts[1:], axis=1)
        tries = np.stack([p.sum(1) / n for p, n in zip(parts, made.counts, strict=True)])
        hits += int((tries.argmin(0) == at).sum())
    return Worst(scores_of(scores).tasks[at], found, hits / draws)


def rank_changes(
    there: Mapping[str, Given],
    here: Mapping[str, Given],
    *,
    key: int = 0,
    failed: Failed = None,
    draws: int = 10_000,
) -> list[RankChange]:
    """For each pair, how likely the order ``here`` differs from the order ``there``.

    ``there`` might be one point of a family, ``here`` the whole of it. Runs of both sides are
    resampled on their own; equal means count half.
    """
    if set(there) != set(here) or len(here) < 2:
        raise Mistake("rank changes need the same two or more names on both sides")
    means = {
        side: {name: _draws(given, key, f"{side} {name}", failed, draws) for name, given in of}
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


def _draws(given: Given, key: int, purpose: str, failed: Failed, draws: int) -> np.ndarray:
    """The mean as it is, then of each resample of whole rows."""
    made = sample(given, failed)
    together = len(set(made.counts)) == 1
    rng = generator(key, purpose)
    found = resampled(made, KNOWN["mean"], draws, rng, shared=together)
    return np.concatenate([[KNOWN["mean"].point(made)], found])
