"""Make one of every EnvPool task on this machine, and say which run and why the others do not.

    python benchmarks/worlds/run.py [--only FAMILY ...] [--page]

A task runs where Sterling makes it and its simulator starts an episode; that episodes go on is held
by tests/envs/ for some. Tasks are tried in a process apart, so that one that crashes costs only
itself. Writes benchmarks/results/worlds.{json,md}.
"""

from __future__ import annotations

import argparse
import collections
import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
OUT = ROOT / "benchmarks" / "results" / "worlds"
SECONDS = 120.0  # for one task, before its process is ended
sys.path.append(str(ROOT))

from benchmarks import evidence  # noqa: E402


def main() -> None:
    """Try every task, write the page."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", nargs="*", help="families, such as mujoco.gym; default: all")
    parser.add_argument("--page", action="store_true", help="only write the page anew")
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.serve:
        serve()
        return
    if not chosen.page:
        begun = evidence.begin()
        for family, names in families().items():
            if not chosen.only or family in chosen.only:
                found = measured(names)
                print(family, found["tasks"], found["run"], flush=True)
                evidence.write_part(OUT.with_suffix(".json"), family, found, begun, [0])
    OUT.with_suffix(".md").write_text("\n".join(page()).rstrip() + "\n")
    print(OUT.with_suffix(".md").read_text())


def families() -> dict[str, list[str]]:
    """Family -> its tasks, the smallest family first."""
    from sterling.envs.compiled import envpool_env

    found = collections.defaultdict(list)
    for name in envpool_env.names():
        found[envpool_env.family(name)].append(name)
    return dict(sorted(found.items(), key=lambda pair: len(pair[1])))


def measured(names: list[str]) -> dict[str, Any]:
    """How many tasks run, and the reasons of those that do not."""
    reasons: dict[str, list[str]] = collections.defaultdict(list)
    for name, reason in tried(names):
        if reason is not None:
            reasons[shortened(reason, name)].append(name)
    bad = sum(map(len, reasons.values()))
    return {"tasks": len(names), "run": len(names) - bad, "reasons": dict(reasons)}


def shortened(reason: str, name: str) -> str:
    """A reason without the task's name and without folders of this machine."""
    return re.sub(r"/\S*/site-packages/", "", reason.replace(name, "NAME"))


def tried(names: list[str]) -> Iterator[tuple[str, str | None]]:
    """Each name, and why it does not run."""
    worker = Worker()
    for name in names:
        reason = worker.ask(name)
        if reason and worker.ended:  # a fresh process may fare better
            print(name, reason, flush=True)
            reason = worker.ask(name)
        yield name, reason
    worker.close()


class Worker:
    """A process that makes worlds; a new one is begun where it crashes."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[str] | None = None

    def ask(self, task: str) -> str | None:
        """Why a task does not run; None where it does."""
        if self._process is None:
            words = [sys.executable, __file__, "--serve"]
            pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
            silent = subprocess.DEVNULL
            apart: dict[str, Any] = {"start_new_session": True}  # ends with all that it started
            self._process = subprocess.Popen(words, **pipes, **apart, stderr=silent, text=True)
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(task + "\n")
        self._process.stdin.flush()
        slow = threading.Timer(SECONDS, os.killpg, (self._process.pid, signal.SIGKILL))
        slow.start()
        try:
            for line in self._process.stdout:
                if line.startswith("answer "):
                    answer: str | None = json.loads(line.removeprefix("answer "))
                    return answer
        finally:
            slow.cancel()
        code = self._process.wait()
        with contextlib.suppress(ProcessLookupError):  # what it has started and left behind
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process = None
        if code == -signal.SIGKILL:
            return f"does not start within {SECONDS:.0f} s"
        return f"the process ends (exit code {code})"

    @property
    def ended(self) -> bool:
        """Whether the process has ended with its last task."""
        return self._process is None

    def close(self) -> None:
        """End the process."""
        if self._process and self._process.stdin:
            self._process.stdin.close()
            self._process.wait()


def serve() -> None:
    """Answer one task a line: null, or the reason it does not run.

    Answers go through a copy of standard output that programs of simulators do not inherit: one
    that outlives this process would keep whoever reads it waiting.
    """
    from sterling.types import Mistake

    answers = os.fdopen(os.dup(1), "w")
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    for line in sys.stdin:
        reason = None
        try:
            start(line.strip())
        except Mistake as error:
            reason = str(error)
        except Exception as error:
            reason = f"{type(error).__name__}: {error}"
        print("answer", json.dumps(reason), file=answers, flush=True)


def start(name: str) -> None:
    """Make a task and begin an episode."""
    import jax

    from sterling import envs

    world = envs.make(f"envpool:{name}", (0,), 1)
    world.reset(jax.random.split(jax.random.key(0), 1))
    world.close()


def page() -> list[str]:
    """The counts of every family, and the reasons."""
    found = json.loads(OUT.with_suffix(".json").read_text())["parts"]
    tasks, run = (sum(each[name] for each in found.values()) for name in ("tasks", "run"))
    lines = ["# Which of EnvPool's tasks run", ""]
    lines += [f"`python benchmarks/worlds/run.py` makes one of each: {run:,} of {tasks:,} run."]
    missing = [name for name in families() if name not in found]
    if missing:
        lines += ["", f"Not tried to the end yet, and not counted: {', '.join(missing)}."]
    lines += ["", *evidence.lines(OUT.with_suffix(".json"))]
    lines += ["| family | tasks | run here | why the others do not |", "|---|---|---|---|"]
    for family, each in sorted(found.items()):
        reasons = "; ".join(
            f"{len(names)}: {reason}" for reason, names in sorted(each["reasons"].items())
        )
        lines.append(f"| {family} | {each['tasks']:,} | {each['run']:,} | {reasons} |")
    lines.append(f"| all | {tasks:,} | {run:,} | |")
    return lines


if __name__ == "__main__":
    main()
