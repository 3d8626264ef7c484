"""The script that starts a sandbox's processes: ``python -I -S guard.py CHANNEL``.

The *guard* builds the walls, keeps the time and leaves nothing behind. Its child, the *judge*, runs
the tests: it is the first process of its process namespace, so nothing inside can signal it or
outlive it. The judge's child, the *solution*, runs the code. It is forked before the judge reads
the tests, and holds no end of the channel on which the verdict leaves.
"""

import contextlib
import json
import os
import select
import signal
import sys
import time
import types
from typing import Any

FOLDER = os.path.dirname(os.path.abspath(__file__))
for _name in ("sterling", "sterling.language", "sterling.language.sandbox"):
    sys.modules[_name] = types.ModuleType(_name)  # the true ones import JAX
    sys.modules[_name].__path__ = [FOLDER]

from sterling.language.sandbox import walls  # noqa: E402
from sterling.language.sandbox.judge import Link, judge  # noqa: E402
from sterling.language.sandbox.solution import confine, serve  # noqa: E402

SWEEP = 2.0  # seconds in which leftovers must be gone


def main(channel: int) -> None:
    """Read an order, carry it out, and write one line of JSON with the verdict to ``channel``."""
    order = json.loads(read_block())
    try:
        if order["walls"]:
            walls.build(os.getcwd(), order["limits"]["disk"])
        else:
            _without_walls()
    except OSError as error:
        return report(channel, "refused", str(error))
    ended, alive = os.pipe()  # the judge holds ``alive``: its end is the end of the judge
    child = os.fork()
    if child == 0:
        os.close(ended)
        _child(order, channel)
    os.close(alive)
    in_time = watch(ended, order["limits"]["seconds"])
    with contextlib.suppress(ProcessLookupError):
        os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)  # with walls: returns when everything inside has ended
    if not order["walls"]:
        sweep()
    report(channel, *(("error", "the judge ended") if in_time else ("timeout", "out of time")))


def _without_walls() -> None:
    """What can be had without namespaces: orphans are found, and root is given up if it can be."""
    walls.leave_keyring()
    walls.guard_children()
    if os.getuid() == 0 and _reachable(sys.base_prefix):
        with contextlib.suppress(OSError):  # in some containers there is nobody to become
            os.chown(".", walls.NOBODY, walls.NOBODY)
            walls.become_nobody()  # for root no limit on processes holds


def _reachable(path: str) -> bool:
    """Whether everybody may enter a folder."""
    above = os.path.dirname(path)
    return bool(os.stat(path).st_mode & 0o001) and (above == path or _reachable(above))


def _child(order: dict[str, Any], channel: int) -> None:
    """Be the judge; never returns."""
    try:
        walls.die_with_parent()
        asked, ask = os.pipe()
        hear, said = os.pipe()
        solution = os.fork()
        if solution == 0:
            confine(order, asked, said)
            serve(order)
            os._exit(0)
        os.close(asked)
        os.close(said)
        null = os.open("/dev/null", os.O_RDWR)
        os.dup2(null, 1)  # what the tests print is of no interest
        os.dup2(null, 2)
        secret = json.loads(read_block())
        verdict, detail = judge(Link(ask, hear), secret["tests"])
        if verdict == "gone" or (verdict == "pass" and order["script"]):
            verdict, detail = _exit_of(solution, verdict, detail)
        report(channel, verdict, detail, secret["nonce"])
    except BaseException as error:
        report(channel, "error", f"the judge: {type(error).__name__}: {error}")
    finally:
        os._exit(0)


def _exit_of(solution: int, verdict: str, detail: str) -> tuple[str, str]:
    """What the solution's exit status adds to a verdict."""
    code = os.waitstatus_to_exitcode(os.waitpid(solution, 0)[1])
    if code == -signal.SIGXCPU:
        return "timeout", "out of processor time"
    if code:
        how = f"killed by signal {-code}" if code < 0 else f"ended with exit code {code}"
        return "error", f"the program was {how}" if code < 0 else f"the program {how}"
    return ("error", detail) if verdict == "gone" else (verdict, detail)


def watch(ended: int, seconds: float) -> bool:
    """Wait until the judge has ended: True; False where time is up or whoever asked has gone."""
    poll = select.poll()
    poll.register(ended, 0)  # a hang-up is always reported
    poll.register(0, 0)
    return (ended, select.POLLHUP) in poll.poll(round(1000 * seconds))


def sweep() -> None:
    """End and reap every descendant, also those that hid in sessions of their own."""
    until = time.monotonic() + SWEEP
    while time.monotonic() < until:
        for process in _descendants():
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(process, signal.SIGKILL)
        try:
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass  # reap all that have ended
        except ChildProcessError:
            return  # nobody is left
        time.sleep(0.002)


def _descendants() -> list[int]:
    parents = {}
    for name in filter(str.isdigit, os.listdir("/proc") if os.path.isdir("/proc") else ()):
        with contextlib.suppress(OSError), open(f"/proc/{name}/stat") as file:
            parents[int(name)] = int(file.read().rpartition(")")[2].split()[1])
    here = {os.getpid()}
    found: list[int] = []
    while here := {child for child, parent in parents.items() if parent in here}:
        found += here
    return found


def read_block() -> bytes:
    """A block of the standard input and no byte more: the next one is not for everybody's eyes."""
    size, block = int(os.read(0, 8), 16), b""
    while len(block) < size and (more := os.read(0, size - len(block))):
        block += more
    return block


def report(channel: int, verdict: str, detail: str, nonce: str = "") -> None:
    """Send the verdict; the first line counts."""
    answer = {"verdict": verdict, "detail": detail[:500], "nonce": nonce}
    os.write(channel, json.dumps(answer).encode() + b"\n")


if __name__ == "__main__":
    main(int(sys.argv[1]))
