"""Serve the page of runs on this machine, with the standard library alone.

Only requests to 127.0.0.1 or localhost are answered, so that no page of another site can read runs
through a name of its own. Only the page's files, and films and pictures in run folders, are served.
"""

from __future__ import annotations

import json
import re
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

from sterling.report.watch.watched_runs import WatchedRuns
from sterling.system.mistake import Mistake

ADDRESS = "127.0.0.1"
PAGE = Path(__file__).with_name("page")
PAGE_FILES = {
    "/": ("watch.html", "text/html; charset=utf-8"),
    "/watch.css": ("watch.css", "text/css; charset=utf-8"),
    "/watch.js": ("watch.js", "text/javascript; charset=utf-8"),
    "/chart.js": ("chart.js", "text/javascript; charset=utf-8"),
}
SECURITY_HEADERS = {
    "Content-Security-Policy": "default-src 'self'; img-src 'self' data:",
    "X-Content-Type-Options": "nosniff",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}
RANGE = re.compile(r"bytes=(\d+)-(\d*)$")
CHUNK = 1 << 16  # bytes of a film that are sent at a time


class WatchServer(ThreadingHTTPServer):
    """A server of the runs below a folder, on 127.0.0.1; ``port`` 0 chooses a free one."""

    daemon_threads = True

    def __init__(self, root: Path, port: int):
        self.runs = WatchedRuns(root)
        try:
            super().__init__((ADDRESS, port), _Handler)
        except (OSError, OverflowError) as error:
            reason = getattr(error, "strerror", None) or str(error)
            raise Mistake(f"--port {port} cannot be used ({reason}). Choose another.") from error

    @property
    def url(self) -> str:
        """Return the page's address."""
        return f"http://{ADDRESS}:{self.server_address[1]}/"


class _Handler(BaseHTTPRequestHandler):
    """Answers one request."""

    server: WatchServer
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        """Answer a request for the page, its data, a film or a picture."""
        port = self.server.server_address[1]
        if self.headers.get("Host") not in (f"{ADDRESS}:{port}", f"localhost:{port}"):
            return self._fail(HTTPStatus.FORBIDDEN, "ask for 127.0.0.1 or localhost")
        place = urlsplit(self.path)
        try:
            if place.path in PAGE_FILES:
                name, kind = PAGE_FILES[place.path]
                self._send((PAGE / name).read_bytes(), kind)
            elif place.path.startswith("/api/"):
                asked = {name: values[0] for name, values in parse_qs(place.query).items()}
                self._send_json(self._answer(place.path.removeprefix("/api/"), asked))
            elif place.path.startswith("/files/"):
                run, _, file = unquote(place.path.removeprefix("/files/")).rpartition("/")
                self._send_file(*self.server.runs.file(run, file))
            else:
                raise KeyError(place.path)
        except (KeyError, ValueError):  # an unknown run or file, or a number that is none
            self._fail(HTTPStatus.NOT_FOUND, "there is no such page")
        except (BrokenPipeError, ConnectionResetError):
            self.close_connection = True

    def _answer(self, what: str, asked: dict[str, str]) -> Any:
        runs = self.server.runs
        if what == "runs":
            return {"root": str(runs.root), "runs": runs.summaries()}
        if what == "points":
            place = int(asked["generation"]), int(asked["after"])
            return runs.points(asked["run"], asked["column"], *place)
        if what == "details":
            return runs.details(asked["run"])
        if what == "compare":
            return {"text": runs.compare(json.loads(asked["runs"]))}
        raise KeyError(what)

    def _send_json(self, content: Any) -> None:
        text = json.dumps(content, default=str, allow_nan=True)
        text = text if "NaN" not in text and "Infinity" not in text else _strict_json(content)
        self._send(text.encode(), "application/json")

    def _send(self, content: bytes, kind: str) -> None:
        self._begin(HTTPStatus.OK, kind, len(content))
        self.wfile.write(content)

    def _send_file(self, path: Path, kind: str) -> None:
        """Send a file, or the range of it that a player of films asks for."""
        size = path.stat().st_size
        found = RANGE.match(self.headers.get("Range", ""))
        first, last = 0, size - 1
        if found:
            first, last = int(found[1]), min(int(found[2] or last), last)
        if found and first > last:
            return self._fail(HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE, "no such range")
        more = {"Accept-Ranges": "bytes"}
        more |= {"Content-Range": f"bytes {first}-{last}/{size}"} if found else {}
        status = HTTPStatus.PARTIAL_CONTENT if found else HTTPStatus.OK
        self._begin(status, kind, last + 1 - first, more)
        with path.open("rb") as file:
            file.seek(first)
            left = last + 1 - first
            while left > 0 and (piece := file.read(min(CHUNK, left))):
                self.wfile.write(piece)
                left -= len(piece)

    def _begin(
        self, status: HTTPStatus, kind: str, length: int, more: dict[str, str] | None = None
    ) -> None:
        self.send_response(status)
        headers = {"Content-Type": kind, "Content-Length": str(length)}
        for name, value in (headers | SECURITY_HEADERS | (more or {})).items():
            self.send_header(name, value)
        self.end_headers()

    def _fail(self, status: HTTPStatus, words: str) -> None:
        content = f"{words}\n".encode()
        self._begin(status, "text/plain; charset=utf-8", len(content))
        self.wfile.write(content)

    def log_message(self, format: str, *words: Any) -> None:
        """Print nothing: a page that polls would fill the terminal."""


def _strict_json(content: Any) -> str:
    """Return JSON with null for NaN and infinity, which browsers do not read."""
    plain = json.loads(json.dumps(content, default=str), parse_constant=lambda name: None)
    return json.dumps(plain)
