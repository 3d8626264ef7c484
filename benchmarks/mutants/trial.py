"""Run tests in a forked child: on the code as it is, reporting lines, or with a bug planted.

The parent has imported JAX and Sterling and no test; no backend of JAX is up yet, so forking is
safe. A child collects the tests that it needs, runs them and writes what happened to a file.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import resource
import signal
import sys
import time
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

DIE_WITH_PARENT = 1  # Linux: PR_SET_PDEATHSIG
MEMORY = 8 << 30  # bytes of data that a child may hold
HANGS = (signal.SIGALRM, signal.SIGPROF)
QUIET = ["-p", "no:cacheprovider", "-p", "no:xdist", "-p", "no:randomly", "--tb=short"]


class Listener:
    """A pytest plugin that notes outcomes in the file ``answer``.

    With ``lines`` (which statements report to) it notes those of every test; without, it ends the
    process at the first failure. ``expected`` are seconds that tests take.
    """

    def __init__(
        self,
        answer: Path,
        expected: dict[str, float] | None = None,
        lines: dict[str, set[int]] | None = None,
    ):
        self.answer, self.stop, self.lines = answer, lines is None, lines
        self.expected = expected or {}
        self.seconds: dict[str, float] = defaultdict(float)
        self.failed: set[str] = set()

    def pytest_runtest_logstart(self, nodeid: str, location: Any) -> None:
        """A test that computes for ten times as long as before, and 30 s more, hangs, or that waits
        for much longer: a signal kills it. On a busy machine a test may take long and be sound."""
        if self.stop:
            self.write({"started": nodeid})
            expected = self.expected.get(nodeid, 0.0)
            signal.setitimer(signal.ITIMER_PROF, 30 + 10 * expected)  # of the processor's time
            signal.alarm(int(300 + 30 * expected))

    def pytest_runtest_logreport(self, report: Any) -> None:
        self.seconds[report.nodeid] += report.duration
        if report.failed:
            self.failed.add(report.nodeid)
            if self.stop:
                self.write({"killed": report.nodeid, "reason": _reason(report)})
                os._exit(0)
        if report.when == "teardown" and self.lines is not None:
            outcome = "failed" if report.nodeid in self.failed else "passed"
            lines = {file: sorted(of) for file, of in self.lines.items()}
            self.lines.clear()
            spent = round(self.seconds[report.nodeid], 3)
            row = {"test": report.nodeid, "seconds": spent, "outcome": outcome}
            self.write(row | {"lines": lines})

    def pytest_runtest_call(self, item: Any) -> None:
        """Small programs are kept on disk too: a trial runs those of the trial before."""
        import jax

        jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)

    def pytest_collectreport(self, report: Any) -> None:
        if report.failed and self.stop:
            self.write({"killed": report.nodeid, "reason": "while it was collected"})
            os._exit(0)

    def write(self, row: dict[str, Any]) -> None:
        with self.answer.open("a") as out:
            out.write(json.dumps(row) + "\n")


def _reason(report: Any) -> str:
    crash = getattr(report.longrepr, "reprcrash", None)
    return " ".join(str(getattr(crash, "message", report.longrepr)).split())[:120]


def run(
    prepare: Callable[[Listener], str | None],
    listener: Listener,
    tests: list[str],
    scratch: Path,
    limit: float,
) -> str:
    """Fork, ``prepare`` (a line in return says why not), run the tests.

    ``limit`` is in seconds. Returns "done", "timeout" or "died".
    """
    listener.answer.unlink(missing_ok=True)
    child = os.fork()
    if child == 0:
        _child(prepare, listener, tests, scratch)
    end = time.monotonic() + limit
    while True:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            _end_group(child)
            if os.WIFSIGNALED(status):
                return "timeout" if os.WTERMSIG(status) in HANGS else "died"
            return "done" if os.WEXITSTATUS(status) == 0 else "died"
        if time.monotonic() > end:
            _end_group(child)
            os.waitpid(child, 0)
            return "timeout"
        time.sleep(0.02)


def _end_group(child: int) -> None:
    """Kill what the child, the leader of a process group of its own, has left running."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child, signal.SIGKILL)


def _child(
    prepare: Callable[[Listener], str | None],
    listener: Listener,
    tests: list[str],
    scratch: Path,
) -> None:
    code = 1
    try:
        os.setpgid(0, 0)
        ctypes.CDLL(None).prctl(DIE_WITH_PARENT, signal.SIGKILL)
        resource.setrlimit(resource.RLIMIT_DATA, (MEMORY, MEMORY))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        log = os.open(scratch.parent / "last.log", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(log, 1), os.dup2(log, 2)
        refused = prepare(listener)
        if refused:
            listener.write({"refused": refused})
        else:
            code = _run_tests(listener, tests, scratch)
        code = 0 if refused else code
    finally:
        sys.stdout.flush()
        os._exit(code)


def _run_tests(listener: Listener, tests: list[str], scratch: Path) -> int:
    import hypothesis
    import pytest

    hypothesis.settings.register_profile(
        "mutants", max_examples=25, derandomize=True, database=None, deadline=None,
        suppress_health_check=list(hypothesis.HealthCheck),
    )  # fmt: skip
    hypothesis.settings.load_profile("mutants")
    base = f"--basetemp={scratch.parent / 'tmp' / 'tests'}"
    marks = "not as_users and not slow"
    code = pytest.main([*QUIET, base, "-m", marks, *tests], plugins=[listener])
    ends = pytest.ExitCode
    if code in (ends.OK, ends.TESTS_FAILED, ends.NO_TESTS_COLLECTED):
        listener.write({"finished": int(code)})
        return 0
    return 1
