"""Optuna's samplers behind the same ask and tell: an optional package, ``sterling-rl[tune]``.

The tree-structured Parzen estimator (Bergstra 2011) is Optuna's default; another sampler may be
given. Optuna stores nothing: on resuming it is told the study's own history again.
"""

from __future__ import annotations

import math
from typing import Any

from sterling.tuning.search_space import Dimension, Fields, Space
from sterling.tuning.searchers.searchers import (
    Combine,
    Cost,
    Incumbent,
    Job,
    JobLedger,
    SeedScores,
    mean_score,
)
from sterling.types import Mistake


class OptunaSearch:
    """``trials`` configurations chosen by an Optuna sampler, each trained for all ``steps``."""

    def __init__(
        self,
        space: Space,
        key: int,
        trials: int,
        steps: int,
        combine: Combine = mean_score,
        *,
        sampler: Any = None,
    ):
        try:
            import optuna
        except ImportError as error:
            raise Mistake(
                '--search optuna needs another package: pip install "sterling-rl[tune]"'
            ) from error
        optuna.logging.set_verbosity(optuna.logging.WARNING)
        self._optuna, self.space, self._trials, self._steps = optuna, space, trials, steps
        sampler = sampler or optuna.samplers.TPESampler(seed=key, constant_liar=True)
        self._study = optuna.create_study(direction="maximize", sampler=sampler)
        self._distributions = {each.name: self._distribution(each) for each in space}
        self._trials_asked: list[Any] = []
        self._ledger = JobLedger(combine)

    def ask(self) -> Job | None:
        """Return a job for the sampler's next suggestion."""
        trial = len(self._trials_asked)
        if trial >= self._trials:
            return None
        self._trials_asked.append(self._study.ask(self._distributions))
        fields = self._fields(self._trials_asked[-1].params)
        return self._ledger.new_job(trial=trial, fields=fields, start=0, stop=self._steps)

    def tell(self, id: int, scores: SeedScores, cost: Cost) -> None:
        """Tell the sampler the score; a trial without a score is told as failed."""
        self._ledger.record(id, scores)
        score = self._ledger.score(id)
        if math.isfinite(score):
            self._study.tell(self._trials_asked[id], score)
        else:
            self._study.tell(self._trials_asked[id], state=self._optuna.trial.TrialState.FAIL)

    def best(self) -> Incumbent | None:
        """Return the trial with the highest score."""
        return self._ledger.incumbent()

    def _distribution(self, each: Dimension) -> Any:
        """Return Optuna's distribution for a dimension.

        Options are given by index; 1-log ranges as the logarithm of the distance from 1.
        """
        distributions = self._optuna.distributions
        if each.kind == "choice":
            return distributions.CategoricalDistribution(list(range(len(each.options))))
        if each.kind == "int":
            log = each.scale == "log"
            return distributions.IntDistribution(int(each.low), int(each.high), log=log)
        if each.scale == "1-log":
            return distributions.FloatDistribution(1.0 - each.high, 1.0 - each.low, log=True)
        return distributions.FloatDistribution(each.low, each.high, log=each.scale == "log")

    def _fields(self, params: dict[str, Any]) -> Fields:
        made: Fields = {}
        for each in self.space:
            value = params[each.name]
            if each.kind == "choice":
                value = each.options[value]
            made[each.name] = 1.0 - value if each.scale == "1-log" else value
        return made
