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
from sterling.training.guard import EXIT_RESUMABLE, NOTHING, Interrupt, healthy
from sterling.training.judge import Judge
from sterling.training.lap import Lap
from sterling.training.loop import Run, advance, as_planned, given_away, restored, stored
from sterling.training.settings import (
    Settings,
    counts_updates,
    iteration_steps,
    iteration_updates,
    iterations,
    offline_iterations,
    updates_of,
    warmup_steps,
)
from sterling.training.start import build, go_online
from sterling.training.visits import Visits, together


class Driver:
    """Carries one run from where it is to its end, from row to row of its log. One with a log and
    steps has two phases: ``online`` says whether the second has begun."""

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
        self.online: bool = meta.get("online", not settings.updates)
        self.judged: list[dict[str, Any]] = list(meta.get("judged", []))
        self._offline, self._total = offline_iterations(settings), iterations(settings)
        self.saved = begun is not None  # whether the last checkpoint was written
        self._save_time = time.monotonic()
        self._lap, self._visits = Lap(meta.get("lap")), Visits(meta)
        self._judge: Judge | None = None  # makes the evaluations in between
        self._at = 0 if begun is None else checkpoint.iteration(begun)  # to go on from
        with resting():
            self.run = build(settings, warm=begun is None, at=self._at)
        if begun is not None:
            self._take_up(begun)
        self._good = jax.device_get(self.run.agent)  # when it was last looked at

    @property
    def step(self) -> int:
        """Environment steps taken so far, per seed."""
        if not self.online:
            return 0
        rounds = int(self.run.iteration) - self._offline
        return warmup_steps(self.settings) + rounds * iteration_steps(self.settings)

    @property
    def update(self) -> int:
        """Gradient updates so far, per seed, of a learner that samples."""
        return updates_of(self.settings, int(self.run.iteration))

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
            if done == self._offline and not self.online:
                self._switch()
            left = min(self._every(), self._until() - done)
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
            "online": self.online,
            "judged": self.judged,
            "lap": self._lap.to_json(),
            **self._visits.to_json(),
        }
        number = self.step + self._offline * iteration_updates(self.settings)
        number = number if self.online else self.update
        written = checkpoint.save(folder.checkpoints(self.path), number, stored(self.run), meta)
        self._save_time, self.saved = time.monotonic(), written is not None
        return self.saved

    def close(self) -> None:
        """Release worlds and sinks."""
        for sink in self.sinks:
            sink.close()
        self.run.source.close()
        if self._judge is not None:
            self._judge.close()

    def _take_up(self, begun: Path) -> None:
        """Go on from a checkpoint."""
        if self.online and self.settings.updates:
            self.run = go_online(self.settings, self.run, warm=False, at=self._at)
        saved, _ = checkpoint.load(begun, stored(self.run), fit=as_large)
        self.run = as_planned(restored(saved, self.run), self.run.agent)

    def _switch(self) -> None:
        """From the log to the world."""
        with self.clock.running():
            self.run, self.online = go_online(self.settings, self.run), True
        self._lap = Lap()  # of another program, with other metrics
        self._compile()

    @property
    def _budget(self) -> int:
        """Steps, or before them updates, of this phase."""
        return self.settings.steps if self.online else self.settings.updates

    @property
    def _judging(self) -> int:
        """Steps or updates between evaluations; 0: none before the end."""
        settings = self.settings
        if not settings.evaluate_episodes:
            return 0
        return settings.evaluate_every or (
            max(self._budget // 10, 1) if counts_updates(settings) else 0
        )

    def _until(self) -> int:
        """The iteration at which this phase ends."""
        return self._total if self.online else self._offline

    def _every(self) -> int:
        """Iterations between rows of metrics, aligned so that a resumed run logs the same rows."""
        settings = self.settings
        round_ = iteration_steps(settings) if self.online else iteration_updates(settings)
        wanted = settings.log_every or self._budget // 100
        if self._judging:
            wanted = min(wanted, self._judging)
        each = max(1, wanted // round_)
        begun = self._offline if self.online else 0
        return each - (int(self.run.iteration) - begun) % each

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
            row = self._progress() | self._lived(tally)
            try:
                row |= self._evaluated() if self._is_due() else {}
            except Exception as error:
                failure = error
        row["time/seconds"] = round(self.clock.seconds, 3)
        row |= {name: _plain(values, self.alive) for name, values in self._lap.means().items()}
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
        settings = self.settings
        row: dict[str, Any] = {"step": self.step}
        rate = self._lap.speed * len(settings.seeds)
        if counts_updates(settings):
            row |= {"update": self.update, "updates": self._total * iteration_updates(settings)}
        if settings.steps:
            rounds = self._total - self._offline
            row["steps"] = warmup_steps(settings) + rounds * iteration_steps(settings)
        row |= {"iteration": int(self.run.iteration), "time/seconds": 0.0}
        if self.online:
            row["time/steps_per_second"] = round(rate * iteration_steps(settings), 3)
        else:
            row["time/updates_per_second"] = round(rate * iteration_updates(settings), 3)
        return row

    def _lived(self, tally: Any) -> dict[str, Any]:
        """The episodes that ended since the last row."""
        if tally is None:
            return {}
        episodes = np.maximum(tally.episodes, 1)
        live = self.alive & (tally.episodes > 0)
        means = {name: np.asarray(total) / episodes for name, total in tally.totals.items()}
        return {
            **{f"data/{name}": _plain(mean, live) for name, mean in means.items()},
            "data/episodes": tally.episodes.tolist(),
            "data/invalid": tally.invalid.tolist(),
        }

    def _is_due(self) -> bool:
        """Whether an evaluation falls between the last row and this one."""
        every, done = self._judging, int(self.run.iteration)
        if not every or done == self._total:
            return False  # the final policies are evaluated at the end
        each = iteration_steps if self.online else iteration_updates
        now = self.step if self.online else self.update
        begun = now - self._lap.iterations * each(self.settings)
        return now // every > begun // every or done == self._offline

    def _evaluated(self) -> dict[str, Any]:
        """Whole episodes of the policies as they are now."""
        if self._judge is None:
            self._judge = Judge(self.settings, self.settings.evaluate_episodes)
        found = self._judge(self.run.agent)
        found = {name: each.mean(1) for name, each in found.items() if name != "ended"}
        means = {name: _plain(each, self.alive) for name, each in found.items()}
        self.judged.append({"online": self.online, "return": means["return"]})
        return {f"evaluation/{name}": values for name, values in means.items()}

    def _leave(self) -> None:
        """End the process, once it is saved."""
        for sink in self.sinks:
            sink.close()
        if self.saved:
            at = f"step {self.step:,}" if self.online else f"update {self.update:,}"
            tell(f"saved at {at}; go on with: {folder.resuming(self.path)}")
        elif self.path is None:
            tell(NOTHING)
        else:
            tell(f"stopped, not saved; go on from what was, with: {folder.resuming(self.path)}")
        raise SystemExit(EXIT_RESUMABLE)


def _plain(values: np.ndarray, valid: np.ndarray) -> list[float | None]:
    """JSON numbers; None where a seed has nothing to say."""
    good = valid & np.isfinite(values)
    return [float(v) if ok else None for v, ok in zip(values, good, strict=True)]
