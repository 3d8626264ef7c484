"""Seeds apart: one process per core, each with its share of the seeds.

    <run>/config.json, metrics.jsonl, result.json ...     the merged run
    <run>/parts/<first seed>/...                          each process's own run folder
    <run>/parts/<first seed>.log                          what it printed

Each process is pinned to one core and maps over its seeds: small networks gain more from a core
each than from threads that share one product. The parent only merges what the parts have written
(see merging.py). They live no longer than it: their standard input stays open, and when it ends,
because the parent is gone or wants them to stop, they save and leave.
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

import jax
import jax.numpy as jnp

from sterling import pickling
from sterling.envs.workers import WorldFailed
from sterling.notice import say, tell
from sterling.report.damaged import check_made
from sterling.report.guarded import Guarded
from sterling.report.metrics import MetricsFile, Sink, read
from sterling.training import checkpoint, folder
from sterling.training.guard import EXIT_RESUMABLE, NOTHING, Interrupt
from sterling.training.merging import Log, Merge, interleaved, merged
from sterling.training.part import LENGTH, TOLD, WORLD_FAILED, WRONG_USE
from sterling.training.settings import Settings
from sterling.training.single import ON, UNSAVED, complete
from sterling.training.trained import TrainedRun, bounds, load
from sterling.types import Mistake

POLL = 0.5  # seconds between looks at what the seeds have written

Process = subprocess.Popen[bytes]


def train_apart(settings: Settings, path: Path | None, sinks: Sequence[Sink]) -> TrainedRun:
    """Train, or go on training, every seed in a process of its own."""
    if path is None:
        with tempfile.TemporaryDirectory() as short_lived:
            return _train(settings, Path(short_lived), sinks, keep=False)
    with folder.lock(path):
        return _train(settings, path, sinks, keep=True)


def _train(settings: Settings, path: Path, sinks: Sequence[Sink], keep: bool) -> TrainedRun:
    fresh = not (path / "config.json").exists()
    if fresh:
        folder.write_config(path, settings.to_json() | folder.environment_facts())
    start = time.monotonic()
    shares = {path / "parts" / str(share[0]): share for share in _shares(settings.seeds)}
    file = MetricsFile(folder.metrics(path))
    _go_back(file, {p: len(own) for p, own in shares.items() if p.is_dir() and not _is_done(p)})
    begun = max((row["iteration"] for row in read(file.path)), default=-1)
    merge = Merge(
        list(shares), [len(share) for share in shares.values()], [file, Guarded(sinks)], begun
    )
    try:
        stopped = _run_all(settings, shares, merge)
    except Mistake:
        if fresh:
            _give_back(path, shares)
        raise
    finally:
        for sink in merge.sinks:
            sink.close()
    if stopped:
        _leave(path if keep else None)
    if not all(map(_is_done, shares)):
        _break_off(path if keep else None)
    return _joined(settings, path, list(shares), start, keep)


def _give_back(path: Path, parts: Iterable[Path]) -> None:
    """Where no part could begin, the folder is no run's: the corrected command may name it."""
    if not any((part / "config.json").exists() for part in parts):
        for file in (path / "config.json", folder.metrics(path)):
            file.unlink(missing_ok=True)


def _leave(path: Path | None) -> None:
    tell("\n" + ON.format(folder.resuming(path)) if path else NOTHING)
    raise SystemExit(EXIT_RESUMABLE)


def _break_off(path: Path | None) -> None:
    """Where a part has ended without room for its final policies: they went with it."""
    if path is None:
        raise Mistake(f"no room for the final policies in {tempfile.gettempdir()}; make room there")
    say(UNSAVED.format(folder.resuming(path)))
    raise SystemExit(EXIT_RESUMABLE)


def _joined(
    settings: Settings, path: Path, paths: list[Path], start: float, keep: bool
) -> TrainedRun:
    """One run from the parts' runs, also on disk."""
    again = None if isinstance(settings.environment, str) else settings.environment
    parts = [load(each, environment=again) for each in paths]
    agent = jax.tree.map(
        lambda *leaves: jnp.stack(interleaved([list(leaf) for leaf in leaves])),
        *(part.agent for part in parts),
    )
    results, seconds = [part.result for part in parts], time.monotonic() - start
    for each, part in zip(paths, parts, strict=True):
        check_made(folder.result(each), part.result, len(part.settings.seeds))
    result = merged(results, settings.envs, seconds, bounds(settings), settings.failed)
    number = result.get("updates", result["steps"])
    written = checkpoint.save(folder.checkpoints(path), number, {"agent": agent}, {})
    if keep:
        complete(path, result, written is not None)
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


