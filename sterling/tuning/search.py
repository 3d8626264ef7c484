"""Searchers: who is tried next, as a function of a key and of what has been told.

    job = searcher.ask()                         # what to run now; None: nothing until more is told
    searcher.tell(job.id, scores_per_seed, cost)

A searcher draws its randomness by (key, purpose, counter) and looks at no clock, so asking and
telling again in the same order makes the same decisions: that is how a study resumes.
"""

from __future__ import annotations

import dataclasses
import math
import zlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol, runtime_checkable

import numpy as np

from sterling.tuning.space import Fields, Space

Scores = Sequence[float | None]  # one per seed; None: nothing was learned of this seed
Cost = Mapping[str, float | int]  # "steps" or "updates" of all seeds, "seconds" of a process
Combine = Callable[[Scores], float]


@dataclasses.dataclass(frozen=True)
class Job:
    """Train one trial's agents, one per seed, from ``start`` to ``stop`` steps or updates.

    ``start`` > 0 goes on from the trial's state at ``start``; with ``origin`` the agents (not the
    experience) are those of another trial at that step. ``kept``: something may go on from here.
    """

    id: int  # counts what was asked
    trial: int  # counts configurations
    fields: Fields
    start: int
    stop: int
    kept: bool = False
    origin: int | None = None
    seeds: tuple[int, ...] = ()  # set by the study

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
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
        """What to run next; None while (or because) nothing is left to run."""
        ...

    def tell(self, id: int, scores: Scores, cost: Cost) -> None:
        """What a job came to: a score per seed, larger is better."""
        ...

    def best(self) -> Incumbent | None:
        """The best of those trained longest."""
        ...


def generator(key: int, purpose: str, counter: int) -> np.random.Generator:
    """Randomness for ``purpose`` at ``counter``; NumPy's Philox."""
    return np.random.Generator(np.random.Philox([key, zlib.crc32(purpose.encode()), counter]))


def mean(scores: Scores) -> float:
    """The mean over seeds; -inf where a seed has no score."""
    values = [math.nan if score is None else float(score) for score in scores]
    found = float(np.mean(values))
    return found if math.isfinite(found) else -math.inf


def lower_bound(scores: Scores) -> float:
    """The mean less one standard error: prefers settings that every seed likes."""
    if len(scores) < 2:
        return mean(scores)
    found = mean(scores)
    if found == -math.inf:
        return found
    return found - float(np.std(np.array(scores, np.float64), ddof=1)) / math.sqrt(len(scores))


def ranked(scores: dict[int, float]) -> list[int]:
    """Trials, the best first; of equals the older first."""
    return sorted(scores, key=lambda trial: (-scores[trial], trial))


class Told:
    """What has been asked and told, for every searcher."""

    def __init__(self, combine: Combine):
        self._combine = combine
        self.jobs: list[Job] = []
        self.scores: dict[int, tuple[float | None, ...]] = {}  # by the job's id

    def asked(self, **parts: Any) -> Job:
        """A new job with the next id."""
        self.jobs.append(Job(len(self.jobs), **parts))
        return self.jobs[-1]

    def told(self, id: int, scores: Scores) -> Job:
        """Note the scores; answers the job they are of."""
        self.scores[id] = tuple(scores)
        return self.jobs[id]

    def score(self, id: int) -> float:
        """A job's score over its seeds."""
        return self._combine(self.scores[id])

    @property
    def pending(self) -> bool:
        """Whether a job is out."""
        return len(self.scores) < len(self.jobs)

    def incumbent(self) -> Incumbent | None:
        """The best of the jobs that were trained longest, with the plan that led there."""
        if not self.scores:
            return None
        longest = max(self.jobs[id].stop for id in self.scores)
        last = [id for id in self.scores if self.jobs[id].stop == longest]
        best = min(last, key=lambda id: (-self.score(id), id))
        job = self.jobs[best]
        plan = self._plan(job)
        return Incumbent(job.trial, self.score(best), self.scores[best], job.fields, plan)

    def _plan(self, job: Job) -> tuple[tuple[int, int, Fields], ...]:
        """The line of agents that ends in ``job``, through what it was copied from."""
        steps = [(job.start, job.stop, job.fields)]
        while job.start > 0:
            trial = job.trial if job.origin is None else job.origin
            job = next(j for j in self.jobs if j.trial == trial and j.stop == job.start)
            steps.append((job.start, job.stop, job.fields))
        return _joined(steps[::-1])


def _joined(steps: list[tuple[int, int, Fields]]) -> tuple[tuple[int, int, Fields], ...]:
    """Neighbours with equal fields as one."""
    made = [steps[0]]
    for start, stop, fields in steps[1:]:
        if fields == made[-1][2]:
            made[-1] = (made[-1][0], stop, fields)
        else:
            made.append((start, stop, fields))
    return tuple(made)


class Random:
    """``trials`` configurations drawn from the space, each trained for all ``steps``.

    Bergstra and Bengio 2012 (JMLR 13): better than a grid wherever few dimensions matter.
    """

    def __init__(self, space: Space, key: int, trials: int, steps: int, combine: Combine = mean):
        self.space, self._key, self._trials, self._steps = space, key, trials, steps
        self._told = Told(combine)

    def ask(self) -> Job | None:
        """The next configuration."""
        trial = len(self._told.jobs)
        if trial >= self._trials:
            return None
        fields = self.space.sample(generator(self._key, "trial", trial))
        return self._told.asked(trial=trial, fields=fields, start=0, stop=self._steps)

    def tell(self, id: int, scores: Scores, cost: Cost) -> None:
        """Note it."""
        self._told.told(id, scores)

    def best(self) -> Incumbent | None:
        """The highest score."""
        return self._told.incumbent()
