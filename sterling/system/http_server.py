"""A small HTTP/1.1 server on asyncio: requests and answers in JSON, connections kept open.

It knows nothing of policies: a route is a function from a JSON body to a JSON answer.
"""

from __future__ import annotations

import asyncio
import dataclasses
import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import Any

from sterling.system.mistake import Mistake

MAX_BODY = 16 * 1024 * 1024  # bytes
MAX_HEADERS = 100
IDLE_SECONDS = 120.0  # after which a silent connection is closed
REASONS = {
    **{200: "OK", 400: "Bad Request", 401: "Unauthorized", 404: "Not Found"},
    **{
        405: "Method Not Allowed",
        411: "Length Required",
        413: "Content Too Large",
        500: "Internal Server Error",
    },
}

Route = Callable[[Any], Awaitable[Any]]  # a JSON body (None for GET) -> a JSON answer
Routes = Mapping[tuple[str, str], Route]  # by method and path
FindRoute = Callable[[str, str, Mapping[str, str]], Route]  # method, path, headers -> the route


class HttpError(Exception):
    """An answer that is not 200: its status and one line; where a protocol has them, also the field
    at fault and a word for the error."""

    def __init__(self, status: int, line: str, param: str | None = None, code: str | None = None):
        super().__init__(line)
        self.status, self.param, self.code = status, param, code


@dataclasses.dataclass(frozen=True)
class Events:
    """An answer as a stream of server-sent events, after which the connection is closed."""

    data: Sequence[str]


@dataclasses.dataclass(frozen=True)
class TrackedAnswer:
    """An answer, and what is called once it is written to a client that has not hung up."""

    answer: Any
    when_delivered: Callable[[], None]


def plain_error(status: int, line: str, param: str | None, code: str | None) -> Any:
    """Return the body of an answer that is not 200."""
    return {"error": line}


