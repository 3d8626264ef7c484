"""Ranks of several algorithms, with their probabilities.

On each task algorithms are ranked by their mean score, 1 the best; equal means share their ranks.
The mean over tasks is the mean rank. Intervals and probabilities come from resamples in which every
algorithm's runs are drawn again on each task. A rank depends on the set that is compared: it is the
one statistic here that adding another algorithm changes.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

import numpy as np
from jaxtyping import Float

from sterling.statistics.intervals.aggregates import task_means
from sterling.statistics.intervals.estimates import Estimate, check_confidence_level
from sterling.statistics.intervals.stratified_resampling import random_generator, resample_weights
from sterling.statistics.scores.score_table import FailedRule, Sample, ScoresLike, make_sample
from sterling.types import Mistake


@dataclasses.dataclass(frozen=True)
class Ranks:
    """Mean ranks with intervals, and how often each algorithm takes each rank."""

    names: tuple[str, ...]
    mean: dict[str, Estimate]
    probability: Float[np.ndarray, "name rank"]  # over resamples and tasks; ties shared evenly
    level: float

    def rank_probabilities(self, name: str) -> Float[np.ndarray, "rank"]:
        """Return the probabilities of ranks 1, 2, ... for one algorithm."""
        return self.probability[self.names.index(name)]


def ranks(
    scores_by_name: Mapping[str, ScoresLike],
    *,
    level: float = 0.95,
    key: int = 0,
    failed: FailedRule = None,
    draws: int = 2_000,
) -> Ranks:
    """Rank ``(run,)`` or ``(run, task)`` scores over the same tasks; higher scores are better.

    Where an algorithm has a single run there are ranks but no intervals.
    """
    check_confidence_level(level)
    names = tuple(scores_by_name)
    samples = comparable_samples(scores_by_name, failed)
    points = np.stack([task_means(sample, np.ones((1, sample.values.size))) for sample in samples])
    drawn = np.stack(
        [_resampled_task_means(*one, draws, key) for one in zip(names, samples, strict=True)]
    )
    here, found = _ranks_with_ties(points), _ranks_with_ties(drawn)  # (name, draw, task)
    n = min(sample.n for sample in samples)
    mean = {
        name: _rank_estimate(float(here[i].mean()), found[i].mean(1), n, samples[i].note, level)
        for i, name in enumerate(names)
    }
    return Ranks(names, mean, _rank_probabilities(drawn), level)


def comparable_samples(
    scores_by_name: Mapping[str, ScoresLike], failed: FailedRule
) -> list[Sample]:
    """Return one sample per name; raises Mistake unless two or more share their number of tasks."""
    if len(scores_by_name) < 2:
        raise Mistake(f"nothing to compare: {len(scores_by_name)} algorithm; give two or more")
    samples = [make_sample(scores, failed) for scores in scores_by_name.values()]
    counts = {name: sample.tasks for name, sample in zip(scores_by_name, samples, strict=True)}
    if len(set(counts.values())) > 1:
        listing = ", ".join(f"{name} {count}" for name, count in counts.items())
        raise Mistake(f"the numbers of tasks differ ({listing}); select the same tasks for all")
    return samples


def _resampled_task_means(
    name: str, sample: Sample, draws: int, key: int
) -> Float[np.ndarray, "draw task"]:
    """Return task means of resamples, with an own random stream for each name."""
    rng = random_generator(key, f"ranks {name}")
    return np.concatenate(
        [task_means(sample, drawn) for drawn in resample_weights(sample, draws, rng)]
    )


def _count_above_and_equal(
    means: Float[np.ndarray, "name draw task"],
) -> tuple[np.ndarray, np.ndarray]:
    """Return how many others are above each algorithm, and how many equal it."""
    above = (means[None] > means[:, None]).sum(1)
    equal = (means[None] == means[:, None]).sum(1) - 1
    return above, equal


def _ranks_with_ties(
    means: Float[np.ndarray, "name draw task"],
) -> Float[np.ndarray, "name draw task"]:
    """Return ranks: 1 + how many are above + half of how many others are equal."""
    above, equal = _count_above_and_equal(means)
    return 1.0 + above + equal / 2.0


def _rank_probabilities(
    means: Float[np.ndarray, "name draw task"],
) -> Float[np.ndarray, "name rank"]:
    """Return how often each rank was taken; k equal means share their k ranks evenly."""
    above, equal = _count_above_and_equal(means)
    shares = [
        ((above < place) & (place <= above + equal + 1)) / (equal + 1.0)
        for place in range(1, len(means) + 1)
    ]
    return np.stack([share.mean((1, 2)) for share in shares], 1)


def _rank_estimate(value: float, found: np.ndarray, n: int, note: str, level: float) -> Estimate:
    """Return a mean rank with its percentile interval; no interval for one run."""
    if n == 1:
        method = f"none (one run); {note}" if note else "none (one run)"
        return Estimate(value, None, None, n, method, level)
    tail = (1.0 - level) / 2.0
    low, high = np.quantile(found, [tail, 1.0 - tail])
    method = f"bootstrap; {note}" if note else "bootstrap"
    return Estimate(value, float(low), float(high), n, method, level)
