"""The server that agent programs ask: each of their sessions by its path, or by its secret.

There is one in a process, on a thread of its own; it begins with the first session and listens on
this machine alone.
"""

from __future__ import annotations

import asyncio
import atexit
import functools
import shutil
import threading
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from concurrent.futures import Future
from functools import partial
from typing import Any

from sterling.language.agent_programs.program_session import Event, ProgramSession
from sterling.language.agent_programs.session_folders import SessionFolders
from sterling.language.endpoint.api_forms import FORMS, OTHER_FORMS, Form
from sterling.language.endpoint.chat_answers import error_body
from sterling.language.named_rewards import read_rewards
from sterling.system.http_server import HttpError, HttpServer, TrackedAnswer
from sterling.system.windows_limits import refuse_on_windows

HOST = "127.0.0.1"
OVERRIDDEN = (  # fields of requests that do not change how a model is sampled that learns
    *("temperature", "top_p", "seed", "frequency_penalty", "presence_penalty", "logit_bias"),
)
RETRIES = "x-stainless-retry-count"  # a header of OpenAI's clients


class SessionServer:
    """Serves the sessions of agent programs."""

    def __init__(self) -> None:
        refuse_on_windows("Agent programs")
        self._sessions: dict[str, ProgramSession] = {}  # by name; other threads add to it
        self._by_secret: dict[str, ProgramSession] = {}
        self._folders = SessionFolders()
        self._loop = asyncio.new_event_loop()
        self._http = HttpServer(self._route, error_body)
        self._slots: dict[int, asyncio.Semaphore] = {}  # of so many programs at once
        threading.Thread(target=self._loop.run_forever, daemon=True).start()
        port = self._submit(self._http.start(HOST, 0)).result()
        self.address = f"http://{HOST}:{port}"
        atexit.register(self._kill_all)

    def start(self, session: ProgramSession, at_once: int) -> Future[Event]:
        """Run a session's program, as soon as fewer than ``at_once`` run; return its first
        event."""
        self._sessions[session.name] = self._by_secret[session.secret] = session
        self._submit(self._run(session, at_once))
        return self.next_event(session)

    def next_event(self, session: ProgramSession) -> Future[Event]:
        """Return the session's next event."""
        event: Future[Event] = Future()
        self._loop.call_soon_threadsafe(session.want, event)
        return event

    def answer(self, reply: asyncio.Future[Any], found: Any) -> None:
        """Answer a request with JSON, events or an error."""
        self._loop.call_soon_threadsafe(_settle, reply, found)

    def forget(self, session: ProgramSession) -> None:
        """End a session: kill its program if it still runs, and remove its folder."""
        self._by_secret.pop(session.secret, None)
        if self._sessions.pop(session.name, None) is not None:
            self._submit(session.cancel()).result()
            if session.folder is not None:
                shutil.rmtree(session.folder, ignore_errors=True)

    async def _run(self, session: ProgramSession, at_once: int) -> None:
        async with self._slots.setdefault(at_once, asyncio.Semaphore(at_once)):
            await session.run(self.address, self._folders.new)

    def _submit(self, work: Coroutine[Any, Any, Any]) -> Future[Any]:
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    def _kill_all(self) -> None:
        for session in list(self._sessions.values()):
            session.kill()
        self._folders.close()

    def _route(
        self, method: str, path: str, headers: Mapping[str, str]
    ) -> Callable[[Any], Awaitable[Any]]:
        """Return what answers a request; raise :class:`HttpError` for one that nothing does."""
        session, place = self._session_of(path, headers)
        if (method, place) == ("POST", "/reward"):
            return partial(_take_reward, session)
        if (method, place) == ("GET", "/v1/models"):
            return _list_models
        if method == "POST" and place in FORMS:
            again = headers.get(RETRIES, "0").strip() not in ("", "0")
            return partial(_complete, session, FORMS[place], again=again)
        what = OTHER_FORMS.get(place, f"{method} {place}")
        raise HttpError(404, f"{what} is not served; use POST /v1/chat/completions")

    def _session_of(self, path: str, headers: Mapping[str, str]) -> tuple[ProgramSession, str]:
        """Return the session of a request, by its path or its secret, and the rest of the path."""
        kind, _, secret = headers.get("authorization", "").partition(" ")
        owner = self._by_secret.get(secret.strip()) if kind.lower() == "bearer" else None
        parts = path.split("/", 3)
        if len(parts) == 4 and parts[1] == "s":
            named = self._sessions.get(parts[2])
            if named is not None and owner in (None, named) and (owner or not secret):
                return named, f"/{parts[3]}"
        elif owner is not None:
            return owner, path
        raise HttpError(401, "this path and key belong to no session that is open", code="unknown")


_one_at_a_time = threading.Lock()  # without it, two threads could each begin a server


def session_server() -> SessionServer:
    """Return this process's server."""
    with _one_at_a_time:
        return _only_server()


@functools.cache
def _only_server() -> SessionServer:
    return SessionServer()


async def _complete(session: ProgramSession, form: Form, body: Any, *, again: bool) -> Any:
    known = dict(body) if isinstance(body, dict) else body
    for name in OVERRIDDEN if isinstance(body, dict) else ():
        known.pop(name, None)
    completion, asked = await session.complete(form.read(known), body, again=again)
    return TrackedAnswer(form.answer(completion), asked.note_delivery)


async def _take_reward(session: ProgramSession, body: Any) -> Any:
    if session.over:
        raise HttpError(400, "this session has ended", code="session_ended")
    try:
        session.rewards = read_rewards(body)
    except ValueError as error:
        raise HttpError(400, f"a reward is a finite number, or named ones; got {error}") from error
    return {"ok": True}


async def _list_models(body: Any) -> Any:
    own = {"id": "learner", "object": "model", "owned_by": "sterling", "created": 0}
    return {"object": "list", "data": [own]}


def _settle(reply: asyncio.Future[Any], found: Any) -> None:
    if reply.done():
        return
    if isinstance(found, Exception):
        reply.set_exception(found)
        reply.exception()  # its client may have gone
    else:
        reply.set_result(found)