class HttpServer:
    """Serves ``routes``: a table, or a function that finds them. A :class:`Mistake` in a route is a
    400 with its line. ``error_body`` makes the body of answers that are not 200."""

    def __init__(
        self,
        routes: Routes | FindRoute,
        error_body: Callable[[int, str, str | None, str | None], Any] = plain_error,
    ):
        self._find = routes if callable(routes) else partial(_find_in_table, routes)
        self._error_body = error_body
        self._server: asyncio.Server | None = None
        self._open: set[asyncio.StreamWriter] = set()

    async def start(self, host: str, port: int) -> int:
        """Listen, and return the port (a free one for 0). Raise Mistake if that is not possible."""
        try:
            self._server = await asyncio.start_server(self._serve, host, port)
        except OSError as error:
            reason = error.strerror or error
            raise Mistake(
                f"cannot listen on {host}:{port}: {reason}. Choose another --port."
            ) from error
        return int(self._server.sockets[0].getsockname()[1])

    async def close(self) -> None:
        """Stop listening and close all connections."""
        if self._server is not None:
            self._server.close()
        for writer in list(self._open):
            writer.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer the requests of one connection, one after another."""
        self._open.add(writer)
        try:
            while await self._answer_one(reader, writer):
                pass
        except (ConnectionError, asyncio.IncompleteReadError, TimeoutError):
            pass
        finally:
            self._open.discard(writer)
            writer.close()

    async def _answer_one(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        """Answer one request; return whether the connection stays open."""
        try:
            async with asyncio.timeout(IDLE_SECONDS):
                request = await _read_request(reader)
        except HttpError as error:  # what follows cannot be read
            await _write(writer, error.status, self._refused(error), keep=False)
            return False
        if request is None:
            return False
        method, path, headers, body, keep = request
        status, answer = await self._answer(method, path, headers, body)
        here = not reader.at_eof()
        plain = answer.answer if isinstance(answer, TrackedAnswer) else answer
        if isinstance(plain, Events):
            await _write_events(writer, plain)
            keep = False
        else:
            await _write(writer, status, plain, keep=keep)
        if here and isinstance(answer, TrackedAnswer):
            answer.when_delivered()
        return keep

    async def _answer(
        self, method: str, path: str, headers: Mapping[str, str], body: bytes
    ) -> tuple[int, Any]:
        """Return the status and the JSON answer of a request."""
        try:
            route = self._find(method, path, headers)
            return 200, await route(_parsed(body) if method == "POST" else None)
        except HttpError as error:
            return self._failed(error)
        except Mistake as error:
            return self._failed(HttpError(400, str(error)))
        except Exception as error:
            line = f"{type(error).__name__}: {error}".splitlines()[0]
            return self._failed(HttpError(500, line))

    def _failed(self, error: HttpError) -> tuple[int, Any]:
        return error.status, self._refused(error)

    def _refused(self, error: HttpError) -> Any:
        return self._error_body(error.status, str(error), error.param, error.code)


def _find_in_table(routes: Routes, method: str, path: str, headers: Mapping[str, str]) -> Route:
    """Return the route of a table; raise :class:`HttpError` if there is none."""
    route = routes.get((method, path))
    if route is None:
        known = sorted(f"{verb} {place}" for verb, place in routes)
        found = [verb for verb, place in routes if place == path]
        wrong = f"use {found[0]} {path}" if found else f"there is {', '.join(known)}"
        raise HttpError(405 if found else 404, wrong)
    return route


def _parsed(body: bytes) -> Any:
    """Return a JSON body; raise Mistake if it is none."""
    try:
        return json.loads(body)
    except (ValueError, RecursionError) as error:
        raise Mistake(f"the body is not JSON: {str(error).splitlines()[0]}") from error


async def _read_request(
    reader: asyncio.StreamReader,
) -> tuple[str, str, dict[str, str], bytes, bool] | None:
    """Return method, path, headers, body and whether to keep the connection; None at its end."""
    try:
        line = await reader.readline()
    except ValueError as error:
        raise HttpError(400, "the request line is too long") from error
    if not line:
        return None
    words = line.decode("latin-1").split()
    if len(words) != 3 or not words[2].startswith("HTTP/1."):
        raise HttpError(400, "this is not an HTTP/1.1 request")
    headers = await _read_headers(reader)
    if "transfer-encoding" in headers:
        raise HttpError(411, "send Content-Length in place of Transfer-Encoding")
    text = headers.get("content-length", "0")
    if not text.isdecimal():
        raise HttpError(400, "Content-Length must be a whole number")
    if int(text) > MAX_BODY:
        raise HttpError(413, f"a body may have at most {MAX_BODY} bytes")
    body = await reader.readexactly(int(text))
    wish = headers.get("connection", "").lower()
    keep = wish != "close" and (words[2] != "HTTP/1.0" or wish == "keep-alive")
    return words[0], words[1].partition("?")[0], headers, body, keep


async def _read_headers(reader: asyncio.StreamReader) -> dict[str, str]:
    """Return the headers with names in lower case."""
    found: dict[str, str] = {}
    for _ in range(MAX_HEADERS):
        try:
            line = (await reader.readline()).decode("latin-1").strip()
        except ValueError as error:
            raise HttpError(400, "a header is too long") from error
        if not line:
            return found
        name, _, value = line.partition(":")
        found[name.strip().lower()] = value.strip()
    raise HttpError(400, f"at most {MAX_HEADERS} headers are read")


async def _write(writer: asyncio.StreamWriter, status: int, answer: Any, *, keep: bool) -> None:
    """Write an answer."""
    body = json.dumps(answer).encode()
    head = (
        f"HTTP/1.1 {status} {REASONS[status]}\r\nContent-Type: application/json\r\n"
        f"Content-Length: {len(body)}\r\nConnection: {'keep-alive' if keep else 'close'}\r\n\r\n"
    )
    writer.write(head.encode() + body)
    await writer.drain()


async def _write_events(writer: asyncio.StreamWriter, events: Events) -> None:
    """Write a stream of events; its end is that of the connection."""
    head = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nCache-Control: no-cache\r\n"
    body = "".join(f"data: {each}\n\n" for each in events.data)
    writer.write(f"{head}Connection: close\r\n\r\n{body}".encode())
    await writer.drain()
