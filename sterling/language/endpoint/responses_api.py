"""OpenAI's Responses API, without state: requests as chat requests, chat completions as responses.

Read: ``input`` (a text, or items: messages of text parts, calls and their outputs; reasoning is
passed over), instructions, tools of type function, tool_choice, max_output_tokens, temperature,
top_p and stream. What the server would have to remember is refused: previous_response_id,
conversation, background.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from sterling.language.endpoint.chat_answers import Completion
from sterling.language.endpoint.chat_requests import ChatRequest, parse_request
from sterling.system.http_server import HttpError

SAME = ("model", "temperature", "top_p", "stream", "tool_choice", "seed")
REMEMBERED = ("previous_response_id", "conversation", "background")
TEXTS = ("input_text", "output_text", "text")


def parse_responses_request(body: Any) -> ChatRequest:
    """Read a request. Raises :class:`HttpError` (400) that names the field and the remedy."""
    if not isinstance(body, dict):
        raise HttpError(400, "the body must be an object with input")
    for name in REMEMBERED:
        if body.get(name):
            raise HttpError(400, f"{name}: nothing is remembered here; send all items", name)
    asked = {name: body[name] for name in SAME if body.get(name) is not None}
    if body.get("max_output_tokens") is not None:
        asked["max_completion_tokens"] = body["max_output_tokens"]
    if tools := body.get("tools"):
        if not isinstance(tools, list):
            raise HttpError(400, "tools must be a list", "tools")
        asked["tools"] = [_read_tool(each, f"tools[{n}]") for n, each in enumerate(tools)]
    given = body.get("input")
    items = [{"role": "user", "content": given}] if isinstance(given, str) else given
    if not isinstance(items, list) or not items:
        raise HttpError(400, "input must be a text, or a list with at least one item", "input")
    first = body.get("instructions")
    messages = [{"role": "system", "content": first}] if first else []
    for number, item in enumerate(items):
        _add_item(messages, item, f"input[{number}]")
    return parse_request(asked | {"messages": messages})


def _read_tool(tool: Any, where: str) -> dict[str, Any]:
    if not isinstance(tool, dict) or tool.get("type") != "function":
        raise HttpError(400, f"{where} must be of type function; others are not served", "tools")
    return {"type": "function", "function": {k: x for k, x in tool.items() if k != "type"}}


def _add_item(messages: list[dict[str, Any]], item: Any, where: str) -> None:
    """Add an item to the messages; what the model said and called in one turn is one message."""
    kind = item.get("type", "message") if isinstance(item, dict) else None
    if kind == "message":
        content = item.get("content")
        parts = content if isinstance(content, list) else []
        texts = [{"type": "text", "text": each.get("text")} if each.get("type") in TEXTS else each
                 for each in parts if isinstance(each, dict)]  # fmt: skip
        messages.append({"role": item.get("role"), "content": texts or content})
    elif kind == "function_call":
        function = {"name": item.get("name"), "arguments": item.get("arguments")}
        call = {"id": item.get("call_id"), "type": "function", "function": function}
        if not messages or messages[-1]["role"] != "assistant":
            messages.append({"role": "assistant", "content": None})
        messages[-1].setdefault("tool_calls", []).append(call)
    elif kind == "function_call_output":
        output = item.get("output")
        content = output if isinstance(output, str) else json.dumps(output)
        messages.append({"role": "tool", "tool_call_id": item.get("call_id"), "content": content})
    elif kind != "reasoning":
        raise HttpError(400, f"{where} is of type {kind}, which is not served", "input")


def to_response(completion: Completion) -> dict[str, Any]:
    """Return the first answer as a response."""
    chat = completion.to_json()
    name, choice = chat["id"].removeprefix("chatcmpl-"), chat["choices"][0]
    cut = choice["finish_reason"] == "length"
    usage = chat["usage"]
    return {
        **{"id": f"resp_{name}", "object": "response", "created_at": chat["created"]},
        **{"model": chat["model"], "status": "incomplete" if cut else "completed", "error": None},
        "incomplete_details": {"reason": "max_output_tokens"} if cut else None,
        "output": _output(choice["message"], name),
        "usage": {
            **{"input_tokens": usage["prompt_tokens"], "total_tokens": usage["total_tokens"]},
            "output_tokens": usage["completion_tokens"],
            "input_tokens_details": {"cached_tokens": 0},
            "output_tokens_details": {"reasoning_tokens": 0},
        },
        **{"instructions": None, "metadata": {}, "parallel_tool_calls": True},
        **{"tool_choice": "auto", "tools": [], "temperature": None, "top_p": None},
    }


def _output(message: dict[str, Any], name: str) -> list[dict[str, Any]]:
    """Return the items of an answer: its text, if it has one, and its calls."""
    done, calls = {"status": "completed"}, message.get("tool_calls", [])
    items: list[dict[str, Any]] = []
    if message["content"] or not calls:
        part = {"type": "output_text", "text": message["content"], "annotations": []}
        own = {"type": "message", "id": f"msg_{name}", "role": "assistant"}
        items.append(own | done | {"content": [part]})
    for call in calls:
        own = {"type": "function_call", "id": f"fc_{call['id']}", "call_id": call["id"]}
        items.append(own | done | call["function"])
    return items


def response_events(completion: Completion) -> list[str]:
    """Return a response as the data of a stream's events; each item comes in one piece."""
    whole = to_response(completion)
    begun = whole | {"status": "in_progress", "output": [], "usage": None}
    found: list[dict[str, Any]] = [{"type": "response.created", "response": begun}]
    for number, item in enumerate(whole["output"]):
        place = {"output_index": number}
        found.append({"type": "response.output_item.added", **place, "item": _blank(item)})
        found += [each | place | {"item_id": item["id"]} for each in _item_events(item)]
        found.append({"type": "response.output_item.done", **place, "item": item})
    last = f"response.{whole['status']}"
    found.append({"type": last, "response": whole})
    return [json.dumps(each | {"sequence_number": n}) for n, each in enumerate(found)]


def _blank(item: dict[str, Any]) -> dict[str, Any]:
    """Return an item as it begins."""
    empty: dict[str, Any] = {"content": []} if item["type"] == "message" else {"arguments": ""}
    return item | empty | {"status": "in_progress"}


def _item_events(item: dict[str, Any]) -> Iterator[dict[str, Any]]:
    if item["type"] == "function_call":
        kind, text = "response.function_call_arguments", item["arguments"]
        yield {"type": f"{kind}.delta", "delta": text}
        yield {"type": f"{kind}.done", "arguments": text, "name": item["name"]}
        return
    (part,) = item["content"]
    place, kind = {"content_index": 0}, "response.output_text"
    yield {"type": "response.content_part.added", **place, "part": part | {"text": ""}}
    yield {"type": f"{kind}.delta", **place, "delta": part["text"], "logprobs": []}
    yield {"type": f"{kind}.done", **place, "text": part["text"], "logprobs": []}
    yield {"type": "response.content_part.done", **place, "part": part}
