"""Searchers: which configuration is tried next, as a function of a key and the scores so far.

    job = searcher.ask()                         # the next job; None: tell more scores first
    searcher.tell(job.id, scores_per_seed, cost)

A searcher draws its randomness by (key, purpose, counter) and reads no clock, so asking and telling
again in the same order makes the same decisions: that is how a study resumes.
"""

from __future__ import annotations

import dataclasses
import math
import zlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol, runtime_checkable

import numpy as np

from sterling.tuning.search_space import Fields, Space

SeedScores = Sequence[float | None]  # one per seed; None: this seed has no score
Cost = Mapping[str, float | int]  # "steps" or "updates" of all seeds, "seconds" of a process
Combine = Callable[[SeedScores], float]


@dataclasses.dataclass(frozen=True)
class Job:
    """Train one trial's agents, one per seed, from ``start`` to ``stop`` steps or updates.

    ``start`` > 0 continues from the trial's checkpoint at ``start``; with ``origin`` the agents
    (not the experience) come from another trial's checkpoint at that step. ``kept``: a later job
    may continue from here, so the checkpoint is written.
    """

    id: int  # counts jobs
    trial: int  # counts configurations
    fields: Fields
    start: int
    stop: int
    kept: bool = False
    origin: int | None = None
    seeds: tuple[int, ...] = ()  # set by the study

    def to_json(self) -> dict[str, Any]:
        """Return plain values."""
        return {**dataclasses.asdict(self), "seeds": list(self.seeds)}


@dataclasses.dataclass(frozen=True)
class Incumbent:
    """The best trial; ``plan`` is how it was trained: ``(start, stop, fields)`` in order."""

    trial: int
    score: float
    scores: tuple[float | None, ...]
    fields: Fields
    plan: tuple[tuple[int, int, Fields], ...]


@runtime_checkable
class Searcher(Protocol):
    """Chooses configurations and how long each is trained."""

    def ask(self) -> Job | None:
        """Return the next job; None while (or because) there is none."""
        ...

    def tell(self, id: int, scores: SeedScores, cost: Cost) -> None:
        """Record a job's scores, one per seed; larger is better."""
        ...

    def best(self) -> Incumbent | None:
        """Return the best of the trials that were trained longest."""
        ...


def random_generator(key: int, purpose: str, counter: int) -> np.random.Generator:
    """Return randomness for ``purpose`` at ``counter``; NumPy's Philox."""
    return np.random.Generator(np.random.Philox([key, zlib.crc32(purpose.encode()), counter]))


def mean_score(scores: SeedScores) -> float:
    """Return the mean over seeds; -inf where a seed has no score."""
    values = [math.nan if score is None else float(score) for score in scores]
    found = float(np.mean(values))
    return found if math.isfinite(found) else -math.inf


def lower_bound_score(scores: SeedScores) -> float:
    """Return the mean less one standard error: prefers settings that are good for every seed."""
    if len(scores) < 2:
        return mean_score(scores)
    found = mean_score(scores)
    if found == -math.inf:
        return found
    return found - float(np.std(np.array(scores, np.float64), ddof=1)) / math.sqrt(len(scores))


def rank_trials(scores: dict[int, float]) -> list[int]:
    """Return the trials, the best first; of equals the older first."""
    return sorted(scores, key=lambda trial: (-scores[trial], trial))


class JobLedger:
    """The jobs asked for and the scores told, for every searcher."""

    def __init__(self, combine: Combine):
        self._combine = combine
        self.jobs: list[Job] = []
        self.scores: dict[int, tuple[float | None, ...]] = {}  # by the job's id

    def new_job(self, **parts: Any) -> Job:
        """Create a job with the next id."""
        self.jobs.append(Job(len(self.jobs), **parts))
        return self.jobs[-1]

    def record(self, id: int, scores: SeedScores) -> Job:
        """Record the scores of a job and return the job."""
        self.scores[id] = tuple(scores)
        return self.jobs[id]

    def score(self, id: int) -> float:
        """Return a job's score over its seeds."""
        return self._combine(self.scores[id])

    @property
    def pending(self) -> bool:
        """Whether a job has no scores yet."""
        return len(self.scores) < len(self.jobs)

    def incumbent(self) -> Incumbent | None:
        """Return the best of the jobs that were trained longest, with the plan that led there."""
        if not self.scores:
            return None
        longest = max(self.jobs[id].stop for id in self.scores)
        last = [id for id in self.scores if self.jobs[id].stop == longest]
        best = min(last, key=lambda id: (-self.score(id), id))
        job = self.jobs[best]
        plan = self._plan(job)
        return Incumbent(job.trial, self.score(best), self.scores[best], job.fields, plan)

    def _plan(self, job: Job) -> tuple[tuple[int, int, Fields], ...]:
        """Return the stages of training that end in ``job``, through trials it was copied from."""
        steps = [(job.start, job.stop, job.fields)]
        while job.start > 0:
            trial = job.trial if job.origin is None else job.origin
            job = next(j for j in self.jobs if j.trial == trial and j.stop == job.start)
            steps.append((job.start, job.stop, job.fields))
        return _merge_equal_stages(steps[::-1])


def _merge_equal_stages(
    steps: list[tuple[int, int, Fields]],
) -> tuple[tuple[int, int, Fields], ...]:
    """Merge neighbouring stages with equal fields."""
    made = [steps[0]]
    for start, stop, fields in steps[1:]:
        if fields == made[-1][2]:
            made[-1] = (made[-1][0], stop, fields)
        else:
            made.append((start, stop, fields))
    return tuple(made)


class RandomSearch:
    """``trials`` configurations drawn from the space, each trained for all ``steps``.

    Bergstra and Bengio 2012 (JMLR 13): better than a grid wherever few dimensions matter.
    """

    def __init__(
        self, space: Space, key: int, trials: int, steps: int, combine: Combine = mean_score
    ):
        self.space, self._key, self._trials, self._steps = space, key, trials, steps
        self._ledger = JobLedger(combine)

    def ask(self) -> Job | None:
        """Return a job for the next configuration."""
        trial = len(self._ledger.jobs)
        if trial >= self._trials:
            return None
        fields = self.space.sample(random_generator(self._key, "trial", trial))
        return self._ledger.new_job(trial=trial, fields=fields, start=0, stop=self._steps)

    def tell(self, id: int, scores: SeedScores, cost: Cost) -> None:
        """Record the scores."""
        self._ledger.record(id, scores)

    def best(self) -> Incumbent | None:
        """Return the trial with the highest score."""
        return self._ledger.incumbent()
