"""Optuna's samplers behind the same ask and tell: an optional package, ``sterling-rl[tune]``.

The tree-structured Parzen estimator (Bergstra 2011) is Optuna's default; another sampler may be
given. Nothing is stored by Optuna: the study's own history is told to it again on resuming.
"""

from __future__ import annotations

import math
from typing import Any

from sterling.tuning.search import Combine, Cost, Incumbent, Job, Scores, Told, mean
from sterling.tuning.space import Dimension, Fields, Space
from sterling.types import Mistake


class Optuna:
    """``trials`` configurations chosen by an Optuna sampler, each trained for all ``steps``."""

    def __init__(
        self,
        space: Space,
        key: int,
        trials: int,
        steps: int,
        combine: Combine = mean,
        *,
        sampler: Any = None,
    ):
        try:
            import optuna
        except ImportError as error:
            raise Mistake(
                '--search optuna needs a package more: pip install "sterling-rl[tune]"'
            ) from error
        optuna.logging.set_verbosity(optuna.logging.WARNING)
        self._optuna, self.space, self._trials, self._steps = optuna, space, trials, steps
        sampler = sampler or optuna.samplers.TPESampler(seed=key, constant_liar=True)
        self._study = optuna.create_study(direction="maximize", sampler=sampler)
        self._distributions = {each.name: self._distribution(each) for each in space}
        self._asked: list[Any] = []
        self._told = Told(combine)

    def ask(self) -> Job | None:
        """The sampler's next suggestion."""
        trial = len(self._asked)
        if trial >= self._trials:
            return None
        self._asked.append(self._study.ask(self._distributions))
        fields = self._fields(self._asked[-1].params)
        return self._told.asked(trial=trial, fields=fields, start=0, stop=self._steps)

    def tell(self, id: int, scores: Scores, cost: Cost) -> None:
        """Tell the sampler; a trial without a score is told as failed."""
        self._told.told(id, scores)
        score = self._told.score(id)
        if math.isfinite(score):
            self._study.tell(self._asked[id], score)
        else:
            self._study.tell(self._asked[id], state=self._optuna.trial.TrialState.FAIL)

    def best(self) -> Incumbent | None:
        """The highest score."""
        return self._told.incumbent()

    def _distribution(self, each: Dimension) -> Any:
        """Options by their place; 1-log ranges as the logarithm of the distance from 1."""
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
