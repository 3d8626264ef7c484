"""The evaluations of a run before its end: when they are due, and what they have found so far."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Bool

from sterling.training.agent import Agent
from sterling.training.config.settings import Settings
from sterling.training.evaluation.evaluator import Evaluator, PhaseEvaluators
from sterling.training.evaluation.metric_rows import evaluation_columns, numbers_or_none
from sterling.training.phases.phase_sequence import PlannedPhase, plan_phases, world_names
from sterling.training.phases.run_progress import steps_so_far, updates_so_far
from sterling.types import Mistake


class PeriodicEvaluation:
    """Evaluates policies in the worlds of all phases, or by their loss on the texts that the run
    holds out; ``judged`` holds the returns so far.
    ``folder``: the run's, in which the latest episodes are kept; None: they are not."""

    def __init__(self, settings: Settings, meta: dict[str, Any], folder: Path | None = None):
        self.settings, self._worlds, self._folder = settings, world_names(settings), folder
        self._parts = plan_phases(settings)
        self.judged: list[dict[str, Any]] = list(meta.get("judged", []))
        self._evaluators: PhaseEvaluators | None = None
        self._held_out: Any = None
        if settings.holds_out_texts:
            from sterling.training.language.held_out_texts import (
                HeldOutTexts,  # tokenizers take time to import
            )

            self._held_out = HeldOutTexts(settings)

    @property
    def last(self) -> int:
        """Return the iteration of the last evaluation in a world; -1 if there was none."""
        return int(self.judged[-1].get("iteration", -1)) if self.judged else -1

    def is_due(self, part: PlannedPhase, done: int, made: int, end: int) -> bool:
        """Whether an evaluation is due at iteration ``done``, with ``made`` iterations since the
        last row; ``end``: the run's last iteration."""
        if self._held_out is not None:
            return _is_time(part, done, made)
        if not self.settings.evaluate_episodes:
            return False
        if done == end:
            return bool(self.settings.keep)  # the last policy may be the best; else the final one
        return _is_time(part, done, made)

    def held_out_estimates(
        self, alive: Bool[np.ndarray, "seed"], failed: Sequence[int], agent: Agent
    ) -> dict[str, Any]:
        """Return the estimates of some agents' loss on the texts that the run holds out, if it
        does, for the run's result."""
        if self._held_out is None:
            return {}
        estimates: dict[str, Any] = self._held_out.estimates(agent, alive, failed)
        return estimates

    def __call__(
        self, agent: Agent, phase: int, done: int, alive: Bool[np.ndarray, "seed"]
    ) -> dict[str, Any]:
        """Evaluate the current policies; return the columns."""
        if self._held_out is not None:
            columns: dict[str, Any] = self._held_out.columns(agent, alive)
            return columns
        scores, here = self._worlds_evaluator()(agent), self._worlds[phase]
        row, found = evaluation_columns(scores, here, alive)
        if self._folder is not None:
            at = {"step": steps_so_far(self._parts, phase, done)}
            at["update"] = updates_so_far(self._parts, done)
            failed = [s for s, is_on in zip(self.settings.seeds, alive, strict=True) if not is_on]
            self._worlds_evaluator().save(self._folder, here, scores, at, failed)
        self.judged.append({"phase": phase, "iteration": done, **found})
        return row

    def returns_now(
        self,
        agent: Agent,
        part: PlannedPhase,
        episodes: int | None,
        alive: Bool[np.ndarray, "seed"],
    ) -> list[float | None]:
        """Return each seed's mean return in a phase's world, apart from the periodic evaluations;
        ``episodes``: per seed (None: the run's number)."""
        count = self.settings.evaluate_episodes if episodes is None else episodes
        if not count:
            raise Mistake("the run has evaluate_episodes=0. Give event.evaluate(episodes=N).")
        judge = Evaluator(part.settings, count)
        try:
            return numbers_or_none(judge(agent)["return"].mean(1), alive)
        finally:
            judge.close()

    def close(self) -> None:
        """Release the worlds."""
        if self._evaluators is not None:
            self._evaluators.close()

    def _worlds_evaluator(self) -> PhaseEvaluators:
        if self._evaluators is None:
            episodes, record = self.settings.evaluate_episodes, self._folder is not None
            self._evaluators = PhaseEvaluators(self.settings, episodes, record=record)
        return self._evaluators


def _is_time(part: PlannedPhase, done: int, made: int) -> bool:
    """Whether iteration ``done`` ends a phase, or an interval between evaluations ended in the last
    ``made`` iterations."""
    if done == part.end:
        return True
    so_far, every = part.steps if part.acts else part.updates, part.evaluate_every
    return every > 0 and so_far(done) // every > so_far(done - made) // every
