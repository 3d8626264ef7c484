"""Start an agent's program: a command, or a function in a child of a process that has imported it.

Commands are started by such a process, too, one that has imported nothing: it ends all that it has
started when this process is gone, in whatever way that ends. Both are seen as a process with an
output, an exit code and a number. Runs on one event loop.
"""

from __future__ import annotations

import asyncio
import dataclasses
import itertools
import json
import os
import socket
import sys
from asyncio.subprocess import PIPE
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from pathlib import Path

from sterling.language.agent_programs import resident_process
from sterling.language.agent_programs.program_command import is_function, program_environment

ONE_THREAD = {"OPENBLAS_NUM_THREADS": "1"}  # NumPy's would run from its import on: no fork then


@dataclasses.dataclass(frozen=True)
class ProgramProcess:
    """A process that leads a group of its own; ``wait()`` gives its exit code."""

    number: int
    stdout: asyncio.StreamReader
    stderr: asyncio.StreamReader
    wait: Callable[[], Awaitable[int]]


async def start_program(
    words: Sequence[str], folder: Path, added: Mapping[str, str]
) -> ProgramProcess:
    """Start a program in its folder, with ``added`` in its environment; its input is the file
    ``STERLING_TASK``. Raises OSError if that is not possible."""
    environment = program_environment(added)
    if not is_function(words):
        return await (await _resident("")).fork(folder, environment, words)
    resident = await _resident(words[0])
    if resident.forks:
        own = {name: value for name, value in environment.items() if os.environ.get(name) != value}
        return await resident.fork(folder, own)
    alone = _python("run_alone", words[0])
    return await (await _resident("")).fork(folder, environment | _import_paths(), alone)


def _import_paths() -> dict[str, str]:
    """Return what lets another Python import what this one can."""
    return {"PYTHONPATH": os.pathsep.join(path or os.getcwd() for path in sys.path)}


def _python(function: str, reference: str) -> list[str]:
    """Return the command that calls a function of resident_process.py with a reference."""
    module = resident_process.__name__
    code = f"import sys; from {module} import {function}; {function}(sys.argv[1])"
    return [sys.executable, "-P", "-c", code, reference]


# By reference ("": of commands), for the life of this process.
_residents: dict[str, asyncio.Future[_Resident]] = {}


async def _resident(reference: str) -> _Resident:
    """Return the process that has imported a function; it is started once, and again if it has
    been killed."""
    known = _residents.get(reference)
    if known is None or (known.done() and known.exception() is None and known.result().ended):
        known = _residents[reference] = asyncio.ensure_future(_Resident.start(reference))
    return await asyncio.shield(known)


class _Resident:
    """A process that forks, from this side."""

    def __init__(self, control: socket.socket, process: asyncio.subprocess.Process):
        assert process.stdout is not None
        self._control, self._replies = control, process.stdout
        self._numbers = itertools.count()
        self._process_of: dict[int, asyncio.Future[int]] = {}  # of children that are to begin
        self._code_of: dict[int, asyncio.Future[int]] = {}  # of those that are to end
        self._listening: asyncio.Future[None] | None = None
        self.forks, self.ended = False, False

    @classmethod
    async def start(cls, reference: str) -> _Resident:
        """Start the process, and wait until it has imported the function. Raises OSError."""
        own, other = socket.socketpair()
        with other:
            process = await asyncio.create_subprocess_exec(
                *_python("fork_when_told", reference),
                stdin=other.fileno(),
                stdout=PIPE,
                env=program_environment({**ONE_THREAD, **_import_paths()}),
                start_new_session=True,
            )
        made = cls(own, process)
        first = json.loads(await made._replies.readline() or b'{"fault": "its process ended"}')
        if "fault" in first:
            own.close()
            raise OSError(first["fault"])
        made.forks = first["forks"]
        if not made.forks:
            own.close()
        made._listening = asyncio.ensure_future(made._listen())
        return made

    async def fork(
        self, folder: Path, environment: Mapping[str, str], words: Sequence[str] = ()
    ) -> ProgramProcess:
        """Run the function in a new child, with these additions to its environment; or a command,
        with this environment."""
        number, loop = next(self._numbers), asyncio.get_running_loop()
        (stdout, out), (stderr, err) = [await _open_stream() for _ in range(2)]
        begun, ended = loop.create_future(), loop.create_future()
        self._process_of[number], self._code_of[number] = begun, ended
        asked = {"number": number, "folder": str(folder), "environment": {**environment}}
        asked["words"] = [*words]
        try:
            message = json.dumps(asked).encode() + b"\n"
            socket.send_fds(self._control, [message], [out, err])
        finally:
            os.close(out)
            os.close(err)
        return ProgramProcess(await begun, stdout, stderr, partial(asyncio.shield, ended))

    async def _listen(self) -> None:
        """Take what the process tells; once it has ended, nothing runs any more."""
        while line := await self._replies.readline():
            told = json.loads(line)
            if "process" in told:
                self._process_of.pop(told["number"]).set_result(told["process"])
            else:
                self._code_of.pop(told["number"]).set_result(told["code"])
        if self.forks:
            self.ended = True
            self._control.close()
        for each in (*self._process_of.values(), *self._code_of.values()):
            each.set_exception(OSError("the process that forks has ended"))
            each.exception()


async def _open_stream() -> tuple[asyncio.StreamReader, int]:
    """Return a new pipe: a stream to read from it, and its other end."""
    reading, writing = os.pipe()
    stream = asyncio.StreamReader()
    pipe = os.fdopen(reading, "rb", 0)
    loop = asyncio.get_running_loop()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(stream), pipe)
    return stream, writing
