"""Run code that a model wrote, and judge it by tests, without trusting how it ends or what it says.

Each run is a process with a time limit, an empty environment, resource limits and, on Linux with
namespaces, walls: no network, no files but Python's own (read-only) and an empty working folder in
memory, no other process in sight. If the walls cannot be built the run is *refused*, unless
``Limits(allow_unsandboxed=True)``. Nothing is left behind: no process, no zombie, no file.
"""

from __future__ import annotations

import ast
import contextlib
import dataclasses
import functools
import json
import os
import secrets
import selectors
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from sterling.system.mistake import Mistake
from sterling.system.terminal_messages import print_notice
from sterling.system.windows_limits import refuse_on_windows

GUARD_SCRIPT = str(Path(__file__).with_name("start_guarded.py"))
GRACE_SECONDS = 10.0  # beyond the limit, for starting and cleaning up
READ_BYTES = 65_536


@dataclasses.dataclass(frozen=True)
class Limits:
    """What a run may use. Memory is for each process of the run, so ``processes`` multiplies it.

    Args:
        seconds: wall-clock time of the code; also the processor time, rounded up to whole seconds.
        memory: MiB of address space of each process.
        output: bytes that may be written to the standard output and error together.
        processes: processes and threads that the code may have at once. Without walls all
            processes of this user count.
        files: files that one process may hold open.
        disk: MiB that may be written to the working folder.
        allow_unsandboxed: run even if no walls can be built, with a warning. The code then has
            the network and this user's rights: only for code that you trust.
    """

    seconds: float = 5.0
    memory: int = 256
    output: int = 65_536
    processes: int = 16
    files: int = 64
    disk: int = 16
    allow_unsandboxed: bool = False


@dataclasses.dataclass(frozen=True)
class Outcome:
    """The result of a run.

    ``verdict`` is "pass", "fail" (an assertion of the tests), "error" (any other end that is not a
    pass), "timeout", "oom" (out of memory) or "refused" (not run: no walls). ``detail`` is one line
    that says why; ``output`` is what the code wrote, up to the limit.
    """

    verdict: str
    detail: str = ""
    output: str = ""


def run_code(code: str, tests: str, limits: Limits = Limits()) -> Outcome:
    """Judge a program by tests: Python with ``assert``, written as if the program stood above it.

    The tests run in another process than the program and ask it for values, so the program can
    neither see them nor change what they compare. Therefore only plain values (numbers, text,
    bytes, lists, tuples, dicts, sets) can be compared and passed; other objects of the program can
    be called, asked for attributes, iterated and indexed. A name that hides a built-in, such as
    ``sum``, is reached as ``solution.sum``. Changes that the program makes to its arguments in
    place are seen by the tests.

    Args:
        code: the program, a module's text.
        tests: the tests; raises Mistake if they are empty or not valid Python.
        limits: what the run may use.
    """
    try:
        statements = ast.parse(tests).body
    except (SyntaxError, ValueError) as error:
        raise Mistake(f"the tests are not valid Python ({error}); correct them") from error
    if not statements:
        raise Mistake(
            "the tests are empty, so every program would pass; give at least one assertion"
        )
    return _run_or_refuse(code, tests, limits)


def run_python(code: str, limits: Limits = Limits(), stdin: str = "") -> Outcome:
    """Run a script and capture its output, with the value of a last expression.

    Args:
        code: the script.
        limits: what the run may use.
        stdin: the text of its standard input.

    The verdict "pass" means that the script ran to its end.
    """
    return _run_or_refuse(code, None, limits, stdin)


def isolation() -> str:
    """Return "namespaces" if this machine can build walls (which is tried), else "none: " and the
    reason."""
    outcome = _run_guard("", None, Limits(), "", walls=True)
    return "namespaces" if outcome.verdict == "pass" else f"none: {outcome.detail}"


def _run_or_refuse(code: str, tests: str | None, limits: Limits, stdin: str = "") -> Outcome:
    outcome = _run_guard(code, tests, limits, stdin, walls=True)
    if outcome.verdict != "refused":
        return outcome
    if limits.allow_unsandboxed:
        _warn_no_walls(outcome.detail)
        return _run_guard(code, tests, limits, stdin, walls=False)
    remedy = "use Linux with user namespaces, or Limits(allow_unsandboxed=True)"
    return Outcome("refused", f"no sandbox can be built here ({outcome.detail}); {remedy}")


