"""Train seeds in several processes: one process per core, each with its share of the seeds.

    <run>/config.json, metrics.jsonl, result.json ...     the merged run
    <run>/parts/<first seed>/...                          each process's own run folder
    <run>/parts/<first seed>.log                          its output

Each process is pinned to one core and maps over its seeds: small networks gain more from one core
each than from threads that share one matrix product. The parent only merges what the parts have
written (see merge_results.py). Parts end with the parent: when their standard input closes, because
the parent is gone or wants them to stop, they save and exit.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from sterling.envs.hosted.worker_pool import WorldFailed
from sterling.report.live.guarded_sinks import GuardedSinks
from sterling.report.live.metric_sinks import MetricsFile, Sink, read_metrics
from sterling.system import pickling
from sterling.system.terminal_messages import print_notice, print_progress
from sterling.training.config.settings import Settings
from sterling.training.in_process import RESUME_MESSAGE, UNSAVED_MESSAGE, show_observations
from sterling.training.processes.join_runs import join_runs
from sterling.training.processes.merge_results import (
    MetricsMerger,
    PartLog,
)
from sterling.training.processes.seed_worker import (
    ERROR_PREFIX,
    LENGTH_BYTES,
    WORLD_FAILED,
    WRONG_USE,
)
from sterling.training.runtime.signals import EXIT_RESUMABLE, NOTHING_KEPT, Interrupt
from sterling.training.saving import checkpoint, run_folder
from sterling.training.steering.callbacks import check_pickled
from sterling.training.steering.process_agreement import mark_as_training
from sterling.training.trained_run import TrainedRun
from sterling.training.warm_start.announce_start import announce_start
from sterling.types import Mistake

POLL_SECONDS = 0.5  # seconds between reads of what the parts have written

Process = subprocess.Popen[bytes]


def train_in_processes(
    settings: Settings, path: Path | None, sinks: Sequence[Sink], callbacks: Sequence[Any] = ()
) -> TrainedRun:
    """Train the seeds in several processes, or resume such a run. Every process gets its own copy
    of the callbacks."""
    check_pickled(callbacks)
    how: Any = {"sinks": sinks, "callbacks": callbacks}
    if path is None:
        with tempfile.TemporaryDirectory() as short_lived:
            return _train_parts(settings, Path(short_lived), **how, keep=False)
    with run_folder.lock(path):
        return _train_parts(settings, path, **how, keep=True)


def _train_parts(
    settings: Settings,
    path: Path,
    *,
    sinks: Sequence[Sink],
    callbacks: Sequence[Any],
    keep: bool,
) -> TrainedRun:
    fresh = not (path / "config.json").exists()
    if fresh:
        announce_start(settings)
        run_folder.write_config(path, settings.to_json() | run_folder.environment_facts())
    start = time.monotonic()
    shares = {path / "parts" / str(share[0]): share for share in _deal_seeds(settings.seeds)}
    file = MetricsFile(run_folder.metrics_path(path))
    _rewind(file, {p: len(own) for p, own in shares.items() if p.is_dir() and not _is_done(p)})
    written = max((row["iteration"] for row in read_metrics(file.path)), default=-1)
    merge = MetricsMerger(
        list(shares),
        [len(share) for share in shares.values()],
        [file, GuardedSinks(sinks)],
        written,
    )
    try:
        stopped = _run_all(settings, shares, merge, callbacks)
    except Mistake:
        if fresh:
            _undo_folder(path, shares)
        raise
    finally:
        for sink in merge.sinks:
            sink.close()
    if stopped:
        _exit_resumable(path if keep else None)
    if not all(map(_is_done, shares)):
        _exit_unsaved(path if keep else None)
    return join_runs(settings, path, list(shares), start, keep=keep)


def _undo_folder(path: Path, parts: Iterable[Path]) -> None:
    """If no part could begin, remove the run's files: the corrected command may use the folder."""
    if not any((part / "config.json").exists() for part in parts):
        for file in (path / "config.json", run_folder.metrics_path(path)):
            file.unlink(missing_ok=True)


def _exit_resumable(path: Path | None) -> None:
    print_progress(
        "\n" + RESUME_MESSAGE.format(run_folder.resume_command(path)) if path else NOTHING_KEPT
    )
    raise SystemExit(EXIT_RESUMABLE)


def _exit_unsaved(path: Path | None) -> None:
    """Exit because a part had no disk space for its final policies, which are lost."""
    if path is None:
        raise Mistake(
            f"no disk space for the final policies in {tempfile.gettempdir()}. Free some there."
        )
    print_notice(UNSAVED_MESSAGE.format(run_folder.resume_command(path)))
    raise SystemExit(EXIT_RESUMABLE)


def _deal_seeds(seeds: tuple[int, ...]) -> list[tuple[int, ...]]:
    """Deal the seeds to as many processes as there are cores."""
    count = min(len(seeds), len(_cores()))
    return [seeds[i::count] for i in range(count)]


def _cores() -> list[int]:
    """Return the cores that this process may use; without CPU affinity 0 to the core count."""
    if hasattr(os, "sched_getaffinity"):
        return sorted(os.sched_getaffinity(0))
    return list(range(os.cpu_count() or 1))


