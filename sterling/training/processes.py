"""Seeds apart: one process per seed, as many at a time as there are cores.

    <run>/config.json, metrics.jsonl, result.json ...     the merged run
    <run>/seeds/<seed>/...                                each seed's own run folder

Each process is pinned to one core: small networks gain more from a core each than from threads
that share one product. The parent only merges what the seeds have written.
"""

from __future__ import annotations

import dataclasses
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import cloudpickle
import jax
import jax.numpy as jnp

from sterling.report.metrics import MetricsFile, Sink, read
from sterling.training import checkpoint, folder
from sterling.training.guard import EXIT_RESUMABLE, Interrupt
from sterling.training.settings import Settings
from sterling.training.trained import TrainedRun, final, load
from sterling.types import Mistake


POLL = 0.5  # seconds between looks at what the seeds have written


def train_apart(settings: Settings, path: Path | None, sinks: Sequence[Sink]) -> TrainedRun:
    """Train, or go on training, every seed in a process of its own."""
    if path is None:
        with tempfile.TemporaryDirectory() as short_lived:
            return _train(settings, Path(short_lived), sinks, keep=False)
    with folder.lock(path):
        return _train(settings, path, sinks, keep=True)


def _train(settings: Settings, path: Path, sinks: Sequence[Sink], keep: bool) -> TrainedRun:
    if not (path / "config.json").exists():
        folder.write_config(path, settings.to_json() | folder.environment_facts())
    start = time.monotonic()
    file = MetricsFile(folder.metrics(path))
    file.truncate(-1)
    merge = Merge([path / "seeds" / str(seed) for seed in settings.seeds], [file, *sinks])
    _run_all(settings, path, merge)
    environment = None if isinstance(settings.environment, str) else settings.environment
    seeds = [load(each, environment=environment) for each in merge.paths]
    agent = jax.tree.map(lambda *leaves: jnp.concatenate(leaves), *(s.agent for s in seeds))
    result = _merged([seed.result for seed in seeds], time.monotonic() - start)
    checkpoint.save(folder.checkpoints(path), result["steps"], {"agent": agent}, {})
    folder.write_result(path, result)
    if keep:
        from sterling.report.curve import draw

        draw(path)
    for sink in merge.sinks:
        sink.close()
    return TrainedRun(settings, agent, result, path if keep else None)


def _run_all(settings: Settings, path: Path, merge: Merge) -> None:
    """Start, watch and, on a signal, stop the seeds' processes."""
    pairs = zip(settings.seeds, merge.paths, strict=True)
    waiting = [(seed, own) for seed, own in pairs if folder.read_result(own) is None]
    cores = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []
    free: list[int | None] = list(cores) or [None] * (os.cpu_count() or 1)
    running: dict[int, tuple[subprocess.Popen[bytes], int | None]] = {}
    with Interrupt() as interrupt:
        while (waiting or running) and not interrupt.requested:
            while waiting and free:
                seed, own = waiting.pop(0)
                core = free.pop(0)
                running[seed] = _start(settings, seed, own, core), core
            time.sleep(POLL)
            merge.go_on()
            for seed in [s for s, (process, _) in running.items() if process.poll() is not None]:
                process, core = running.pop(seed)
                free.append(core)
                _check(seed, process)
        if interrupt.requested:
            _stop(running, path)
    merge.go_on()


def _start(
    settings: Settings, seed: int, path: Path, core: int | None
) -> subprocess.Popen[bytes]:
    """A process that trains one seed, or resumes it where it has begun."""
    own = dataclasses.replace(settings, seeds=(seed,), strategy="map")
    path.parent.mkdir(parents=True, exist_ok=True)
    errors = (path.parent / f"{path.name}.log").open("ab")
    process = subprocess.Popen(
        [sys.executable, "-m", "sterling.training.one_seed", str(path), str(core)],
        stdin=subprocess.PIPE,
        stdout=errors,
        stderr=errors,
        start_new_session=True,
    )
    assert process.stdin is not None
    process.stdin.write(cloudpickle.dumps(own))
    process.stdin.close()
    return process


def _check(seed: int, process: subprocess.Popen[bytes]) -> None:
    if process.returncode:
        raise Mistake(
            f"the process of seed {seed} ended with code {process.returncode}; "
            f"its last words are in seeds/{seed}.log; resume the run to try again"
        )


def _stop(running: dict[int, Any], path: Path) -> None:
    """Let every seed save itself, then leave."""
    for process, _ in running.values():
        process.send_signal(signal.SIGTERM)
    for process, _ in running.values():
        process.wait()
    print(f"\nsaved; go on with: sterling resume {path}")
    raise SystemExit(EXIT_RESUMABLE)


class Merge:
    """Puts the seeds' rows of metrics together as soon as every seed has written a step."""

    def __init__(self, paths: list[Path], sinks: Sequence[Sink]):
        self.paths, self.sinks = paths, list(sinks)
        self._written = 0

    def go_on(self) -> None:
        """Write the rows that have become complete."""
        files = [folder.metrics(path) for path in self.paths]
        logs = [read(file) for file in files if file.exists()]
        if len(logs) < len(self.paths):
            return
        for rows in list(zip(*logs, strict=False))[self._written :]:
            for sink in self.sinks:
                sink.write(_merged_row(rows))
            self._written += 1


def _merged_row(rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """One row from one row per seed."""
    first = rows[0]
    row = {name: sum((r[name] for r in rows), []) for name in first if isinstance(first[name], list)}
    row |= {name: first[name] for name in ("step", "steps", "iteration")}
    row["time/seconds"] = max(r["time/seconds"] for r in rows)
    row["time/steps_per_second"] = sum(r["time/steps_per_second"] for r in rows)
    return row


def _merged(results: list[dict[str, Any]], seconds: float) -> dict[str, Any]:
    """One result from one per seed."""
    seeds = [result["seeds"][0] for result in results]
    failed = [seed for result in results for seed in result["failed_seeds"]]
    failures = {k: v for result in results for k, v in result["failures"].items()}
    scores = [r["final"]["return"]["per_seed"][0] if r["final"] else None for r in results]
    measured = any(score is not None for score in scores)
    return {
        **results[0],
        "seeds": seeds,
        "final": {"return": final(scores, seeds, failed)} if measured else {},
        "failed_seeds": failed,
        "failures": failures,
        "wall_seconds": round(seconds, 3),
        "steps_per_second": round(sum(r["steps"] for r in results) / seconds, 1),
    }
