"""The host's side of a run: it logs, saves, watches and decides; the loop itself is in loop.py."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np

from sterling.collector import resting
from sterling.experience.replay import as_large
from sterling.notice import tell
from sterling.report.metrics import Sink
from sterling.training import checkpoint, folder
from sterling.training.clock import Clock
from sterling.training.entering import built, enter
from sterling.training.guard import EXIT_RESUMABLE, NOTHING, Interrupt, healthy
from sterling.training.judge import Judges
from sterling.training.lap import Lap
from sterling.training.loop import Run, advance, as_planned, given_away, restored, stored
from sterling.training.phases import (
    Part,
    counts_updates,
    iteration_steps,
    iteration_updates,
    parts,
    world_names,
)
from sterling.training.rows import evaluated, lived, plain
from sterling.training.settings import Settings
from sterling.training.visits import Visits, together


class Driver:
    """Carries one run from where it is to its end, from row to row of its log, phase after phase:
    ``phase`` is the number of that under way, from 0 on."""

    def __init__(
        self,
        settings: Settings,
        path: Path | None,
        sinks: Sequence[Sink],
        begun: Path | None = None,  # the checkpoint to go on from
    ):
        meta = {} if begun is None else checkpoint.describe(begun)["meta"]
        self.settings, self.path, self.sinks = settings, path, sinks
        self.alive = np.asarray(meta.get("alive", [True] * len(settings.seeds)))
        self.failures: dict[str, Any] = dict(meta.get("failures", {}))
        self.clock = Clock(meta)
        self.parts, self._worlds = parts(settings), world_names(settings)
        self.phase = phase_of(meta, settings)
        self.judged: list[dict[str, Any]] = list(meta.get("judged", []))
        self._total = self.parts[-1].end
        self.saved = begun is not None  # whether the last checkpoint was written
        self._save_time = time.monotonic()
        self._lap, self._visits = Lap(meta.get("lap")), Visits(meta)
        self._judges: Judges | None = None  # make the evaluations in between
        self._at = 0 if begun is None else checkpoint.iteration(begun)  # to go on from
        with resting():
            self.run = built(settings, self.phase, warm=begun is None, at=self._at)
        if begun is not None:
            saved, _ = checkpoint.load(begun, stored(self.run), fit=as_large)
            self.run = as_planned(restored(saved, self.run), self.run.agent)
        self._good = jax.device_get(self.run.agent)  # when it was last looked at

    @property
    def part(self) -> Part:
        """The phase under way."""
        return self.parts[self.phase]

    @property
    def step(self) -> int:
        """Environment steps taken so far, per seed."""
        done = int(self.run.iteration)
        return sum(part.steps(done) for part in self.parts[: self.phase + 1])

    @property
    def update(self) -> int:
        """Gradient updates so far, per seed, of a learner that samples."""
        done = int(self.run.iteration)
        return sum(part.updates(done) for part in self.parts)

    def go(self) -> None:
        """Run to the end, and save; SIGTERM, SIGHUP or Ctrl-C saves and exits with code 75. What
        else goes wrong is raised after what can be saved has been."""
        with Interrupt() as interrupt:
            try:
                self._go_on(lambda: interrupt.requested)
            except Exception:
                if not given_away(self.run):  # else the last checkpoint stands
                    self.save()
                raise
            self.save()
            if interrupt.requested:
                self._leave()

    def _go_on(self, asked_to_leave: Callable[[], bool]) -> None:
        """From row to row."""
        self._compile()
        while (done := int(self.run.iteration)) < self._total and self.alive.any():
            if done == self.part.end:
                self._switch()
            left = min(self._every(), self.part.end - done)
            self._advance(left)
            if int(self.run.iteration) == done + left:
                self._write_row()
            if asked_to_leave():
                self.save()
                self._leave()
            if time.monotonic() - self._save_time > 60 * self.settings.checkpoint_minutes:
                self.save()

    def save(self) -> bool:
        """Write the whole run as one tree; False where there is no folder or no room."""
        if self.path is None:
            return False
        self._look()
        meta = {
            "alive": self.alive.tolist(),
            "failures": self.failures,
            **self.clock.to_json(),
            "phase": self.phase,
            "judged": self.judged,
            "lap": self._lap.to_json(),
            **self._visits.to_json(),
        }
        written = checkpoint.save(folder.checkpoints(self.path), self._made, stored(self.run), meta)
        self._save_time, self.saved = time.monotonic(), written is not None
        return self.saved

    def close(self) -> None:
        """Release worlds and sinks."""
        for sink in self.sinks:
            sink.close()
        self.run.source.close()
        if self._judges is not None:
            self._judges.close()

    def _switch(self) -> None:
        """To the next phase. What this one has come to is judged, unless a row of metrics did."""
        done = int(self.run.iteration)
        if self.settings.evaluate_episodes and self._judged_at != done:
            self._evaluated()
        with self.clock.running():
            self.run = enter(self.parts[self.phase + 1], self.run, at=self._at)
        self.phase += 1
        self._lap = Lap()  # of another program, with other metrics
        self._compile()

    @property
    def _judged_at(self) -> int:
        """The iteration of the last evaluation."""
        return int(self.judged[-1].get("iteration", -1)) if self.judged else -1

    @property
    def _made(self) -> int:
        """How far the run is: steps, and updates of phases without steps."""
        done, begun = int(self.run.iteration), self.parts[: self.phase + 1]
        return sum(part.steps(done) if part.acts else part.updates(done) for part in begun)

    @property
    def _each(self) -> int:
        """Steps, or updates of a phase without steps, in an iteration."""
        made = iteration_steps if self.part.acts else iteration_updates
        return made(self.part.settings)

    @property
    def _judging(self) -> int:
        """Steps or updates between evaluations; 0: none before the end."""
        settings = self.part.settings
        if not settings.evaluate_episodes:
            return 0
        return settings.evaluate_every or (
            max(self.part.budget // 10, 1) if counts_updates(settings) else 0
        )

    def _every(self) -> int:
        """Iterations between rows of metrics, aligned so that a resumed run logs the same rows."""
        wanted = self.settings.log_every or self.part.budget // 100
        if self._judging:
            wanted = min(wanted, self._judging)
        each = max(1, wanted // self._each)
        return each - (int(self.run.iteration) - self.part.begin) % each

    def _compile(self) -> None:
        with self.clock.running(), resting():
            self.run, _ = advance(self.run, 0) if self.run.source.traced else (self.run, None)
            jax.block_until_ready(self.run)

    def _advance(self, left: int) -> None:
        """Towards the next row or visit; what is not traced compiles on the way."""
        with self.clock.running():
            self.run = self._visits.made(self.run)
            self.run = self._lap.go(self.run, together(self.run, left))

    def _write_row(self) -> None:
        """What was done and found since the last row, with an evaluation where one is due. One that
        fails is raised once the row is written: what was learned up to it is to be kept."""
        failure = None
        with self.clock.running():
            self._look()
            tally = jax.device_get(self.run.source.tally)
            row = self._progress() | lived(tally, self.alive)
            try:
                row |= self._evaluated() if self._is_due() else {}
            except Exception as error:
                failure = error
        row["time/seconds"] = round(self.clock.seconds, 3)
        row |= {name: plain(values, self.alive) for name, values in self._lap.means().items()}
        row |= {"failed": [int(seed) for seed in self.failures]}
        self._lap = self._lap.next()
        run = self.run
        self.run = Run(run.agent, run.source.cleared(), run.seeds, run.iteration)
        for sink in self.sinks:
            sink.write(row)
        if failure is not None:
            raise failure

    def _look(self) -> None:
        """Stop the seeds that diverged since the last look; their last good states are kept."""
        held, run = jax.device_get(self.run.agent), self.run
        agent, alive = healthy(self._good, held, self.alive)
        if not alive.all():
            self.run = Run(agent, run.source, run.seeds, run.iteration)
        self._mark_failures(alive)
        self._good = held if alive.all() else jax.device_get(agent)

    def _mark_failures(self, alive: np.ndarray) -> None:
        for index in np.flatnonzero(self.alive & ~alive):
            seed = str(self.settings.seeds[index])
            reason = "its parameters became non-finite or exploded; its last good state is kept"
            self.failures[seed] = {"step": self.step, "update": self.update, "reason": reason}
        self.alive = alive

    def _progress(self) -> dict[str, Any]:
        """How far the run is, and how fast."""
        row: dict[str, Any] = {"step": self.step}
        if counts_updates(self.settings):
            made = sum(part.updates(self._total) for part in self.parts)
            row |= {"update": self.update, "updates": made}
        if any(part.acts for part in self.parts):
            row["steps"] = sum(part.steps(self._total) for part in self.parts)
        row |= {"iteration": int(self.run.iteration), "time/seconds": 0.0}
        if self.settings.phases:
            row["phase"] = self.phase + 1
        kind = "steps" if self.part.acts else "updates"
        rate = self._lap.speed * len(self.settings.seeds) * self._each
        return row | {f"time/{kind}_per_second": round(rate, 3)}

    def _is_due(self) -> bool:
        """Whether an evaluation falls between the last row and this one."""
        every, done, part = self._judging, int(self.run.iteration), self.part
        if done == self._total or not self.settings.evaluate_episodes:
            return False  # the final policies are evaluated at the end
        if done == part.end:
            return True
        now = part.steps(done) if part.acts else part.updates(done)
        begun = now - self._lap.iterations * self._each
        return every > 0 and now // every > begun // every

    def _evaluated(self) -> dict[str, Any]:
        """Whole episodes of the policies as they are now, in the worlds of all phases."""
        if self._judges is None:
            self._judges = Judges(self.settings, self.settings.evaluate_episodes)
        row, found = evaluated(self._judges(self.run.agent), self._worlds[self.phase], self.alive)
        self.judged.append({"phase": self.phase, "iteration": int(self.run.iteration), **found})
        return row

    def _leave(self) -> None:
        """End the process, once it is saved."""
        for sink in self.sinks:
            sink.close()
        if self.saved:
            at = f"step {self.step:,}" if self.part.acts else f"update {self.update:,}"
            tell(f"saved at {at}; go on with: {folder.resuming(self.path)}")
        elif self.path is None:
            tell(NOTHING)
        else:
            tell(f"stopped, not saved; go on from what was, with: {folder.resuming(self.path)}")
        raise SystemExit(EXIT_RESUMABLE)


def phase_of(meta: dict[str, Any], settings: Settings) -> int:
    """The phase that a checkpoint was written in. Before there were more than two, it said whether
    agents acted."""
    return int(meta.get("phase", bool(meta.get("online")) and settings.updates > 0))
