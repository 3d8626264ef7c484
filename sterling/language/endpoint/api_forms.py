"""The forms in which a model is asked over HTTP, by the path of their requests."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

from sterling.language.endpoint import responses_api
from sterling.language.endpoint.chat_answers import Completion
from sterling.language.endpoint.chat_requests import ChatRequest, parse_request
from sterling.system.http_server import Events


@dataclasses.dataclass(frozen=True)
class Form:
    """How a form's requests are read, and its answers written: whole, or as a stream's events."""

    read: Callable[[Any], ChatRequest]
    whole: Callable[[Completion], dict[str, Any]]
    events: Callable[[Completion], list[str]]

    def answer(self, completion: Completion) -> Any:
        """Return an answer, as its request wants it."""
        stream = completion.request.stream
        return Events(self.events(completion)) if stream else self.whole(completion)


FORMS = {
    "/v1/chat/completions": Form(parse_request, Completion.to_json, Completion.events),
    "/v1/responses": Form(
        responses_api.parse_responses_request,
        responses_api.to_response,
        responses_api.response_events,
    ),
}
OTHER_FORMS = {
    "/v1/messages": "Anthropic's Messages API",
    "/v1/completions": "the API of plain completions",
}
