"""Answer concurrent requests in batches: whoever comes within a few milliseconds shares a call."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any


class RequestBatcher:
    """Collects requests and answers them by one function, in one thread.

    While one batch is computed the next one collects, so a lone client waits for nobody and many
    clients share calls. ``wait`` is how many seconds a batch may wait for more requests once other
    requests are under way. Requests with the same ``key`` never share a batch.
    """

    def __init__(
        self, answer: Callable[[Sequence[Any]], Sequence[Any]], *, limit: int, wait: float
    ):
        self._answer, self._limit, self._wait = answer, limit, wait
        self._waiting: list[tuple[Any, Any, asyncio.Future[Any]]] = []
        self._arrived = asyncio.Event()
        self._thread = ThreadPoolExecutor(1, "policy")
        self._busy = 0  # requests that are being answered
        self.requests = self.batches = 0

    async def ask(self, request: Any, key: Any = None) -> Any:
        """Return the answer to one request."""
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._waiting.append((request, key, future))
        self._arrived.set()
        return await future

    async def run(self) -> None:
        """Answer requests until cancelled."""
        loop = asyncio.get_running_loop()
        while True:
            await self._arrived.wait()
            if self._busy > 1 and len(self._waiting) < min(self._busy, self._limit):
                await asyncio.sleep(self._wait)  # the clients of the last batch are coming back
            batch = self._next_batch()
            self._busy = len(batch)
            requests = [request for request, _, _ in batch]
            try:
                answers = await loop.run_in_executor(self._thread, self._answer, requests)
            except Exception as error:
                _settle(batch, [error] * len(batch))
            else:
                _settle(batch, answers)
            self.requests, self.batches = self.requests + len(batch), self.batches + 1

    def _next_batch(self) -> list[tuple[Any, Any, asyncio.Future[Any]]]:
        """Take the requests of the next batch, the oldest first."""
        batch: list[tuple[Any, Any, asyncio.Future[Any]]] = []
        later, keys = [], set()
        for each in self._waiting:
            taken = each[1] is not None and each[1] in keys
            if taken or len(batch) == self._limit:
                later.append(each)
            else:
                batch.append(each)
            keys.add(each[1])
        self._waiting = later
        if not later:
            self._arrived.clear()
        return batch

    def close(self) -> None:
        """End the thread."""
        self._thread.shutdown(wait=True, cancel_futures=True)


def _settle(batch: list[Any], answers: Sequence[Any]) -> None:
    """Pass the answers on; an exception is raised where the answer is awaited."""
    for (_, _, future), answer in zip(batch, answers, strict=True):
        if future.done():  # its client has gone
            continue
        if isinstance(answer, Exception):
            future.set_exception(answer)
        else:
            future.set_result(answer)
