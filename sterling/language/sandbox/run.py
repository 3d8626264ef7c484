"""Run code that a model wrote, and judge it by tests, without trusting either its end or its word.

Each run is a process with a time limit, an empty environment, resource limits and, on Linux with
namespaces, walls: no network, no files but Python's own (read-only) and an empty working folder in
memory, no other process in sight. Where the walls cannot be built the run is *refused*, unless
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

from sterling.notice import say
from sterling.types import Mistake

GUARD = str(Path(__file__).with_name("guard.py"))
GRACE = 10.0  # seconds, beyond the limit, that starting and clearing up may take
CHUNK = 65_536


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
        allow_unsandboxed: run even where no walls can be built, with a warning. The code then has
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
    """How a run went.

    ``verdict`` is "pass", "fail" (an assertion of the tests), "error" (any other end that is not a
    pass), "timeout", "oom" (out of memory) or "refused" (not run: no walls). ``detail`` is one line
    that says why; ``output`` what was written, up to the limit.
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
    ``sum``, is reached as ``solution.sum``. Arguments that the program changes in place are changed
    for the tests.

    Args:
        code: the program, a module's text.
        tests: the tests; raises Mistake where they are empty or no Python.
        limits: what the run may use.
    """
    try:
        statements = ast.parse(tests).body
    except (SyntaxError, ValueError) as error:
        raise Mistake(f"the tests are no Python ({error}); correct them") from error
    if not statements:
        raise Mistake("the tests are empty, every program would pass; give at least one assertion")
    return _run(code, tests, limits)


def run_python(code: str, limits: Limits = Limits(), stdin: str = "") -> Outcome:
    """Run a script; its output is captured, and the value of a last expression is shown.

    Args:
        code: the script.
        limits: what the run may use.
        stdin: the text of its standard input.

    The verdict "pass" says that the script came to its end.
    """
    return _run(code, None, limits, stdin)


def isolation() -> str:
    """ "namespaces" where this machine can build walls (found out by doing so), else why it
    cannot, beginning with "none"."""
    outcome = _start("", None, Limits(), "", walls=True)
    return "namespaces" if outcome.verdict == "pass" else f"none: {outcome.detail}"


def _run(code: str, tests: str | None, limits: Limits, stdin: str = "") -> Outcome:
    outcome = _start(code, tests, limits, stdin, walls=True)
    if outcome.verdict != "refused":
        return outcome
    if limits.allow_unsandboxed:
        _warn(outcome.detail)
        return _start(code, tests, limits, stdin, walls=False)
    remedy = "use Linux with user namespaces, or Limits(allow_unsandboxed=True)"
    return Outcome("refused", f"no sandbox can be built here ({outcome.detail}); {remedy}")


@functools.cache
def _warn(why: str) -> None:
    """Say once that there are no walls."""
    say(
        f"WARNING: no sandbox can be built here ({why}), and allow_unsandboxed=True: code that a "
        "model wrote runs with your rights, your files and your network"
    )


def _start(code: str, tests: str | None, limits: Limits, stdin: str, walls: bool) -> Outcome:
    nonce = secrets.token_hex(16)
    order = {
        "code": code,
        "script": tests is None,
        "stdin": stdin,
        "walls": walls,
        "limits": dataclasses.asdict(limits),
    }
    said = _block(order) + _block({"tests": tests, "nonce": nonce})
    with tempfile.TemporaryDirectory(prefix="sandbox-") as folder:
        output, answer = _talk(folder, said, limits)
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


def _block(content: dict[str, object]) -> bytes:
    block = json.dumps(content).encode()
    return f"{len(block):08x}".encode() + block


def _talk(folder: str, said: bytes, limits: Limits) -> tuple[bytes, bytes]:
    """Start the guard, tell it ``said``; what it printed, and what came through the channel."""
    channel, end = os.pipe()
    try:
        process = subprocess.Popen(
            [sys.executable, "-I", "-S", GUARD, str(end)],
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
        return _listen(process, channel, said, limits)
    finally:
        os.close(channel)
        _finish(process)


def _listen(
    process: subprocess.Popen[bytes], channel: int, said: bytes, limits: Limits
) -> tuple[bytes, bytes]:
    assert process.stdin is not None  # pipes were asked for
    assert process.stdout is not None
    entry, until = process.stdin.fileno(), time.monotonic() + limits.seconds + GRACE
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
                    said = said[_write(entry, said) :]
                    if not said:
                        selector.unregister(entry)
                elif more := os.read(key.fd, CHUNK):
                    read[key.fd] += more
                else:
                    selector.unregister(key.fd)
                    del read[key.fd]
    return bytes(output), bytes(answer)


def _write(pipe: int, data: bytes) -> int:
    try:
        return os.write(pipe, data)
    except BrokenPipeError:  # it ended early: what it says on the channel tells why
        return len(data)


def _finish(process: subprocess.Popen[bytes]) -> None:
    """Leave nothing: without an input the guard ends everything; it is killed if it does not."""
    for pipe in (process.stdin, process.stdout):
        if pipe is not None:
            pipe.close()
    try:
        process.wait(GRACE)
    except subprocess.TimeoutExpired:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
