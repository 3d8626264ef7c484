"""Serve a language model over HTTP, in the form of OpenAI's chat completions."""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Callable
from functools import partial
from typing import Any

from sterling.language.endpoint.api_forms import FORMS, OTHER_FORMS, Form
from sterling.language.endpoint.chat_answers import Completion, error_body
from sterling.language.endpoint.chat_requests import ChatRequest
from sterling.language.engine.ask import Ask, chance_of
from sterling.language.engine.local_sampler import LocalSampler
from sterling.language.tokenizer import Tokenizer
from sterling.system.http_server import HttpError, HttpServer, Route
from sterling.types import Mistake


class ChatServer:
    """One language model behind /v1/chat/completions, /v1/models and /health."""

    def __init__(self, sampler: LocalSampler, tokenizer: Tokenizer, name: str):
        self.sampler, self.tokenizer, self.name = sampler, tokenizer, name
        self._begun, self._answers = time.time(), 0
        routes: dict[tuple[str, str], Route] = {
            ("GET", "/v1/models"): self._models,
            ("GET", "/health"): self._health,
        }
        for path, form in FORMS.items():
            routes["POST", path] = partial(self._complete, form)
        for path, what in OTHER_FORMS.items():
            routes["POST", path] = _refusal(what)
        self._http = HttpServer(routes, error_body)

    async def serve(self, host: str, port: int, ready: Callable[[int], None]) -> None:
        """Serve until cancelled; ``ready`` is called with the port once requests are accepted."""
        try:
            ready(await self._http.start(host, port))
            await asyncio.Event().wait()
        finally:
            await self._http.close()
            self.sampler.close()

    async def _complete(self, form: Form, body: Any) -> Any:
        request = form.read(body)
        try:
            ids = tuple(self.tokenizer.encode_opening(request.messages))
        except Mistake as error:
            raise HttpError(400, str(error), "messages") from error
        asks = self._asks(request, ids)
        said = await asyncio.gather(*map(asyncio.wrap_future, self.sampler.ask(asks)))
        self._answers += len(said)
        made = (self.tokenizer, self.name, int(time.time()), ids)
        return form.answer(Completion(request, said, *made))

    def _asks(self, request: ChatRequest, ids: tuple[int, ...]) -> list[Ask]:
        shapes = self.sampler.shapes
        room = min(shapes.limit, shapes.context - len(ids))
        if room < 1:
            raise HttpError(
                400,
                f"the messages have {len(ids)} tokens, and this model's context is "
                f"{shapes.context} tokens with the answer; serve it with a larger --context",
                "messages",
                code="context_length_exceeded",
            )
        limit = min(room, request.limit or room)
        seed = secrets.randbits(63) if request.seed is None else request.seed % (1 << 63)
        key = (seed >> 32, seed & 0xFFFFFFFF)
        top_p = max(request.top_p, 1e-6)  # 0: the likeliest token alone
        return [
            Ask(ids, chance_of(key, (member,), ids), limit, request.temperature, 0, top_p)
            for member in range(request.count)
        ]

    async def _models(self, body: Any) -> Any:
        own = {"id": self.name, "object": "model", "owned_by": "sterling"}
        return {"object": "list", "data": [own | {"created": int(self._begun)}]}

    async def _health(self, body: Any) -> Any:
        return {"status": "ok", "answers": self._answers}


def _refusal(what: str) -> Route:
    async def refuse(body: Any) -> Any:
        raise HttpError(404, f"{what} is not served; use POST /v1/chat/completions")

    return refuse
