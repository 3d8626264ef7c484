"""A process that has imported an agent's function, and forks a child for each run of it; or one
that has imported nothing, and starts commands.

Starting Python and importing an agent framework takes seconds; a fork takes milliseconds. A child
has what a program has that is started by a command: its environment, its folder, the task in its
input, its own output, and a process group of its own. The forking process is told over a socket,
its standard input, and answers over its standard output, in lines of JSON. It ends, and ends all
children, when the socket closes. Only the standard library and the user's file are imported here.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import inspect
import json
import os
import select
import signal
import socket
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, TextIO

from sterling.lookup.user_imports import load
from sterling.system.mistake import Mistake
from sterling.system.processes.answer_process import threads_run

MESSAGE = 1 << 18  # bytes of the longest message
NOT_RUN = 127  # the exit code of a command that cannot be run, as a shell gives it
LOOK = 0.02  # seconds between looks for children that have ended

Function = Callable[[Any], Any]


def fork_when_told(reference: str) -> None:
    """Import a function by its reference ("": none), and fork a child for each message that asks
    for one, which runs the function or a command."""
    control, replies = socket.socket(fileno=os.dup(0)), os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what the file prints must not mix with replies
    try:
        function = load(reference) if reference else None
        if reference and not callable(function):
            raise Mistake(f"{reference} is a {type(function).__name__}, not a function")
    except BaseException as error:  # the user's file may raise anything
        said = str(error) if isinstance(error, Mistake) else f"{type(error).__name__}: {error}"
        _send(replies, {"fault": said})
        return
    _send(replies, {"forks": not threads_run()})
    gc.freeze()  # else a child's garbage collector would copy all that it shares
    _Parent(control, replies, function).run()


def run_alone(reference: str) -> None:
    """Run a function once, in this process: where threads that its file began forbid forks."""
    _run(load(reference))


class _Parent:
    """The process that forks."""

    def __init__(self, control: socket.socket, replies: TextIO, function: Function | None):
        self.control, self.replies, self.function = control, replies, function
        self.children: dict[int, int] = {}  # the number of each process

    def run(self) -> None:
        """Fork as it is told, and tell which children have ended, until the socket closes."""
        with contextlib.suppress(OSError):
            while self._follow():
                self._reap()
        for process in self.children:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(process, signal.SIGKILL)

    def _follow(self) -> bool:
        """Follow one message; False if there will be no more."""
        if not select.select([self.control], [], [], LOOK if self.children else None)[0]:
            return True
        text = b""
        streams: list[int] = []
        while not text.endswith(b"\n"):
            part, more, _, _ = socket.recv_fds(self.control, MESSAGE, 2)
            if not part:
                return False
            text, streams = text + part, [*streams, *more]
        asked = json.loads(text)
        process = os.fork()
        if not process:
            self._become_program(asked, streams)
        for stream in streams:
            os.close(stream)
        _lead_group(process)
        self.children[process] = asked["number"]
        _send(self.replies, {"number": asked["number"], "process": process})
        return True

    def _become_program(self, asked: dict[str, Any], streams: list[int]) -> None:
        """Run the function in a child, and end it."""
        code = 1
        try:
            _lead_group(os.getpid())
            self.control.close()
            os.close(self.replies.fileno())
            os.chdir(asked["folder"])
            task = os.open(asked["environment"]["STERLING_TASK"], os.O_RDONLY)
            for place, stream in enumerate((task, *streams)):
                os.dup2(stream, place)
            if self.function is None:
                _become_command(asked["words"], asked["environment"])
            else:
                os.environ.update(asked["environment"])
                if "numpy.random" in sys.modules:  # Python seeds its own anew in each child
                    sys.modules["numpy.random"].seed()
                _run(self.function)
            code = 0
        except SystemExit as error:
            code = error.code if isinstance(error.code, int) else int(error.code is not None)
        except BaseException:
            sys.excepthook(*sys.exc_info())
        finally:
            with contextlib.suppress(Exception):
                sys.stdout.flush()
                sys.stderr.flush()
            os._exit(code)

    def _reap(self) -> None:
        """Tell which children have ended."""
        for process, number in list(self.children.items()):
            ended, status = os.waitpid(process, os.WNOHANG)
            if ended:
                del self.children[process]
                code = os.waitstatus_to_exitcode(status)
                _send(self.replies, {"number": number, "code": code})


def _run(function: Function) -> None:
    """Call the function with the task, and print what it returns as the last line."""
    task = json.loads(Path(os.environ["STERLING_TASK"]).read_text("utf-8"))
    found = function(task)
    if inspect.isawaitable(found):
        found = asyncio.run(_result(found))
    if found is not None:
        print(found if isinstance(found, str) else json.dumps(found))


async def _result(found: Any) -> Any:
    return await found


def _become_command(words: list[str], environment: dict[str, str]) -> None:
    """Become the program of a command."""
    try:
        os.execvpe(words[0], words, environment)
    except (OSError, ValueError) as error:
        print(f"{words[0]} cannot be run: {error}", file=sys.stderr)
        raise SystemExit(NOT_RUN) from error


def _lead_group(process: int) -> None:
    """Have a process lead a group. Parent and child both do so: whoever is first, it leads one once
    its number is told, and can be killed with what it started."""
    with contextlib.suppress(OSError):  # it does already, or has ended
        os.setpgid(process, process)


def _send(replies: TextIO, message: dict[str, Any]) -> None:
    replies.write(f"{json.dumps(message)}\n")
    replies.flush()
