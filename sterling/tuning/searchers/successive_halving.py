"""Successive halving: train many configurations for a short while, the best of them for longer.

Budgets are ``steps / eta^k``, down to the least; a rung is all trials trained to one budget.

    halving   a rung is completed, then its best 1/eta continue    (Jamieson 2016, arXiv:1502.07943)
    ASHA      a trial continues once it is among the best 1/eta of its rung so far, the highest
              rung first; where none is, a new one begins  (Li 2018, arXiv:1810.05934, algorithm 2)

A trial that continues resumes its own run; its schedules are those of the full ``steps``.
"""

from __future__ import annotations

from sterling.tuning.search_space import Space
from sterling.tuning.searchers.searchers import (
    Combine,
    Cost,
    Incumbent,
    Job,
    JobLedger,
    SeedScores,
    mean_score,
    random_generator,
    rank_trials,
)
from sterling.types import Mistake


def rung_budgets(steps: int, least: int, eta: int) -> list[int]:
    """Return the environment steps per seed of each rung, the last being ``steps``.

    Raises Mistake where eta is below 2 or the least budget does not lie in 1 .. steps.
    """
    if eta < 2 or not 1 <= least <= steps:
        raise Mistake(
            f"rungs need eta of 2 or more and least in 1..{steps}; got eta={eta}, least={least}"
        )
    found = [steps]
    while found[-1] // eta >= least:
        found.append(found[-1] // eta)
    return found[::-1]


class SuccessiveHalving:
    """Successive halving: ``trials`` configurations begin, 1/eta of every rung continue."""

    def __init__(
        self,
        space: Space,
        key: int,
        trials: int,
        steps: int,
        combine: Combine = mean_score,
        *,
        eta: int = 3,
        least: int | None = None,
    ):
        self.space, self._key, self._eta = space, key, eta
        self.stops = rung_budgets(steps, max(1, steps // eta**2) if least is None else least, eta)
        self._ledger = JobLedger(combine)
        self._rung = 0
        self._fields = {i: space.sample(random_generator(key, "trial", i)) for i in range(trials)}
        self._waiting = list(self._fields)
        self._scores: dict[int, float] = {}  # of the current rung

    def ask(self) -> Job | None:
        """Return the next job of the rung; None until all scores of the rung are in."""
        if not self._waiting:
            return None
        trial = self._waiting.pop(0)
        start = self.stops[self._rung - 1] if self._rung else 0
        kept = self._rung + 1 < len(self.stops)
        stop, fields = self.stops[self._rung], self._fields[trial]
        return self._ledger.new_job(trial=trial, fields=fields, start=start, stop=stop, kept=kept)

    def tell(self, id: int, scores: SeedScores, cost: Cost) -> None:
        """Record the scores; after the rung's last job, begin the next rung."""
        job = self._ledger.record(id, scores)
        self._scores[job.trial] = self._ledger.score(id)
        if self._ledger.pending or self._waiting or self._rung + 1 == len(self.stops):
            return
        survivors = rank_trials(self._scores)[: max(1, len(self._scores) // self._eta)]
        self._rung, self._scores = self._rung + 1, {}
        self._waiting = sorted(survivors)

    def best(self) -> Incumbent | None:
        """Return the best trial of the highest rung reached."""
        return self._ledger.incumbent()


class ASHA:
    """Asynchronous successive halving: no rung waits for its last trial."""

    def __init__(
        self,
        space: Space,
        key: int,
        trials: int,
        steps: int,
        combine: Combine = mean_score,
        *,
        eta: int = 3,
        least: int | None = None,
    ):
        self.space, self._key, self._trials, self._eta = space, key, trials, eta
        self.stops = rung_budgets(steps, max(1, steps // eta**2) if least is None else least, eta)
        self._ledger = JobLedger(combine)
        self._begun = 0
        self._rungs: list[dict[int, float]] = [{} for _ in self.stops]
        self._promoted: list[set[int]] = [set() for _ in self.stops]

    def ask(self) -> Job | None:
        """Return a promotion if there is one, else a new configuration; None without either."""
        for rung in reversed(range(len(self.stops) - 1)):
            if found := self.promotable(rung):
                return self._promote(found[0], rung)
        if self._begun < self._trials:
            self._begun += 1
            return self._job(self._begun - 1, 0)
        return None if self._ledger.pending else self._last()

    def tell(self, id: int, scores: SeedScores, cost: Cost) -> None:
        """Record the scores in the job's rung."""
        job = self._ledger.record(id, scores)
        self._rungs[self.stops.index(job.stop)][job.trial] = self._ledger.score(id)

    def best(self) -> Incumbent | None:
        """Return the best trial of the highest rung reached."""
        return self._ledger.incumbent()

    def promotable(self, rung: int) -> list[int]:
        """Return trials among the best 1/eta of a rung that were not promoted yet, best first."""
        scores = self._rungs[rung]
        best = rank_trials(scores)[: len(scores) // self._eta]
        return [trial for trial in best if trial not in self._promoted[rung]]

    def _last(self) -> Job | None:
        """Promote the best of the highest rung; None once a trial has had the full budget."""
        top = len(self.stops) - 1
        highest = max((rung for rung, scores in enumerate(self._rungs) if scores), default=top)
        if highest == top:
            return None
        return self._promote(rank_trials(self._rungs[highest])[0], highest)

    def _promote(self, trial: int, rung: int) -> Job:
        self._promoted[rung].add(trial)
        return self._job(trial, rung + 1)

    def _job(self, trial: int, rung: int) -> Job:
        fields = self.space.sample(random_generator(self._key, "trial", trial))
        start = self.stops[rung - 1] if rung else 0
        kept = rung + 1 < len(self.stops)
        stop = self.stops[rung]
        return self._ledger.new_job(trial=trial, fields=fields, start=start, stop=stop, kept=kept)