def _is_done(part: Path) -> bool:
    return run_folder.result_path(part).exists()


def _rewind(file: MetricsFile, parts: dict[Path, int]) -> None:
    """Remove rows that the parts will write again, from the merged ``file`` and from their own
    files; ``parts`` gives each part's number of seeds.

    Raise Mistake if another process holds a part's lock, such as a part of an earlier parent.
    """
    with contextlib.ExitStack() as held:
        for part in parts:
            held.enter_context(run_folder.lock(part))
        saved = {part: _saved_iteration(part) for part in parts}
        rewritten = [at for part, at in saved.items() if PartLog(part, parts[part]).last > at]
        if rewritten:  # the merged file first: if killed in between, the next call repeats all this
            file.truncate(min(rewritten))
        for part, at in saved.items():
            with contextlib.closing(MetricsFile(run_folder.metrics_path(part))) as own:
                own.truncate(at)


def _saved_iteration(part: Path) -> int:
    """Return the iteration of a part's checkpoint; -1 if it has none."""
    newest = checkpoint.newest_valid(run_folder.checkpoints_path(part))
    return -1 if newest is None else checkpoint.read_iteration(newest)


def _run_all(
    settings: Settings,
    shares: dict[Path, tuple[int, ...]],
    merge: MetricsMerger,
    callbacks: Sequence[Any],
) -> bool:
    """Start the processes and wait for them; return whether a signal stopped them. All of them
    have ended when this returns or raises."""
    running: dict[Path, Process] = {}
    for part in shares:
        if not _is_done(part):
            mark_as_training(part)
    shown = False  # whether the first lines, on how observations are read
    with Interrupt() as interrupt:
        try:
            for (part, share), core in zip(shares.items(), _cores(), strict=False):
                if not _is_done(part):
                    own = dataclasses.replace(settings, seeds=share, strategy="map")
                    running[part] = _start(own, part, core, callbacks, list(shares))
            while running and not interrupt.requested:
                time.sleep(POLL_SECONDS)
                shown = shown or _show_observations(shares, merge)
                merge.go_on()
                interrupt.requested = interrupt.requested or _take_out_ended(running)
        finally:
            _stop(running.values())
    merge.go_on()
    return interrupt.requested


def _show_observations(parts: Iterable[Path], merge: MetricsMerger) -> bool:
    """Show how the agents read observations, once a part has written it; return whether one has."""
    for part in parts:
        if (part / "config.json").exists():
            lines = run_folder.read_config(part).get("observations", [])
            guarded = [sink for sink in merge.sinks if isinstance(sink, GuardedSinks)]
            for sinks in guarded:
                show_observations(lines, sinks)
            return True
    return False


def _start(
    settings: Settings,
    part: Path,
    core: int,
    callbacks: Sequence[Any] = (),
    folders: Sequence[Path] = (),
) -> Process:
    """Start a process that trains a share of the seeds, or resumes it; ``folders``: of all
    processes of the run."""
    content = pickling.dumps((settings, list(callbacks), list(folders)))
    part.parent.mkdir(parents=True, exist_ok=True)
    with _log_path(part).open("ab") as words:
        process = subprocess.Popen(
            [sys.executable, "-m", "sterling.training.processes.seed_worker", str(part), str(core)],
            stdin=subprocess.PIPE,
            stdout=words,
            stderr=words,
            start_new_session=True,
        )
    assert process.stdin is not None
    with contextlib.suppress(BrokenPipeError):  # its exit code is handled later
        process.stdin.write(len(content).to_bytes(LENGTH_BYTES, "big") + content)
        process.stdin.flush()
    return process


def _take_out_ended(running: dict[Path, Process]) -> bool:
    """Remove the processes that have ended from ``running``; return whether a signal stopped one.

    Raise the error of a process that failed.
    """
    for part, process in list(running.items()):
        if process.poll() is None:
            continue
        if process.returncode == EXIT_RESUMABLE:
            return True
        del running[part]
        if process.returncode:
            raise _part_failure(part, process.returncode)
    return False


def _part_failure(part: Path, code: int) -> Exception:
    """Return the exception for a process that ended with an exit code."""
    last = _log_path(part).read_text(errors="replace").rstrip().rpartition("\n")[2]
    if code in (WRONG_USE, WORLD_FAILED) and last.startswith(ERROR_PREFIX):
        kind = Mistake if code == WRONG_USE else WorldFailed
        return kind(f"the process of seed {part.name}: {last.removeprefix(ERROR_PREFIX)}")
    return Mistake(
        f"the process of seed {part.name} ended with code {code}. Its output is in "
        f"{_log_path(part)}. Resume the run to try again."
    )


def _log_path(part: Path) -> Path:
    """Return the file with the output of a part's process."""
    return part.with_name(f"{part.name}.log")


def _stop(processes: Iterable[Process]) -> None:
    """Ask the processes to save and exit, and wait for them."""
    for process in processes:
        assert process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            process.stdin.close()
    for process in processes:
        process.wait()
