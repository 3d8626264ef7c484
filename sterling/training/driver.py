"""Drive a run on the host: phases, rows of metrics, checkpoints, evaluations, signals; the training
loop itself is in loop.py."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np

from sterling.experience.replay.replay_buffer import resize_replay
from sterling.report.live.metric_sinks import Sink
from sterling.system.garbage_collector import gc_paused
from sterling.training.assembly.build_run import build_first_phase
from sterling.training.config.settings import Settings
from sterling.training.evaluation import metric_rows
from sterling.training.evaluation.periodic_evaluation import PeriodicEvaluation
from sterling.training.host_visits import Visits, iterations_until_visit
from sterling.training.loop import (
    Run,
    advance,
    from_checkpoint,
    is_donated,
    to_checkpoint,
    with_schedule_length,
)
from sterling.training.phases import run_progress
from sterling.training.phases.phase_change import build_in_phase, check_phases, enter_phase
from sterling.training.phases.phase_sequence import PlannedPhase, plan_phases, saved_phase
from sterling.training.runtime.divergence import describe_failures, stop_diverged_seeds
from sterling.training.runtime.log_interval import LogInterval
from sterling.training.runtime.mask_notice import MaskNotice
from sterling.training.runtime.resumable_exit import exit_resumable
from sterling.training.runtime.signals import Interrupt
from sterling.training.runtime.timing import Clock
from sterling.training.saving import checkpoint, run_folder
from sterling.training.schedule_effect import check_schedule_effect
from sterling.training.steering.process_agreement import ProcessAgreement
from sterling.training.steering.run_steering import Steering
from sterling.training.steering.run_view import RunView
from sterling.training.steering.stop_conditions import time_is_up


class Driver:
    """Runs training from a run's current iteration to its end, row by row of its metrics, phase by
    phase; ``phase`` is the number of the current phase, from 0 on."""

    def __init__(
        self,
        settings: Settings,
        path: Path | None,
        sinks: Sequence[Sink],
        resume_from: Path | None = None,  # the checkpoint to resume from
        *,
        callbacks: Sequence[Any] = (),
        agreement: ProcessAgreement | None = None,  # with the other processes of the run
    ):
        meta = {} if resume_from is None else checkpoint.read_meta(resume_from)["meta"]
        self.settings, self.path, self.sinks = settings, path, sinks
        self.alive = np.asarray(meta.get("alive", [True] * len(settings.seeds)))
        self.failures: dict[str, Any] = dict(meta.get("failures", {}))
        self.parts, self.phase = plan_phases(settings), saved_phase(meta, settings)
        self.evaluation = PeriodicEvaluation(settings, meta, path)
        self.steering = Steering(settings, callbacks, agreement or ProcessAgreement(), meta)
        self._last_iteration, self._mask_notice = self.parts[-1].end, MaskNotice(settings.name)
        self._save_time, self.saved = time.monotonic(), resume_from is not None  # at the last save
        self._interval = LogInterval(meta.get("lap"))
        self._visits, self.clock = Visits(meta), Clock(meta)
        self._resumed_at = 0 if resume_from is None else checkpoint.read_iteration(resume_from)
        self._build(resume_from)
        metric_rows.restore_answer_counts(self.run.source.worlds, meta.get("answers", ()))
        self.view = RunView(self)  # for callbacks
        self._good_agent = jax.device_get(self.run.agent)  # at the last check of divergence

    def _build(self, resume_from: Path | None) -> None:
        """Build the run, from a checkpoint if there is one."""
        with gc_paused():
            if resume_from is None:
                check_phases(self.settings)
                self.run = build_first_phase(self.settings)
                check_schedule_effect(self.run)
            else:
                self.run = build_in_phase(self.settings, self.phase, self._resumed_at)
        self.steering.begin(self.run.agent, len(self.settings.seeds))
        if resume_from is not None:
            form = self.steering.with_best(to_checkpoint(self.run))
            saved, _ = checkpoint.load(resume_from, form, fit=resize_replay)
            saved = self.steering.take_best(saved)
            self.run = with_schedule_length(from_checkpoint(saved, self.run), self.run.agent)

    @property
    def current_phase(self) -> PlannedPhase:
        """Return the current phase."""
        return self.parts[self.phase]

    @property
    def iteration(self) -> int:
        """Return the iterations so far."""
        return int(self.run.iteration)

    @property
    def step(self) -> int:
        """Return the environment steps per seed so far."""
        return run_progress.steps_so_far(self.parts, self.phase, self.iteration)

    @property
    def update(self) -> int:
        """Return the gradient updates per seed so far, for learners that sample batches."""
        return run_progress.updates_so_far(self.parts, self.iteration)

    def go(self) -> None:
        """Run to the end and save. SIGTERM, SIGHUP or Ctrl-C saves and exits with code 75. Any
        other exception is raised again after saving, if saving is still possible."""
        with Interrupt() as interrupt:
            try:
                self._run_rows(lambda: interrupt.requested)
                self.save_and_report()
            except Exception:
                if not is_donated(self.run):  # otherwise the last checkpoint remains
                    run_folder.save_after_error(self.save)
                raise
            if interrupt.requested:
                self._exit_resumable()

    def _run_rows(self, asked_to_leave: Callable[[], bool]) -> None:
        """Advance row by row until the end, or until a signal or a stop condition asks to stop."""
        self._compile()
        self.steering.decide_undecided(self.view, asked_to_leave)
        while self._goes_on:
            if self.iteration == self.current_phase.end:
                self._begin_next_phase()
            left = min(self._iterations_to_row(), self.current_phase.end - self.iteration)
            end = self.iteration + left
            self._advance_towards_row(left)
            if self.iteration == end or (self.steering.decides_between_rows and self._timeout):
                self._write_row(asked_to_leave)
            if asked_to_leave():
                self.save_and_report()
                self._exit_resumable()
            if time.monotonic() - self._save_time > 60 * self.settings.checkpoint_minutes:
                self.save_and_report()
        self._offer_last_policy()

    @property
    def _goes_on(self) -> bool:
        """Whether there is a next iteration."""
        left = self.iteration < self._last_iteration and bool(self.alive.any())
        return left and self.steering.stopped is None

    @property
    def _timeout(self) -> dict[str, str] | None:
        """Return the stop that the time budget asks for, if it is used up."""
        return time_is_up(self.settings, self.clock.seconds)

    def save(self) -> bool:
        """Write a checkpoint; return False if there is no run folder or no disk space."""
        if self.path is None:
            return False
        self._stop_diverged()
        meta = {
            **{"alive": self.alive.tolist(), "failures": self.failures, "phase": self.phase},
            "answers": metric_rows.answer_counts(self.run.source.worlds),
            **self.clock.to_json(),
            "judged": self.evaluation.judged,
            "lap": self._interval.to_json(),
            **self._visits.to_json(),
            **self.steering.to_json(),
        }
        saved = self.steering.with_best(to_checkpoint(self.run))
        count = run_progress.progress_count(self.parts, self.phase, self.iteration)
        written = checkpoint.save(run_folder.checkpoints_path(self.path), count, saved, meta)
        self._save_time, self.saved = time.monotonic(), written is not None
        return self.saved

    def save_and_report(self) -> None:
        """Write a checkpoint, and call the callbacks if it was written."""
        if self.save():
            self.steering.checkpoint_event(self.view)

    def close(self) -> None:
        """Release worlds and sinks."""
        for sink in self.sinks:
            sink.close()
        self.run.source.close()
        self.evaluation.close()
        self.view.close()

    def _begin_next_phase(self) -> None:
        """Begin the next phase, after an evaluation of this one if the last row had none."""
        if self.settings.evaluate_episodes and self.evaluation.last != self.iteration:
            self._evaluate()
        with self.clock.running():
            self.run = enter_phase(self.parts[self.phase + 1], self.run, at=self._resumed_at)
        self._good_agent = jax.device_get(self.run.agent)  # whose Config may have other leaves
        self.phase += 1
        self.steering.begin_phase(self.run.agent)
        self._interval = LogInterval()  # the next program may have other metrics
        self._compile()

    def _offer_last_policy(self) -> None:
        """Evaluate the last policies, if the last row had no evaluation: they may be the best."""
        best, known = self.steering.best, self.evaluation.last == self.iteration
        if best is not None and not known and self.alive.any():
            self._evaluate()

    def _iterations_to_row(self) -> int:
        """Return the iterations to the next row, so that a resumed run has the same rows."""
        wanted = self.settings.log_every or self.current_phase.budget // 100
        if every := self.current_phase.evaluate_every:
            wanted = min(wanted, every)
        each = max(1, int(wanted / self.current_phase.per_iteration))
        return each - (int(self.run.iteration) - self.current_phase.begin) % each

    def _compile(self) -> None:
        with self.clock.running(), gc_paused():
            self.run, _ = advance(self.run, 0) if self.run.source.traced else (self.run, None)
            jax.block_until_ready(self.run)

    def _advance_towards_row(self, left: int) -> None:
        """Advance towards the next row or visit."""
        with self.clock.running():
            self.run = self._visits.made(self.run)
            self.run = self._interval.go(self.run, iterations_until_visit(self.run, left))

    def _write_row(self, asked_to_leave: Callable[[], bool]) -> None:
        """Write a row of metrics, with an evaluation if one is due, and decide whether to stop. An
        exception of the evaluation or of a callback is raised after the row has been written."""
        found, failure = {}, None
        with self.clock.running():
            self._stop_diverged()
            row = self._training_columns()
            try:
                place = (self.current_phase, self.iteration, self._interval.iterations)
                is_due = self.evaluation.is_due(*place, self._last_iteration)
                found = self._evaluate() if is_due else {}
            except Exception as error:
                failure = error
        row |= found | self._end_interval()
        scores = {name.partition("/")[2]: values for name, values in found.items()}
        with self.clock.running():
            failure = failure or self.steering.row_event(self.view, row, scores)
        for sink in self.sinks:
            sink.write(row)
        if self._goes_on:
            self.steering.decide(self.view, found, self._timeout, asked_to_leave)
        if failure is not None:
            raise failure

    def _training_columns(self) -> dict[str, Any]:
        """Return the columns of progress, speed and training episodes."""
        place, speed = (self.parts, self.phase, self.iteration), self._interval.speed
        row = run_progress.progress_columns(self.settings, *place, speed)
        tally = jax.device_get(self.run.source.tally)
        self._mask_notice.print_once(self.run.source, tally, self.step)
        row |= metric_rows.training_columns(tally, self.alive)
        return row | metric_rows.answer_columns(self.run.source.worlds, row, self.alive)

    def _end_interval(self) -> dict[str, Any]:
        """Return the columns of time, learning and failures, and begin the next interval."""
        row: dict[str, Any] = {"time/seconds": round(self.clock.seconds, 3)}
        known = metric_rows.numbers_or_none
        row |= {name: known(x, self.alive) for name, x in self._interval.means().items()}
        row |= metric_rows.schedule_columns(self.run.agent, self.alive)
        row |= metric_rows.failure_columns(self.failures, self.run.source.worlds)
        self._interval = self._interval.next()
        run = self.run
        self.run = Run(run.agent, run.source.reset_statistics(), run.seeds, run.iteration)
        return row

    def _stop_diverged(self) -> None:
        """Stop the seeds that diverged since the last check; they keep their last good state."""
        held, run = jax.device_get(self.run.agent), self.run
        agent, alive = stop_diverged_seeds(self._good_agent, held, self.alive)
        if not alive.all():
            self.run = Run(agent, run.source, run.seeds, run.iteration)
        failed = np.asarray(self.settings.seeds)[self.alive & ~alive].tolist()
        self.failures |= describe_failures(failed, self.step, self.update)
        self._good_agent = held if alive.all() else jax.device_get(agent)
        self.alive = alive

    def _evaluate(self) -> dict[str, Any]:
        """Evaluate the current policies; return the columns."""
        agent, done = self.run.agent, self.iteration
        row = self.evaluation(agent, self.phase, done, self.alive)
        count = run_progress.progress_count(self.parts, self.phase, done)
        self.steering.note_evaluation(agent, row, count)
        return row

    def _exit_resumable(self) -> None:
        """Print how to resume, and exit with code 75."""
        for sink in self.sinks:
            sink.close()
        at = f"step {self.step:,}" if self.current_phase.acts else f"update {self.update:,}"
        exit_resumable(self.path, at if self.saved else "")
