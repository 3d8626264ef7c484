"""The script that starts a sandbox's processes: ``python -I -S start_guarded.py CHANNEL``.

The *guard* builds the walls, keeps the time limit and leaves nothing behind. Its child, the
*judge*, runs the tests: it is the first process of its process namespace, so nothing inside can
signal it or outlive it. The judge's child, the *solution*, runs the code. It is forked before the
judge reads the tests, and holds no end of the channel through which the verdict is sent.
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
    sys.modules[_name] = types.ModuleType(_name)  # the real packages import JAX
    sys.modules[_name].__path__ = [FOLDER]

from sterling.language.sandbox import sandbox_walls  # noqa: E402
from sterling.language.sandbox.solution_judge import SolutionLink, judge_solution  # noqa: E402
from sterling.language.sandbox.solution_process import confine_process, run_solution  # noqa: E402

SWEEP_SECONDS = 2.0  # within which all leftover processes must have ended


def main(channel: int) -> None:
    """Read an order, carry it out, and write one line of JSON with the verdict to ``channel``."""
    order = json.loads(read_block())
    try:
        if order["walls"]:
            sandbox_walls.build_walls(os.getcwd(), order["limits"]["disk"])
        else:
            _limit_without_walls()
    except OSError as error:
        return send_verdict(channel, "refused", str(error))
    ended, alive = os.pipe()  # the judge alone holds ``alive``, which closes when it ends
    child = os.fork()
    if child == 0:
        os.close(ended)
        _run_judge(order, channel)
    os.close(alive)
    in_time = wait_for_judge(ended, order["limits"]["seconds"])
    with contextlib.suppress(ProcessLookupError):
        os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)  # with walls: returns when everything inside has ended
    if not order["walls"]:
        kill_descendants()
    send_verdict(
        channel, *(("error", "the judge ended") if in_time else ("timeout", "out of time"))
    )


def _limit_without_walls() -> None:
    """Do what is possible without namespaces: adopt orphans, and give up root if that is
    possible."""
    sandbox_walls.leave_keyring()
    sandbox_walls.adopt_orphans()
    if os.getuid() == 0 and _open_to_everybody(sys.base_prefix):
        with contextlib.suppress(OSError):  # some containers have no user *nobody*
            os.chown(".", sandbox_walls.NOBODY, sandbox_walls.NOBODY)
            sandbox_walls.become_nobody()  # limits on processes do not hold for root


def _open_to_everybody(path: str) -> bool:
    """Whether every user may enter a folder."""
    above = os.path.dirname(path)
    return bool(os.stat(path).st_mode & 0o001) and (above == path or _open_to_everybody(above))


def _run_judge(order: dict[str, Any], channel: int) -> None:
    """Run the judge; never returns."""
    try:
        sandbox_walls.die_with_parent()
        read_questions, write_questions = os.pipe()
        read_answers, write_answers = os.pipe()
        solution = os.fork()
        if solution == 0:
            confine_process(order, read_questions, write_answers)
            run_solution(order)
            os._exit(0)
        os.close(read_questions)
        os.close(write_answers)
        null = os.open("/dev/null", os.O_RDWR)
        os.dup2(null, 1)  # discard what the tests print
        os.dup2(null, 2)
        secret = json.loads(read_block())
        verdict, detail = judge_solution(
            SolutionLink(write_questions, read_answers), secret["tests"]
        )
        if verdict == "gone" or (verdict == "pass" and order["script"]):
            verdict, detail = _with_exit_status(solution, verdict, detail)
        send_verdict(channel, verdict, detail, secret["nonce"])
    except BaseException as error:
        send_verdict(channel, "error", f"the judge: {type(error).__name__}: {error}")
    finally:
        os._exit(0)


def _with_exit_status(solution: int, verdict: str, detail: str) -> tuple[str, str]:
    """Return the verdict and its detail, corrected by the solution's exit status."""
    code = os.waitstatus_to_exitcode(os.waitpid(solution, 0)[1])
    if code == -signal.SIGXCPU:
        return "timeout", "out of processor time"
    if code:
        how = f"killed by signal {-code}" if code < 0 else f"ended with exit code {code}"
        return "error", f"the program was {how}" if code < 0 else f"the program {how}"
    return ("error", detail) if verdict == "gone" else (verdict, detail)


def wait_for_judge(ended: int, seconds: float) -> bool:
    """Wait until the judge has ended and return True; False if time is up or the caller has
    gone."""
    poll = select.poll()
    poll.register(ended, 0)  # a hang-up is always reported
    poll.register(0, 0)
    return (ended, select.POLLHUP) in poll.poll(round(1000 * seconds))


def kill_descendants() -> None:
    """End and reap every descendant, also those in sessions of their own."""
    until = time.monotonic() + SWEEP_SECONDS
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
    """Read a block of the standard input and no byte more: the next one holds the tests, which the
    solution must not see."""
    size, block = int(os.read(0, 8), 16), b""
    while len(block) < size and (more := os.read(0, size - len(block))):
        block += more
    return block


def send_verdict(channel: int, verdict: str, detail: str, nonce: str = "") -> None:
    """Send the verdict as a line of JSON; only the first line counts."""
    answer = {"verdict": verdict, "detail": detail[:500], "nonce": nonce}
    os.write(channel, json.dumps(answer).encode() + b"\n")


if __name__ == "__main__":
    main(int(sys.argv[1]))
