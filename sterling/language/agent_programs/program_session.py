"""One run of an agent program on one task: its process, its requests, what it left.

A session lives on the event loop of the server (session_server.py). What happens to it is told to
the scene that waits for it as *events*: a request that wants an answer, or the end.
"""

from __future__ import annotations

import asyncio
import collections
import contextlib
import dataclasses
import json
import os
import secrets
import signal
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import Any

from sterling.language.agent_programs.program_process import ProgramProcess, start_program
from sterling.language.endpoint.chat_requests import ChatRequest
from sterling.system.http_server import HttpError

TICK = 0.1  # seconds between looks at a program's time
GRACE = 2.0  # seconds for its output, after its end
MOST_OUTPUT = 1 << 20  # bytes of output that are kept, the last ones


@dataclasses.dataclass(eq=False)
class Asked:
    """A program's request, where its answer goes (JSON, or the error that it gets), and whether the
    program has received that: not if it hung up before."""

    request: ChatRequest
    reply: asyncio.Future[Any]
    delivered: bool = False

    def note_delivery(self) -> None:
        """Remember that the program has received the answer."""
        self.delivered = True


@dataclasses.dataclass(frozen=True)
class Ended:
    """What a program left: its output, its exit code (None: it did not end in time), the rewards
    that it sent, and why it could not run, if it could not."""

    stdout: str = ""
    stderr: str = ""
    exit_code: int | None = None
    rewards: float | Mapping[str, float] | None = None
    fault: str = ""
    folder: str = ""  # where it ran; it is removed with the session

    @property
    def last_line(self) -> str:
        """Return the last line of the output that is not blank."""
        return next(
            (each.strip() for each in reversed(self.stdout.splitlines()) if each.strip()), ""
        )


Event = Asked | Ended


class ProgramSession:
    """A program's run on a task. ``words``: its command; ``seconds``: how long it may run, without
    the time in which it waits for the model."""

    def __init__(self, words: Sequence[str], task: Mapping[str, Any], seconds: float):
        self.words, self.task, self.seconds = words, task, seconds
        self.name, self.secret = secrets.token_hex(8), secrets.token_urlsafe(24)
        self.folder: Path | None = None
        self.rewards: float | Mapping[str, float] | None = None
        self.over = False
        self._events: collections.deque[Event] = collections.deque()
        self._wanted: Future[Event] | None = None
        self._attempts: dict[str, Asked] = {}  # the latest request of each body
        self._open: list[asyncio.Future[Any]] = []  # answers that are waited for
        self._process: ProgramProcess | None = None

    # What follows runs on the server's loop.

    def want(self, event: Future[Event]) -> None:
        """Give the next event to a Future."""
        if self._events:
            event.set_result(self._events.popleft())
        else:
            self._wanted = event

    def _tell(self, event: Event) -> None:
        if self._wanted is None:
            self._events.append(event)
        else:
            wanted, self._wanted = self._wanted, None
            wanted.set_result(event)

    async def complete(self, request: ChatRequest, body: Any, *, again: bool) -> tuple[Any, Asked]:
        """Return the answer to a request, and the request that it was sampled for: one that is sent
        ``again`` gets its first answer."""
        key = json.dumps(body, sort_keys=True)
        if not (again and key in self._attempts):
            if self.over:
                raise HttpError(400, "this session has ended", code="session_ended")
            self._attempts[key] = Asked(request, asyncio.get_running_loop().create_future())
            self._tell(self._attempts[key])
        asked = self._attempts[key]
        self._open.append(asked.reply)
        try:
            return await asyncio.shield(asked.reply), asked
        finally:
            self._open.remove(asked.reply)

    async def run(self, address: str, new_folder: Callable[[], Path]) -> None:
        """Run the program to its end, or until its time is up, and tell what it left."""
        if self.over:
            return
        try:
            self.folder = new_folder()
            await self._begin(address, self.folder)
        except Exception as error:  # whatever it is, the scene must not wait for ever
            self._end(Ended(fault=f"{self.words[0]} cannot be run: {error}"))
            return
        assert self._process is not None
        if self.over:  # it was cancelled meanwhile
            self.kill()
            return
        streams = [_Output(each) for each in (self._process.stdout, self._process.stderr)]
        reading = [asyncio.ensure_future(each.read()) for each in streams]
        fault = ""
        try:
            code = await self._exit_code()
        except OSError as error:  # nobody can tell it
            code, fault = None, str(error)
        self.kill()
        self._process = None  # its number may soon be another one's
        _, still_open = await asyncio.wait(reading, timeout=GRACE)
        for each in still_open:  # by what the program started, in a group of its own
            each.cancel()
        stdout, stderr = [each.text for each in streams]
        left = Ended(stdout, stderr, code, self.rewards, fault)
        self._end(dataclasses.replace(left, folder=str(self.folder)))

    async def _begin(self, address: str, folder: Path) -> None:
        """Start the process, with the task in its input, a file and its environment."""
        text, place = json.dumps(dict(self.task), ensure_ascii=False), folder / "task.json"
        place.write_text(f"{text}\n", "utf-8")
        own = f"{address}/s/{self.name}"
        environment = {
            "OPENAI_BASE_URL": f"{own}/v1",
            "OPENAI_API_KEY": self.secret,
            "STERLING_TASK": str(place),
            "STERLING_REWARD_URL": f"{own}/reward",
        }
        self._process = await start_program(self.words, folder, environment)

    async def _exit_code(self) -> int | None:
        """Wait for the process, and return its exit code; None if its time is up."""
        assert self._process is not None
        ended, used = asyncio.ensure_future(self._process.wait()), 0.0
        while used < self.seconds:
            done, _ = await asyncio.wait([ended], timeout=TICK)
            if done:
                return ended.result()
            used += 0.0 if self._open else TICK
        ended.cancel()
        return None

    def _end(self, left: Ended) -> None:
        self.over = True
        error = HttpError(400, "this session has ended", code="session_ended")
        for reply in self._open:
            if not reply.done():
                reply.set_exception(error)
                reply.exception()  # nobody may be waiting for it any more
        self._tell(left)

    async def cancel(self) -> None:
        """End the session, whether it has begun or not."""
        self.over = True
        self.kill()

    def kill(self) -> None:
        """Kill the process and what it started."""
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self._process.number, signal.SIGKILL)


class _Output:
    """The end of what a stream has given."""

    def __init__(self, stream: asyncio.StreamReader):
        self._stream, self._kept = stream, b""

    @property
    def text(self) -> str:
        """Return it as a text."""
        return self._kept.decode("utf-8", "replace")

    async def read(self) -> None:
        """Read to the end of the stream."""
        while part := await self._stream.read(1 << 16):
            self._kept = (self._kept + part)[-MOST_OUTPUT:]
