"""Serve a control policy over HTTP: /act, /end, /spec and /health."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable
from typing import Any

import jax
import numpy as np

from sterling.deploy.serving.policy_sessions import MAX_BATCH, PolicySessions
from sterling.deploy.serving.request_batching import RequestBatcher
from sterling.system.http_server import HttpServer
from sterling.types import Mistake

WAIT_SECONDS = 0.002  # how long a batch may wait for more requests


class PolicyServer:
    """One policy behind HTTP routes; concurrent requests are answered in batches."""

    def __init__(self, sessions: PolicySessions, wait: float = WAIT_SECONDS):
        self.sessions = sessions
        self._batcher = RequestBatcher(sessions.act, limit=MAX_BATCH, wait=wait)
        self._begun = time.monotonic()
        self._http = HttpServer(
            {
                ("POST", "/act"): self._act,
                ("POST", "/end"): self._end,
                ("GET", "/spec"): self._spec,
                ("GET", "/health"): self._health,
            }
        )

    async def serve(self, host: str, port: int, ready: Callable[[int], None]) -> None:
        """Serve until cancelled; ``ready`` is called with the port once requests are accepted."""
        task = asyncio.create_task(self._batcher.run())
        try:
            ready(await self._http.start(host, port))
            await task
        finally:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task
            await self._http.close()
            self._batcher.close()

    async def _act(self, body: Any) -> Any:
        request = self.sessions.parse(body)
        key = request.session if self.sessions.recurrent else None
        action = await self._batcher.ask(request, key)
        return {"action": to_json(action)}

    async def _end(self, body: Any) -> Any:
        if not isinstance(body, dict) or not isinstance(body.get("session"), str):
            raise Mistake('send the session to end: {"session": "..."}')
        return {"ended": self.sessions.forget(body["session"])}

    async def _spec(self, body: Any) -> Any:
        return self.sessions.spec()

    async def _health(self, body: Any) -> Any:
        return {
            **{"status": "ok", "seconds": round(time.monotonic() - self._begun, 3)},
            **{"requests": self._batcher.requests, "batches": self._batcher.batches},
        }


def to_json(action: Any) -> Any:
    """Return an action as JSON: numbers, lists, and objects for dict actions."""
    return jax.tree.map(lambda x: np.asarray(x).tolist(), action)
