"""Population-based training: settings change while the agents learn.

    after every generation each trial of the worst quantile whose score a better one beats
      exploits   its agents become copies of those of a random trial of the best quantile
      explores   its settings become those of that trial, changed a little

(Jaderberg 2017, arXiv:1711.09846.) A trial has an agent for every seed: seed s copies seed s, so a
schedule of settings has to suit all seeds, and noise of one seed decides less. Trials that are
not in the worst quantile go on untouched. What changes are numbers inside the compiled program:
only float fields can be searched.
"""

from __future__ import annotations

from typing import Protocol, runtime_checkable

import numpy as np

from sterling.tuning.search import (
    Combine,
    Cost,
    Incumbent,
    Job,
    Scores,
    Told,
    generator,
    mean,
    ranked,
)
from sterling.tuning.space import Fields, Space
from sterling.types import Mistake


@runtime_checkable
class Explore(Protocol):
    """Chooses the settings of a trial that has just copied another."""

    def note(self, time: int, before: float, fields: Fields, after: float) -> None:
        """One trial's generation: its score before, its settings, its score after."""
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
        """Settings for generation ``time`` of a copy of a trial with these fields and score.

        ``pending`` are the settings that others will have in that generation.
        """
        ...


class Perturb:
    """Each setting is drawn anew with probability 0.25, else multiplied by 0.8 or 1.2, and of
    options the one beside it is taken."""

    def note(self, time: int, before: float, fields: Fields, after: float) -> None:
        """What happened before does not matter."""

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
        """Perturbed fields (Jaderberg 2017, section 4.1.1)."""
        made = {}
        for each in space:
            anew, unit, factor = draw.random(), draw.random(), (0.8, 1.2)[draw.integers(2)]
            made[each.name] = (
                each.value(unit) if anew < 0.25 else each.perturbed(fields[each.name], factor)
            )
        return made


def ends(steps: int, generations: int) -> list[int]:
    """The steps per seed at which each generation ends."""
    return [steps * (g + 1) // generations for g in range(generations)]


class Population:
    """``trials`` configurations trained side by side for ``generations`` generations."""

    def __init__(
        self,
        space: Space,
        key: int,
        trials: int,
        steps: int,
        combine: Combine = mean,
        *,
        generations: int = 10,
        quantile: float = 0.25,
        explore: Explore | None = None,
    ):
        if trials < 2 or generations < 1 or steps < generations or not 0.0 < quantile <= 0.5:
            raise Mistake(
                "a population needs two trials, a step for every generation and a quantile of at "
                f"most 0.5; got {trials}, {generations} generations of {steps} steps and {quantile}"
            )
        self.space, self._key, self._explore = space, key, explore or Perturb()
        self.stops = ends(steps, generations)
        self._size = max(1, int(trials * quantile))
        self._told = Told(combine)
        self._generation = 0
        self._fields = [space.sample(generator(key, "trial", i)) for i in range(trials)]
        self._origin: dict[int, int] = {}  # who copies whom before this generation
        self._before: dict[int, float] = {}  # each trial's score when this generation began
        self._scores: dict[int, float] = {}
        self._waiting = list(range(trials))

    def ask(self) -> Job | None:
        """The next of this generation; None until the whole generation is told."""
        if not self._waiting:
            return None
        trial = self._waiting.pop(0)
        return self._told.asked(
            trial=trial,
            fields=self._fields[trial],
            start=self.stops[self._generation - 1] if self._generation else 0,
            stop=self.stops[self._generation],
            kept=self._generation + 1 < len(self.stops),
            origin=self._origin.get(trial),
        )

    def tell(self, id: int, scores: Scores, cost: Cost) -> None:
        """Note it, and after the generation's last exploit and explore."""
        job = self._told.told(id, scores)
        self._scores[job.trial] = self._told.score(id)
        if self._told.pending or self._waiting:
            return
        for trial, before in sorted(self._before.items()):
            self._explore.note(self._generation, before, self._fields[trial], self._scores[trial])
        if self._generation + 1 < len(self.stops):
            self._evolve()

    def best(self) -> Incumbent | None:
        """The best of the newest generation, with its line of settings."""
        return self._told.incumbent()

    def _evolve(self) -> None:
        """Who copies whom, and with which settings."""
        self._generation += 1
        order = ranked(self._scores)
        best, worst = order[: self._size], sorted(order[-self._size :])
        draw = generator(self._key, "evolve", self._generation)
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