@functools.cache
def _warn_no_walls(why: str) -> None:
    """Warn once that there are no walls."""
    print_notice(
        f"WARNING: no sandbox can be built here ({why}), and allow_unsandboxed=True: code that a "
        "model wrote runs with your rights, your files and your network"
    )


def _run_guard(code: str, tests: str | None, limits: Limits, stdin: str, walls: bool) -> Outcome:
    nonce = secrets.token_hex(16)
    order = {
        "code": code,
        "script": tests is None,
        "stdin": stdin,
        "walls": walls,
        "limits": dataclasses.asdict(limits),
    }
    message = _length_prefixed(order) + _length_prefixed({"tests": tests, "nonce": nonce})
    with tempfile.TemporaryDirectory(prefix="sandbox-") as folder:
        output, answer = _exchange(folder, message, limits)
    text = output[: limits.output].decode(errors="replace")
    if len(output) > limits.output:
        return Outcome("error", f"more than {limits.output} bytes of output", text)
    try:
        verdict = json.loads(answer.partition(b"\n")[0])
    except ValueError:
        return Outcome("error", f"the sandbox broke: {text[-200:]}", text)
    if verdict["verdict"] == "pass" and not secrets.compare_digest(verdict["nonce"], nonce):
        return Outcome("error", "the verdict is forged", text)
    return Outcome(verdict["verdict"], verdict["detail"], text)


def _length_prefixed(content: dict[str, object]) -> bytes:
    block = json.dumps(content).encode()
    return f"{len(block):08x}".encode() + block


def _exchange(folder: str, message: bytes, limits: Limits) -> tuple[bytes, bytes]:
    """Start the guard and send it ``message``; return what it printed, and what came through the
    channel."""
    refuse_on_windows("Sandboxed programs")
    channel, end = os.pipe()
    try:
        process = subprocess.Popen(
            [sys.executable, "-I", "-S", GUARD_SCRIPT, str(end)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            bufsize=0,
            env={},
            cwd=folder,
            start_new_session=True,
            pass_fds=(end,),
        )
    finally:
        os.close(end)
    try:
        return _read_pipes(process, channel, message, limits)
    finally:
        os.close(channel)
        _end_process(process)


def _read_pipes(
    process: subprocess.Popen[bytes], channel: int, message: bytes, limits: Limits
) -> tuple[bytes, bytes]:
    assert process.stdin is not None  # pipes were asked for
    assert process.stdout is not None
    entry, until = process.stdin.fileno(), time.monotonic() + limits.seconds + GRACE_SECONDS
    read = {process.stdout.fileno(): bytearray(), channel: bytearray()}
    output, answer = read.values()
    os.set_blocking(entry, False)
    with selectors.DefaultSelector() as selector:
        selector.register(entry, selectors.EVENT_WRITE)
        for pipe in read:
            selector.register(pipe, selectors.EVENT_READ)
        while read and time.monotonic() < until and len(output) <= limits.output:
            for key, _ in selector.select(until - time.monotonic()):
                if key.fd == entry:
                    message = message[_write_some(entry, message) :]
                    if not message:
                        selector.unregister(entry)
                elif more := os.read(key.fd, READ_BYTES):
                    read[key.fd] += more
                else:
                    selector.unregister(key.fd)
                    del read[key.fd]
    return bytes(output), bytes(answer)


def _write_some(pipe: int, data: bytes) -> int:
    try:
        return os.write(pipe, data)
    except BrokenPipeError:  # it ended early: the channel says why
        return len(data)


def _end_process(process: subprocess.Popen[bytes]) -> None:
    """End everything: the guard does so when its input closes; if it does not, it is killed."""
    for pipe in (process.stdin, process.stdout):
        if pipe is not None:
            pipe.close()
    try:
        process.wait(GRACE_SECONDS)
    except subprocess.TimeoutExpired:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