def _is_done(part: Path) -> bool:
    return folder.result(part).exists()


def _go_back(file: MetricsFile, parts: dict[Path, int]) -> None:
    """Drop what the parts will write again from the merged ``file`` and from their own; ``parts``
    says how many seeds each has.

    Raises Mistake for a part that another process holds: one that an earlier parent has left.
    """
    with contextlib.ExitStack() as held:
        for part in parts:
            held.enter_context(folder.lock(part))
        saved = {part: _saved(part) for part in parts}
        lost = [at for part, at in saved.items() if Log(part, parts[part]).last > at]
        if lost:  # the merged file first: killed in between, all this is found again
            file.truncate(min(lost))
        for part, at in saved.items():
            with contextlib.closing(MetricsFile(folder.metrics(part))) as own:
                own.truncate(at)


def _saved(part: Path) -> int:
    """The iteration at which a part goes on; -1 where it begins anew."""
    begun = checkpoint.newest_sound(folder.checkpoints(part))
    return -1 if begun is None else checkpoint.iteration(begun)


def _run_all(settings: Settings, shares: dict[Path, tuple[int, ...]], merge: Merge) -> bool:
    """Start and watch the processes; whether they were stopped by a signal, saved. However this
    ends, none of them goes on."""
    running: dict[Path, Process] = {}
    with Interrupt() as interrupt:
        try:
            for (part, share), core in zip(shares.items(), _cores(), strict=False):
                if not _is_done(part):
                    own = dataclasses.replace(settings, seeds=share, strategy="map")
                    running[part] = _start(own, part, core)
            while running and not interrupt.requested:
                time.sleep(POLL)
                merge.go_on()
                interrupt.requested = interrupt.requested or _left(running)
        finally:
            _stop(running.values())
    merge.go_on()
    return interrupt.requested


def _start(settings: Settings, part: Path, core: int) -> Process:
    """A process that trains a share of the seeds, or resumes it where it has begun."""
    content = pickling.dumps(settings)  # raises Mistake for what other processes cannot import
    part.parent.mkdir(parents=True, exist_ok=True)
    with _words(part).open("ab") as words:
        process = subprocess.Popen(
            [sys.executable, "-m", "sterling.training.part", str(part), str(core)],
            stdin=subprocess.PIPE,
            stdout=words,
            stderr=words,
            start_new_session=True,
        )
    assert process.stdin is not None
    with contextlib.suppress(BrokenPipeError):  # its exit code will be seen
        process.stdin.write(len(content).to_bytes(LENGTH, "big") + content)
        process.stdin.flush()
    return process


def _left(running: dict[Path, Process]) -> bool:
    """Take out the processes that have ended; whether somebody has told one to save and leave.

    Raises what has gone wrong in one.
    """
    for part, process in list(running.items()):
        if process.poll() is None:
            continue
        if process.returncode == EXIT_RESUMABLE:
            return True
        del running[part]
        if process.returncode:
            raise _why(part, process.returncode)
    return False


def _why(part: Path, code: int) -> Exception:
    """What a process has to say that ended with an exit code."""
    last = _words(part).read_text(errors="replace").rstrip().rpartition("\n")[2]
    if code in (WRONG_USE, WORLD_FAILED) and last.startswith(TOLD):
        kind = Mistake if code == WRONG_USE else WorldFailed
        return kind(f"the process of seed {part.name}: {last.removeprefix(TOLD)}")
    return Mistake(
        f"the process of seed {part.name} ended with code {code}; its last words are in "
        f"{_words(part)}; resume the run to try again"
    )


def _words(part: Path) -> Path:
    """What a part's process prints."""
    return part.with_name(f"{part.name}.log")


def _stop(processes: Iterable[Process]) -> None:
    """Let them save themselves and end."""
    for process in processes:
        assert process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            process.stdin.close()
    for process in processes:
        process.wait()
