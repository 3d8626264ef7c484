"""Ranks of several algorithms, and how sure they are.

On each task algorithms are ranked by their mean score, 1 the best, equal means sharing their
ranks; the mean over tasks is the mean rank. Intervals and probabilities come from resamples in
which every algorithm's runs are drawn again on each task. A rank is a statement about the set it
was made in: it is the one statistic here that another algorithm changes.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

import numpy as np
from jaxtyping import Float

from sterling.statistics.aggregate import task_means
from sterling.statistics.interval import Estimate, checked_level
from sterling.statistics.resample import generator, weights
from sterling.statistics.scores import Failed, Given, Sample, sample
from sterling.types import Mistake


@dataclasses.dataclass(frozen=True)
class Ranks:
    """Mean ranks with intervals, and how often each name takes each rank."""

    names: tuple[str, ...]
    mean: dict[str, Estimate]
    probability: Float[np.ndarray, "name rank"]  # over resamples and tasks; ties shared evenly
    level: float

    def of(self, name: str) -> Float[np.ndarray, "rank"]:
        """The probability of ranks 1, 2, ... for one name."""
        return self.probability[self.names.index(name)]


def ranks(
    scores_by_name: Mapping[str, Given],
    *,
    level: float = 0.95,
    key: int = 0,
    failed: Failed = None,
    draws: int = 2_000,
) -> Ranks:
    """Ranks of ``(run,)`` or ``(run, task)`` scores over the same tasks; higher scores are better.

    With a single run of some algorithm there are ranks but no intervals.
    """
    checked_level(level)
    names = tuple(scores_by_name)
    samples = samples_of(scores_by_name, failed)
    points = np.stack([task_means(made, np.ones((1, made.values.size))) for made in samples])
    drawn = np.stack([_resampled(*one, draws, key) for one in zip(names, samples, strict=True)])
    here, found = _ranked(points), _ranked(drawn)  # (name, draw, task)
    n = min(made.n for made in samples)
    mean = {
        name: _estimate(float(here[i].mean()), found[i].mean(1), n, samples[i].note, level)
        for i, name in enumerate(names)
    }
    return Ranks(names, mean, _probability(drawn), level)


def samples_of(scores_by_name: Mapping[str, Given], failed: Failed) -> list[Sample]:
    """One sample per name; raises Mistake unless there are two over equally many tasks."""
    if len(scores_by_name) < 2:
        raise Mistake(f"nothing to compare: {len(scores_by_name)} algorithm; give two or more")
    samples = [sample(scores, failed) for scores in scores_by_name.values()]
    counts = {name: made.tasks for name, made in zip(scores_by_name, samples, strict=True)}
    if len(set(counts.values())) > 1:
        said = ", ".join(f"{name} {count}" for name, count in counts.items())
        raise Mistake(f"the numbers of tasks differ ({said}); select the same tasks for all")
    return samples


def _resampled(name: str, made: Sample, draws: int, key: int) -> Float[np.ndarray, "draw task"]:
    """Task means of resamples; each name has its own stream, so copies do not move alike."""
    rng = generator(key, f"ranks {name}")
    return np.concatenate([task_means(made, drawn) for drawn in weights(made, draws, rng)])


def _beside(means: Float[np.ndarray, "name draw task"]) -> tuple[np.ndarray, np.ndarray]:
    """How many others are above each, and how many are equal to it."""
    above = (means[None] > means[:, None]).sum(1)
    equal = (means[None] == means[:, None]).sum(1) - 1
    return above, equal


def _ranked(means: Float[np.ndarray, "name draw task"]) -> Float[np.ndarray, "name draw task"]:
    """1 + how many are above + half of how many others are equal."""
    above, equal = _beside(means)
    return 1.0 + above + equal / 2.0


def _probability(means: Float[np.ndarray, "name draw task"]) -> Float[np.ndarray, "name rank"]:
    """How often each rank was taken; of k that are equal each has a k-th of each of their ranks."""
    above, equal = _beside(means)
    shares = [
        ((above < place) & (place <= above + equal + 1)) / (equal + 1.0)
        for place in range(1, len(means) + 1)
    ]
    return np.stack([share.mean((1, 2)) for share in shares], 1)


def _estimate(value: float, found: np.ndarray, n: int, note: str, level: float) -> Estimate:
    if n == 1:
        method = f"none (one run); {note}" if note else "none (one run)"
        return Estimate(value, None, None, n, method, level)
    tail = (1.0 - level) / 2.0
    low, high = np.quantile(found, [tail, 1.0 - tail])
    method = f"bootstrap; {note}" if note else "bootstrap"
    return Estimate(value, float(low), float(high), n, method, level)
