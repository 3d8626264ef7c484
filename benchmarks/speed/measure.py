"""Runs one case in a fresh process and turns what it answers into a measurement."""

from __future__ import annotations

import json
import os
import resource
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from cases import Case

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
LIMIT_SECONDS = 1_800  # a worker that takes longer has hung


class Bench:
    """Where the workers run: two interpreters, and a folder for caches and whatever they drop."""

    def __init__(self, peers_python: str, scratch: Path):
        self.peers_python, self.scratch = peers_python, scratch

    def measure(self, case: Case) -> dict[str, Any]:
        """Seconds from the start of the process to its end, and all that the worker reports.

        ``others`` is how many cores were meanwhile busy with something else: near 0, or the
        machine was not quiet.
        """
        cache = self._cache(case)
        busy, own, start = _busy_seconds(), _own_seconds(), time.perf_counter()
        done = subprocess.run(
            self._command(case),
            cwd=self.scratch,
            env=_environment(case, cache),
            capture_output=True,
            text=True,
            timeout=LIMIT_SECONDS,
            check=False,
        )
        seconds = time.perf_counter() - start
        if done.returncode:
            raise SystemExit(f"{case.group}/{case.name} failed:\n{done.stderr[-4000:]}")
        own = _own_seconds() - own
        others = max(0.0, _busy_seconds() - busy - own) / seconds
        timing = {
            "seconds": round(seconds, 3),
            "processor_seconds": round(own, 3),
            "others": round(others, 3),
        }
        answer = {} if case.worker == "command" else json.loads(done.stdout.splitlines()[-1])
        steady = _steady(case, answer)
        return {**timing, **answer, **steady}

    def _command(self, case: Case) -> list[str]:
        if case.worker == "command":
            return [sys.executable, "-c", case.request["python"]]
        python = self.peers_python if case.worker == "peers" else sys.executable
        return [python, str(HERE / f"{case.worker}.py"), json.dumps(case.request)]

    def _cache(self, case: Case) -> Path:
        """The case's compilation cache; a cold run begins with an empty one."""
        kind, _, name = case.cache.partition("-")
        cache = self.scratch / "cache" / (name or kind)
        if kind == "cold":
            shutil.rmtree(cache, ignore_errors=True)
        cache.mkdir(parents=True, exist_ok=True)
        return cache


def _environment(case: Case, cache: Path) -> dict[str, str]:
    """Everything on the CPU; only Sterling sees this checkout and a compilation cache."""
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    kept["JAX_PLATFORMS"] = "cpu"
    if case.worker != "peers":
        kept |= {"PYTHONPATH": str(ROOT), "JAX_COMPILATION_CACHE_DIR": str(cache)}
    return kept


def _own_seconds() -> float:
    """Processor time of all the workers so far."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _busy_seconds() -> float:
    """Processor time of the whole machine so far, stolen time included; 0 where not known."""
    table = Path("/proc/stat")
    if not table.exists():
        return 0.0
    user, nice, system, _idle, _wait, *rest = map(int, table.read_text().split()[1:9])
    return (user + nice + system + sum(rest)) / os.sysconf("SC_CLK_TCK")


def _steady(case: Case, answer: dict[str, Any]) -> dict[str, float]:
    """The rate once everything is compiled, from the worker's notes of steps and seconds."""
    points = answer.pop("points", [])
    if case.group not in ("ppo", "sac", "offline") or not points:
        return {}
    return window(points, settled(case))


def settled(case: Case) -> int:
    """Steps after which a case counts: what is compiled on the way has been compiled by then."""
    if case.worker == "ours":
        return 1  # compiled before its first row
    if case.group == "offline":
        return 200
    if case.group == "ppo":
        return 2 * case.request["fields"]["length"] * case.request["envs"]
    return int(case.request["fields"]["warmup"]) + 200


def window(points: Sequence[Sequence[float]], after: int) -> dict[str, float]:
    """Steps, seconds and their quotient from the first note at or after ``after`` to the last."""
    late = [point for point in points if point[0] >= after]
    if len(late) < 2 or late[-1][0] <= late[0][0]:
        raise SystemExit(f"no steps were noted after step {after}: make the run longer")
    (first, began), (last, ended) = late[0], late[-1]
    return {
        "window_steps": last - first,
        "window_seconds": round(ended - began, 4),
        "steps_per_second": round((last - first) / (ended - began), 2),
    }


def peers_python(given: str | None) -> str:
    """The interpreter that has the peers: ``given``, or one made in .venv-bench."""
    if given:
        return str(Path(given).absolute())  # not resolved: a venv's python is a link
    python = ROOT / ".venv-bench" / "bin" / "python"
    if not python.exists():
        print("making .venv-bench with the peers (once) ...", flush=True)
        subprocess.run([sys.executable, "-m", "venv", str(python.parents[1])], check=True)
        subprocess.run(
            [str(python), "-m", "pip", "install", "-q", ".[bench]"], cwd=ROOT, check=True
        )
    return str(python)
