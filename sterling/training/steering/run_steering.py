"""Steer one run: call callbacks, judge evaluations, keep the best policy, decide to stop."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax

from sterling.system.terminal_messages import print_notice
from sterling.training.agent import Agent
from sterling.training.config.settings import Settings
from sterling.training.loop import Run
from sterling.training.steering.best_policy import BestPolicy, SavedRun
from sterling.training.steering.callbacks import (
    Event,
    Scores,
    SteeredRun,
    call_each,
    callback_name,
    named_errors,
)
from sterling.training.steering.judged_score import judged_score
from sterling.training.steering.process_agreement import Post, ProcessAgreement
from sterling.training.steering.stop_conditions import make_conditions, mean_of_known
from sterling.types import Mistake

Stop = dict[str, Any]


class Steering:
    """What steers a run; ``stopped`` says why it stops early, None while it does not."""

    def __init__(
        self,
        settings: Settings,
        callbacks: Sequence[Any],
        agreement: ProcessAgreement,
        meta: dict[str, Any],
    ):
        state = _continued(meta.get("steering", {}), settings.continued_from)
        self.callbacks, self._agreement = list(callbacks), agreement
        self._conditions = make_conditions(settings, state)
        self._timed, self._keeps = settings.time_budget > 0, bool(settings.keep)
        self._score = judged_score(settings)
        self._state = state
        self.best: BestPolicy | None = None
        self.stopped: Stop | None = state.get("stopped")
        self._undecided: Post | None = state.get("undecided")  # a post without an agreement yet
        self._asked: Stop | None = None  # by a callback outside a row
        self._row: dict[str, Any] = {}
        self._ended = False
        self._restore_callbacks(state.get("callbacks", []))

    @property
    def decides_between_rows(self) -> bool:
        """Whether this process alone may decide to stop between two rows."""
        return self._agreement.alone

    def begin(self, agent: Agent, seeds: int) -> None:
        """Begin to keep the best of the agents, if that is asked for."""
        if self._keeps:
            self.best = BestPolicy(agent, seeds, self._state.get("best", {}), self._score)

    def with_best(self, run: Run) -> Run | SavedRun:
        """Return what a checkpoint contains: the run, and the best agents if they are kept."""
        return run if self.best is None else self.best.with_run(run)

    def take_best(self, saved: Run | SavedRun) -> Run:
        """Take the best agents from a checkpoint, and return the run in it."""
        if isinstance(saved, Run):
            return saved
        assert self.best is not None
        self.best.agent = jax.device_get(saved.best)
        return Run(saved.agent, saved.source, saved.seeds, saved.iteration)

    def begin_phase(self, agent: Agent) -> None:
        """Forget evaluations in the worlds of earlier phases."""
        for each in self._conditions:
            each.begin_phase()
        if self.best is not None:
            self.best.begin_phase(agent)

    def note_evaluation(self, agent: Agent, row: dict[str, Any], at: int) -> None:
        """Keep the evaluated policies if they are the best; ``row``: what was measured, ``at``: the
        run's progress."""
        if self.best is not None:
            self.best.consider(agent, row[self._score.column], at)

    def row_event(self, run: SteeredRun, row: dict[str, Any], scores: Scores) -> Exception | None:
        """Call the callbacks for a row; they may add numbers to it. ``scores`` is empty if the row
        has no evaluation. Return the exception of a callback that fails."""
        self._row = row
        kinds = ("on_evaluation", "on_log") if scores else ("on_log",)
        try:
            for kind in kinds if self.callbacks else ():
                self._call(Event(run, kind, row, scores or None))
        except Mistake as error:
            return error
        return None

    def decide(
        self,
        run: SteeredRun,
        found: dict[str, Any],
        timeout: Stop | None,
        asked_to_leave: Callable[[], bool],
    ) -> None:
        """Decide after a row whether the run stops; ``found``: what its evaluation measured, if it
        had one; ``timeout``: the stop that the time budget asks for."""
        asked, self._asked = self._asked or timeout, None
        returns = found.get(self._score.column)
        if returns is None and not (self.callbacks or self._timed):
            return  # no process has anything to say
        self._undecided = {"iteration": run.iteration, "returns": returns, "stop": asked}
        self.decide_undecided(run, asked_to_leave)

    def decide_undecided(self, run: SteeredRun, asked_to_leave: Callable[[], bool]) -> None:
        """Decide about the last row, if this has not been done."""
        if self._undecided is None or not (self._conditions or self.callbacks or self._timed):
            return
        posts = self._agreement.exchange(self._undecided, asked_to_leave)
        if posts is None:
            return
        self._undecided = None
        if stop := self._reason_to_stop(posts):
            updates = {"update": run.update} if run.update else {}
            place = {"step": run.step, **updates, "iteration": run.iteration, "phase": run.phase}
            self.stopped = {**stop, **place}
            at = f"step {run.step:,}" if run.step else f"update {run.update:,}"
            print_notice(f"stopped at {at} by {stop['by']}: {stop['reason']}")

    def checkpoint_event(self, run: SteeredRun) -> None:
        """Call the callbacks after a checkpoint has been written."""
        if self.callbacks:
            self._call(Event(run, "on_checkpoint", self._row, stopped=self.stopped))

    def end_event(self, run: SteeredRun, result: dict[str, Any]) -> None:
        """Call the callbacks at the end of the run, with the scores of the final evaluation."""
        if self.callbacks:
            final = result["final"].items()
            scores = {name: list(each["per_seed"]) for name, each in final} or None
            more: dict[str, Any] = {"stopped": self.stopped, "result": result}
            self._call(Event(run, "on_end", self._row, scores, **more))

    def to_json(self) -> dict[str, Any]:
        """Return the state for a checkpoint's meta; {} for a run that is not steered."""
        found: dict[str, Any] = {each.by: each.to_json() for each in self._conditions}
        if self.best is not None:
            found["best"] = self.best.to_json()
        if self.callbacks:
            found["callbacks"] = [_callback_state(each) for each in self.callbacks]
        if self.stopped is not None:
            found["stopped"] = self.stopped
        if self._undecided is not None:
            found["undecided"] = self._undecided
        return {"steering": found} if found else {}

    def _reason_to_stop(self, posts: Sequence[Post]) -> Stop | None:
        """Return who stops the run and why; None if nobody does."""
        measured = [post["returns"] for post in posts if post["returns"] is not None]
        mean = mean_of_known([x for returns in measured for x in returns])
        reasons = {}
        for each in self._conditions if mean is not None else ():  # each takes in every evaluation
            assert mean is not None
            reasons[each.by] = each.reason_to_stop(mean)
        found = [{"by": by, "reason": reason} for by, reason in reasons.items() if reason]
        found += [post["stop"] for post in posts if post["stop"] is not None]
        return found[0] if found else None

    def _call(self, event: Event) -> None:
        self._asked = call_each(self.callbacks, event) or self._asked

    def _restore_callbacks(self, states: Sequence[dict[str, Any]]) -> None:
        """Give the callbacks their state from the checkpoint, by name and order."""
        left = list(states)
        for callback in self.callbacks:
            name = callback_name(callback)
            found = next((each for each in left if each.get("name") == name), None)
            if found is None:
                continue
            left.remove(found)
            if "state" in found and hasattr(callback, "restore_state"):
                with named_errors(callback, "restore_state"):
                    callback.restore_state(found["state"])
        if left:
            names = ", ".join(str(each.get("name")) for each in left)
            print_notice(f"the run goes on without its callbacks {names}: give callbacks=[...]")


def _continued(state: dict[str, Any], continued_from: int) -> dict[str, Any]:
    """Return the state of a run that had stopped early and is continued after that iteration: it
    is not stopped, and patience begins to count anew."""
    if state.get("stopped", {}).get("iteration", continued_from + 1) > continued_from:
        return state
    kept = {name: value for name, value in state.items() if name != "stopped"}
    if "patience" in kept:
        kept["patience"] = kept["patience"] | {"waited": 0}
    return kept


def _callback_state(callback: Any) -> dict[str, Any]:
    state = {"name": callback_name(callback)}
    if not hasattr(callback, "save_state"):
        return state
    with named_errors(callback, "save_state"):
        return state | {"state": callback.save_state()}
