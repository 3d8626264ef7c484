"""The host's side of a run: it logs, saves, watches and decides; the loop itself is in loop.py."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import numpy as np

from sterling.envs.workers import WorldFailed
from sterling.experience.rollout import Rollout, Tally
from sterling.report.metrics import Sink
from sterling.training import checkpoint, folder
from sterling.training.guard import EXIT_RESUMABLE, Interrupt, healthy
from sterling.training.loop import Run, advance
from sterling.training.settings import Settings, iteration_steps, iterations, warmup_steps


class Driver:
    """Carries one run from where it is to its end, chunk by chunk."""

    def __init__(
        self,
        settings: Settings,
        run: Run,
        path: Path | None,
        sinks: Sequence[Sink],
        meta: dict[str, Any] | None = None,
    ):
        meta = meta or {}
        self.settings, self.run, self.path, self.sinks = settings, run, path, sinks
        self.alive = np.asarray(meta.get("alive", [True] * len(settings.seeds)))
        self.failures: dict[str, Any] = dict(meta.get("failures", {}))
        self.seconds: float = meta.get("seconds", 0.0)
        self.compile_seconds: float = meta.get("compile_seconds", 0.0)
        self._total = iterations(settings)
        self._saved = time.monotonic()

    @property
    def step(self) -> int:
        """Environment steps taken so far, per seed."""
        each = iteration_steps(self.settings)
        return warmup_steps(self.settings) + int(self.run.iteration) * each

    def go(self) -> None:
        """Run to the end; SIGTERM or Ctrl-C saves and exits with code 75."""
        self._compile()
        with Interrupt() as interrupt:
            while (done := int(self.run.iteration)) < self._total and self.alive.any():
                try:
                    self._chunk(min(self._every(), self._total - done))
                except WorldFailed:
                    if not _given_away(self.run):
                        self.save()  # as it was before this chunk; else the last checkpoint stands
                    raise
                if interrupt.requested:
                    self._leave()
                if time.monotonic() - self._saved > 60 * self.settings.checkpoint_minutes:
                    self.save()
        self.save()

    def save(self) -> bool:
        """Write the whole run as one tree; False where there is no folder or no room."""
        if self.path is None:
            return False
        meta = {
            "alive": self.alive.tolist(),
            "failures": self.failures,
            "seconds": self.seconds,
            "compile_seconds": self.compile_seconds,
        }
        where = folder.checkpoints(self.path)
        written = checkpoint.save(where, self.step, stored(self.run), meta)
        self._saved = time.monotonic()
        return written is not None

    def _every(self) -> int:
        """Iterations between rows of metrics, aligned so that a resumed run logs the same rows."""
        wanted = self.settings.log_every or self.settings.steps // 100
        each = max(1, wanted // iteration_steps(self.settings))
        return each - int(self.run.iteration) % each

    def _compile(self) -> None:
        start = time.monotonic()
        self.run, _ = advance(self.run, 0) if self.run.source.world.traced else (self.run, None)
        jax.block_until_ready(self.run)
        self.compile_seconds += time.monotonic() - start
        self.seconds += time.monotonic() - start

    def _chunk(self, count: int) -> None:
        start, before = time.monotonic(), jax.device_get(self.run.agent)
        self.run, metrics = advance(self.run, count)
        agent, alive = healthy(before, self.run.agent, self.alive)
        tally = jax.device_get(innermost(self.run.source).tally)
        source = _cleared(self.run.source)
        self.run = Run(agent, source, self.run.seeds, self.run.iteration)
        self._mark_failures(alive)
        elapsed = time.monotonic() - start
        self.seconds += elapsed
        steps = count * iteration_steps(self.settings) * len(self.settings.seeds)
        self._report(tally, metrics, steps / elapsed)

    def _mark_failures(self, alive: np.ndarray) -> None:
        for index in np.flatnonzero(self.alive & ~alive):
            seed = str(self.settings.seeds[index])
            reason = "its parameters became non-finite or exploded; its last good state is kept"
            self.failures[seed] = {"step": self.step, "reason": reason}
        self.alive = alive

    def _report(self, tally: Tally, metrics: dict[str, Any], rate: float) -> None:
        episodes = np.maximum(tally.episodes, 1)
        live = self.alive & (tally.episodes > 0)
        row: dict[str, Any] = {
            "step": self.step,
            "steps": warmup_steps(self.settings) + self._total * iteration_steps(self.settings),
            "iteration": int(self.run.iteration),
            "time/seconds": round(self.seconds, 3),
            "time/steps_per_second": round(rate, 1),
            "data/return": _plain(np.asarray(tally.returns) / episodes, live),
            "data/length": _plain(np.asarray(tally.lengths) / episodes, live),
            "data/episodes": tally.episodes.tolist(),
            "data/invalid": tally.invalid.tolist(),
            **{name: _plain(np.asarray(metrics[name]), self.alive) for name in sorted(metrics)},
            "failed": [int(seed) for seed in self.failures],
        }
        for sink in self.sinks:
            sink.write(row)

    def _leave(self) -> None:
        saved = self.save()
        for sink in self.sinks:
            sink.close()
        if saved:
            print(f"saved at step {self.step:,}; go on with: sterling resume {self.path}")
        elif self.path is None:
            print("stopped; nothing is kept without a run folder (out=...)")
        raise SystemExit(EXIT_RESUMABLE)


def stored(run: Run) -> Run:
    """What of a run is written: everything, but for worlds that cannot be saved their state.

    Such a world (EnvPool's simulators, a Python process) starts fresh episodes on resuming.
    """
    rollout = innermost(run.source)
    if rollout.world.exact:
        return run
    kept = eqx.tree_at(lambda r: (r.state, r.obs, r.episode), rollout, (None, None, None))
    return eqx.tree_at(lambda r: innermost(r.source), run, kept)


def restored(saved: Run, fresh: Run) -> Run:
    """``saved`` with the world's state of ``fresh`` where it was not stored."""
    rollout = innermost(fresh.source)
    if rollout.world.exact:
        return saved
    parts = (rollout.state, rollout.obs, rollout.episode)
    whole = eqx.tree_at(
        lambda r: (r.state, r.obs, r.episode),
        innermost(saved.source),
        parts,
        is_leaf=lambda x: x is None,
    )
    return eqx.tree_at(lambda r: innermost(r.source), saved, whole)


def innermost(source: Any) -> Rollout:
    """The rollout that a chain of sources rests on."""
    while not isinstance(source, Rollout):
        source = source.source
    return source


def _cleared(source: Any) -> Any:
    """The source with an empty tally."""
    empty = Tally.empty(source.world.seeds)
    return eqx.tree_at(lambda s: innermost(s).tally, source, empty)


def _plain(values: np.ndarray, valid: np.ndarray) -> list[float | None]:
    """JSON numbers; None where a seed has nothing to say."""
    good = valid & np.isfinite(values)
    return [float(v) if ok else None for v, ok in zip(values, good, strict=True)]


def _given_away(run: Run) -> bool:
    """Whether a chunk that was broken off has already used up the run's arrays."""
    leaves = jax.tree.leaves(run)
    return any(isinstance(leaf, jax.Array) and leaf.is_deleted() for leaf in leaves)
