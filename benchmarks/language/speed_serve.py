"""Contenders as processes of their own which stay, so that they can be measured in quick turn.

One line of JSON asks, one answers: {"do": "prepare", "name": ..., "kind": ..., ...} builds and
warms up a case, {"do": "measure", "name": ..., "seconds": ...} times it. Only the standard library
is used here: the peers' Python reads this file too.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

Case = Callable[[], dict[str, Any]]  # does it once; what is to be known beside the time


class Worker:
    """A contender's process, seen from outside."""

    def __init__(self, python: str, script: Path, environment: dict[str, str], log: Path):
        self.name, self.log = script.stem, log
        self.process = subprocess.Popen(
            [python, str(script)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log.open("w"),
            env=environment,
            text=True,
        )

    def ask(self, **request: Any) -> dict[str, Any]:
        """The answer to a request; ends the benchmark where the process failed."""
        assert self.process.stdin
        assert self.process.stdout
        self.process.stdin.write(json.dumps(request) + "\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        if not line:
            raise SystemExit(f"{self.name} failed:\n{self.log.read_text()[-4000:]}")
        answer: dict[str, Any] = json.loads(line)
        return answer

    def close(self) -> None:
        """End it."""
        assert self.process.stdin
        self.process.stdin.close()
        self.process.wait()


def serve(kinds: dict[str, Callable[..., Case]], versions: dict[str, str]) -> None:
    """Answer requests until there are no more; whatever else is printed goes to the log."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    cases: dict[str, Case] = {}
    for line in sys.stdin:
        request = json.loads(line)
        name, what = request.pop("name", ""), request.pop("do")
        if what == "versions":
            answer: dict[str, Any] = versions
        elif what == "prepare":
            cases[name] = kinds[request.pop("kind")](**request)
            answer = cases[name]()
        else:
            answer = timed(cases[name], request["seconds"])
        answers.write(json.dumps(answer) + "\n")
        answers.flush()


def timed(case: Case, seconds: float) -> dict[str, Any]:
    """Median seconds of a call, of as many as fit; a case may time itself."""
    found: list[dict[str, Any]] = []
    times: list[float] = []
    begin = time.perf_counter()
    while not times or time.perf_counter() - begin < seconds:
        start = time.perf_counter()
        said = case()
        found.append(said)
        times.append(said.pop("seconds", time.perf_counter() - start))
    middle = {name: statistics.median(each[name] for each in found) for name in found[0]}
    return {**middle, "seconds": statistics.median(times), "calls": len(times)}
