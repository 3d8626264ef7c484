"""Population-based training: settings change while the agents learn.

    after every generation, each trial of the worst quantile that a better one outscores
      exploits   its agents become copies of those of a random trial of the best quantile
      explores   its settings become those of that trial, changed a little

(Jaderberg 2017, arXiv:1711.09846.) A trial has an agent for every seed: seed s copies seed s, so a
schedule of settings has to suit all seeds, and the noise of one seed decides less. Trials outside
the worst quantile continue unchanged. What changes are numbers inside the compiled program: only
float fields can be searched.
"""

from __future__ import annotations

from typing import Any, Protocol, runtime_checkable

import numpy as np

from sterling.tuning.search_space import Dimension, Fields, Space
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


@runtime_checkable
class Explorer(Protocol):
    """Chooses the settings of a trial that has just copied another."""

    def note(self, time: int, before: float, fields: Fields, after: float) -> None:
        """Record one trial's generation: its score before, its settings, its score after."""
        ...

    def propose(
        self,
        space: Space,
        draw: np.random.Generator,
        fields: Fields,
        *,
        time: int,
        score: float,
        pending: list[Fields],
    ) -> Fields:
        """Return settings for generation ``time`` of a copy of a trial with these fields and score.

        ``pending`` are the settings that other trials will have in that generation.
        """
        ...


class PerturbExplorer:
    """Each setting is resampled with probability 0.25, else multiplied by 0.8 or 1.2.

    Among options the neighbouring one is taken.
    """

    def note(self, time: int, before: float, fields: Fields, after: float) -> None:
        """No-op: perturbing does not depend on earlier generations."""

    def propose(
        self,
        space: Space,
        draw: np.random.Generator,
        fields: Fields,
        *,
        time: int,
        score: float,
        pending: list[Fields],
    ) -> Fields:
        """Return perturbed fields (Jaderberg 2017, section 4.1.1)."""
        made = {}
        for each in space:
            anew, unit, factor = draw.random(), draw.random(), (0.8, 1.2)[draw.integers(2)]
            made[each.name] = (
                each.value(unit) if anew < 0.25 else perturb(each, fields[each.name], factor)
            )
        return made


def perturb(dimension: Dimension, value: Any, factor: float) -> Any:
    """Return ``value`` times ``factor``, clipped to the range of ``dimension``.

    On the scale 1-log its distance from 1 is multiplied. In a range that reaches below zero the
    value moves by a share of the range's width instead: a factor could never leave zero. Among
    options it is the next larger one, or the next smaller where ``factor`` is below 1; options
    that are not all numbers keep the order they were given in.
    """
    if dimension.kind == "choice":
        return _neighbour(dimension, value, 1 if factor > 1.0 else -1)
    if dimension.scale == "1-log":
        moved = 1.0 - (1.0 - value) * factor
    elif dimension.low > 0.0:
        moved = value * factor
    else:
        moved = value + (factor - 1.0) * (dimension.high - dimension.low)
    return float(min(max(moved, dimension.low), dimension.high))


def _neighbour(dimension: Dimension, value: Any, way: int) -> Any:
    """Return the option next to ``value``; the last one stays."""
    ordered = list(dimension.options)
    if all(isinstance(each, (int, float)) for each in ordered):
        ordered.sort()
    return ordered[min(max(ordered.index(value) + way, 0), len(ordered) - 1)]


def generation_ends(steps: int, generations: int) -> list[int]:
    """Return the steps per seed at which each generation ends."""
    return [steps * (g + 1) // generations for g in range(generations)]


class Population:
    """``trials`` configurations trained side by side for ``generations`` generations."""

    def __init__(
        self,
        space: Space,
        key: int,
        trials: int,
        steps: int,
        combine: Combine = mean_score,
        *,
        generations: int = 10,
        quantile: float = 0.25,
        explore: Explorer | None = None,
    ):
        if trials < 2 or generations < 1 or steps < generations or not 0.0 < quantile <= 0.5:
            raise Mistake(
                "a population needs at least 2 trials, 1 generation, a step per generation and a "
                f"quantile above 0, at most 0.5; got trials={trials}, generations={generations}, "
                f"steps={steps}, quantile={quantile}"
            )
        self.space, self._key, self._explore = space, key, explore or PerturbExplorer()
        self.stops = generation_ends(steps, generations)
        self._size = max(1, int(trials * quantile))
        self._ledger = JobLedger(combine)
        self._generation = 0
        self._fields = [space.sample(random_generator(key, "trial", i)) for i in range(trials)]
        self._origin: dict[int, int] = {}  # trial -> the trial it copies before this generation
        self._before: dict[int, float] = {}  # each trial's score when this generation began
        self._scores: dict[int, float] = {}
        self._waiting = list(range(trials))

    def ask(self) -> Job | None:
        """Return the next job of this generation; None until all its scores are in."""
        if not self._waiting:
            return None
        trial = self._waiting.pop(0)
        return self._ledger.new_job(
            trial=trial,
            fields=self._fields[trial],
            start=self.stops[self._generation - 1] if self._generation else 0,
            stop=self.stops[self._generation],
            kept=self._generation + 1 < len(self.stops),
            origin=self._origin.get(trial),
        )

    def tell(self, id: int, scores: SeedScores, cost: Cost) -> None:
        """Record the scores; after the generation's last job, exploit and explore."""
        job = self._ledger.record(id, scores)
        self._scores[job.trial] = self._ledger.score(id)
        if self._ledger.pending or self._waiting:
            return
        for trial, before in sorted(self._before.items()):
            self._explore.note(self._generation, before, self._fields[trial], self._scores[trial])
        if self._generation + 1 < len(self.stops):
            self._evolve()

    def best(self) -> Incumbent | None:
        """Return the best trial of the newest generation, with its schedule of settings."""
        return self._ledger.incumbent()

    def _evolve(self) -> None:
        """Choose which trials copy which, and their new settings."""
        self._generation += 1
        order = rank_trials(self._scores)
        best, worst = order[: self._size], sorted(order[-self._size :])
        draw = random_generator(self._key, "evolve", self._generation)
        chosen = {trial: best[draw.integers(len(best))] for trial in worst}
        self._origin = {t: o for t, o in chosen.items() if self._scores[o] > self._scores[t]}
        pending = [f for t, f in enumerate(self._fields) if t not in self._origin]
        fields = list(self._fields)
        for trial, origin in self._origin.items():
            fields[trial] = self._explore.propose(
                self.space,
                draw,
                self._fields[origin],
                time=self._generation,
                score=self._scores[origin],
                pending=pending,
            )
            pending.append(fields[trial])
        self._before = {
            trial: self._scores[self._origin.get(trial, trial)] for trial in self._scores
        }
        self._fields, self._scores = fields, {}
        self._waiting = list(range(len(fields)))
