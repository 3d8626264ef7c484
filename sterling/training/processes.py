"""Seeds apart: one process per core, each with its share of the seeds.

    <run>/config.json, metrics.jsonl, result.json ...     the merged run
    <run>/parts/<first seed>/...                          each process's own run folder

Each process is pinned to one core and maps over its seeds: small networks gain more from a core
each than from threads that share one product. The parent only merges what the parts have written.
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
from sterling.training.trained import TrainedRun, bounds, final, load
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
    shares = _shares(settings.seeds)
    merge = Merge([path / "parts" / str(share[0]) for share in shares], [file, *sinks])
    _run_all(settings, shares, path, merge)
    environment = None if isinstance(settings.environment, str) else settings.environment
    parts = [load(each, environment=environment) for each in merge.paths]
    agent = jax.tree.map(
        lambda *leaves: jnp.stack(_interleaved([list(leaf) for leaf in leaves])),
        *(part.agent for part in parts),
    )
    result = _merged([part.result for part in parts], time.monotonic() - start, bounds(settings))
    checkpoint.save(
        folder.checkpoints(path), result.get("updates", result["steps"]), {"agent": agent}, {}
    )
    folder.write_result(path, result)
    for sink in merge.sinks:
        sink.close()
    return TrainedRun(settings, agent, result, path if keep else None)


def _shares(seeds: tuple[int, ...]) -> list[tuple[int, ...]]:
    """The seeds dealt out to as many processes as there are cores."""
    count = min(len(seeds), len(_cores()))
    return [seeds[i::count] for i in range(count)]


def _cores() -> list[int]:
    """The cores this process may use; on systems without affinity just their count."""
    if hasattr(os, "sched_getaffinity"):
        return sorted(os.sched_getaffinity(0))
    return list(range(os.cpu_count() or 1))


def _run_all(settings: Settings, shares: list[tuple[int, ...]], path: Path, merge: Merge) -> None:
    """Start, watch and, on a signal, stop the processes."""
    running = {
        share[0]: _start(dataclasses.replace(settings, seeds=share, strategy="map"), own, core)
        for share, own, core in zip(shares, merge.paths, _cores(), strict=False)
        if folder.read_result(own) is None
    }
    with Interrupt() as interrupt:
        while running and not interrupt.requested:
            time.sleep(POLL)
            merge.go_on()
            for name in [name for name, each in running.items() if each.poll() is not None]:
                _check(name, running.pop(name), list(running.values()))
        if interrupt.requested:
            _stop(list(running.values()))
            print(f"\nsaved; go on with: sterling resume {path}")
            raise SystemExit(EXIT_RESUMABLE)
    merge.go_on()


def _start(settings: Settings, path: Path, core: int) -> subprocess.Popen[bytes]:
    """A process that trains a share of the seeds, or resumes it where it has begun."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with (path.parent / f"{path.name}.log").open("ab") as words:
        process = subprocess.Popen(
            [sys.executable, "-m", "sterling.training.part", str(path), str(core)],
            stdin=subprocess.PIPE,
            stdout=words,
            stderr=words,
            start_new_session=True,
        )
    assert process.stdin is not None
    process.stdin.write(cloudpickle.dumps(settings))
    process.stdin.close()
    return process


def _check(
    name: int, process: subprocess.Popen[bytes], others: list[subprocess.Popen[bytes]]
) -> None:
    if process.returncode:
        _stop(others)
        raise Mistake(
            f"the process of seed {name} ended with code {process.returncode}; "
            f"its last words are in parts/{name}.log; resume the run to try again"
        )


def _stop(processes: list[subprocess.Popen[bytes]]) -> None:
    """Let them save themselves and end."""
    for process in processes:
        process.send_signal(signal.SIGTERM)
    for process in processes:
        process.wait()


class Merge:
    """Puts the parts' rows of metrics together as soon as every part has written a step."""

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
    """One row from one row per part."""
    row = dict(rows[0])
    for name, value in rows[0].items():
        if name == "failed":
            row[name] = sorted(seed for each in rows for seed in each[name])
        elif isinstance(value, list):
            row[name] = _interleaved([each[name] for each in rows])
    row["time/seconds"] = max(each["time/seconds"] for each in rows)
    for speed in ("time/steps_per_second", "time/updates_per_second"):
        if speed in row:
            row[speed] = sum(each[speed] for each in rows)
    return row


def _interleaved(parts: Sequence[Sequence[Any]]) -> list[Any]:
    """Cards dealt out, put together again."""
    made: list[Any] = [None] * sum(len(part) for part in parts)
    for i, part in enumerate(parts):
        made[i :: len(parts)] = part
    return made


def _merged(
    results: list[dict[str, Any]], seconds: float, within: tuple[float, float] | None
) -> dict[str, Any]:
    """One result from one per part."""
    seeds = _interleaved([result["seeds"] for result in results])
    failed = sorted(seed for result in results for seed in result["failed_seeds"])
    scores = [
        r["final"]["return"]["per_seed"] if r["final"] else [None] * len(r["seeds"])
        for r in results
    ]
    measured = any(result["final"] for result in results)
    merged = {
        name: final(_interleaved([r["switch"][name]["per_seed"] for r in results]), seeds, failed)
        for name in ("before", "lowest", "dip")
        if all("switch" in r for r in results)
    }
    kind = "updates" if "updates" in results[0] else "steps"
    made = sum(result[kind] * len(result["seeds"]) for result in results)
    return {
        **results[0],
        "seeds": seeds,
        "final": {"return": final(_interleaved(scores), seeds, failed, within)} if measured else {},
        **({"switch": merged} if merged else {}),
        "failed_seeds": failed,
        "failures": {k: v for result in results for k, v in result["failures"].items()},
        "wall_seconds": round(seconds, 3),
        f"{kind}_per_second": round(made / seconds, 1),
    }
