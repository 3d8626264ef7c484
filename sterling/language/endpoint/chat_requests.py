"""Requests for chat completions in OpenAI's form: what is read of them, and what is refused.

Read: messages (texts, or lists of text parts; calls of tools and their results), tools,
tool_choice (auto, none), max_completion_tokens, max_tokens, stop, n, temperature, top_p, seed,
stream with include_usage, logprobs, top_logprobs, and vLLM's return_token_ids. Taken, and not
enforced: tool_choice (required or a function), strict schemas, response_format. Penalties, pictures
and other parts are refused, and so is the older form ``functions``.
"""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from sterling.language.scene import Message
from sterling.system.http_server import HttpError
from sterling.system.shown_values import shown_value

CALL = re.compile(r"<tool_call>(.*?)</tool_call>", re.DOTALL)  # as the model writes it
MOST_ANSWERS = 128  # ``n``
MOST_LIKELIEST = 20  # ``top_logprobs``
ROLES = {"developer": "system", "system": "system", "user": "user"} | {
    "assistant": "assistant",
    "tool": "tool",
}
REFUSED: dict[str, tuple[Any, ...]] = {  # fields -> the only values that mean nothing is asked for
    "functions": (None, []),
    "audio": (None,),
    "frequency_penalty": (None, 0),
    "presence_penalty": (None, 0),
    "logit_bias": (None, {}),
}


@dataclasses.dataclass(frozen=True)
class ChatRequest:
    """What is asked for."""

    messages: tuple[Message, ...]
    has_tools: bool  # whether calls in the answer are given as such
    limit: int | None  # most tokens of an answer; None: as many as there may be
    stop: tuple[str, ...]
    count: int  # answers
    temperature: float
    top_p: float
    seed: int | None
    stream: bool
    usage: bool  # whether a stream ends with the number of tokens
    log_probs: bool
    likeliest: int  # tokens at each place whose log-probabilities are given, too
    token_ids: bool  # whether tokens of the prompt and the answers are given, too


def parse_request(body: Any) -> ChatRequest:
    """Read a request. Raises :class:`HttpError` (400) that names the field and the remedy."""
    if not isinstance(body, dict):
        raise HttpError(400, "the body must be an object with messages")
    for name, nothing in REFUSED.items():
        if body.get(name) not in nothing:
            raise HttpError(400, f"{name} is not served; leave it out", name)
    asks_for_tools = body.get("tool_choice") != "none"
    tools = _tools(body.get("tools") or []) if asks_for_tools else ()
    messages = _messages(body.get("messages"))
    if tools:
        messages = _with_tools(messages, tools)
    stop = body.get("stop")
    stops = (stop,) if isinstance(stop, str) else stop or ()
    if not isinstance(stops, list | tuple) or not all(
        isinstance(each, str) and each for each in stops
    ):
        raise HttpError(400, "stop must be a text or a list of texts", "stop")
    limits = [_number(body, name, int, 1, None) for name in ("max_completion_tokens", "max_tokens")]
    seed, options = _number(body, "seed", int, None, None), body.get("stream_options") or {}
    return ChatRequest(
        messages,
        bool(tools),
        limits[0] if limits[0] is not None else limits[1],
        tuple(stops),
        _number(body, "n", int, 1, MOST_ANSWERS) or 1,
        _or_one(_number(body, "temperature", float, 0.0, 2.0)),
        _or_one(_number(body, "top_p", float, 0.0, 1.0)),
        seed,
        bool(body.get("stream")),
        bool(options.get("include_usage")) if isinstance(options, dict) else False,
        bool(body.get("logprobs")),
        _likeliest(body),
        bool(body.get("return_token_ids")),
    )


def _likeliest(body: Mapping[str, Any]) -> int:
    count = _number(body, "top_logprobs", int, 0, MOST_LIKELIEST) or 0
    if count and not body.get("logprobs"):
        raise HttpError(400, "top_logprobs needs logprobs: set that to true", "top_logprobs")
    return int(count)


def _or_one(value: float | None) -> float:
    return 1.0 if value is None else value


def _number(
    body: Mapping[str, Any], name: str, kind: type, low: float | None, high: float | None
) -> Any:
    """Return a field's number; None if it is not there."""
    value = body.get(name)
    if value is None:
        return None
    kinds = (int,) if kind is int else (int, float)
    fits = isinstance(value, kinds) and not isinstance(value, bool)
    if not fits or (low is not None and value < low) or (high is not None and value > high):
        bounds = {"at least": low, "at most": high}
        said = [f"{word} {bound:g}" for word, bound in bounds.items() if bound is not None]
        whole = " and ".join(["a whole number" if kind is int else "a number", *said])
        raise HttpError(400, f"{name} must be {whole}; got {shown_value(value)}", name)
    return kind(value)


def _messages(found: Any) -> tuple[Message, ...]:
    if not isinstance(found, list) or not found:
        raise HttpError(400, "messages must be a list with at least one message", "messages")
    return tuple(read_message(each, f"messages[{n}]") for n, each in enumerate(found))


def read_message(found: Any, where: str) -> Message:
    """Return a message of the protocol; its calls as the model writes them. Raises
    :class:`HttpError` (400), which names ``where``, for anything else."""
    if not isinstance(found, dict) or str(found.get("role")) not in ROLES:
        roles = ", ".join(ROLES)
        raise HttpError(400, f"{where} must be an object whose role is one of {roles}", where)
    calls = found.get("tool_calls") or []
    if not isinstance(calls, list):
        raise HttpError(400, f"{where}: tool_calls must be a list", where)
    written = [_written_call(each, where) for each in calls]
    text = "\n".join(filter(None, [_text(found.get("content"), where), *written]))
    return Message(ROLES[found["role"]], text)


def _text(content: Any, where: str) -> str:
    """Return a message's text: a text, nothing, or parts that are texts."""
    if content is None or isinstance(content, str):
        return content or ""
    if isinstance(content, list) and all(isinstance(each, dict) for each in content):
        other = [each.get("type") for each in content if each.get("type") != "text"]
        if not other and all(isinstance(each.get("text"), str) for each in content):
            return "".join(each["text"] for each in content)
        if other:
            raise HttpError(
                400, f"{where} has a part of type {other[0]}; only texts are read", where
            )
    raise HttpError(400, f"{where}: content must be a text or a list of text parts", where)


def _written_call(call: Any, where: str) -> str:
    """Return a call as the model writes it; its arguments as JSON values."""
    try:
        name, arguments = call["function"]["name"], call["function"]["arguments"]
        known = json.loads(arguments) if isinstance(arguments, str) else arguments
    except (KeyError, TypeError, ValueError, RecursionError) as error:
        wrong = f"{where}: a call has a function with a name and arguments that are JSON"
        raise HttpError(400, wrong, where) from error
    inside = json.dumps({"name": name, "arguments": known}, ensure_ascii=False)
    return f"<tool_call>{inside}</tool_call>"


def _tools(found: Any) -> tuple[str, ...]:
    """Return the schemas of tools, as :class:`Message` holds them."""
    if not isinstance(found, list):
        raise HttpError(400, "tools must be a list", "tools")
    for n, each in enumerate(found):
        function = each.get("function") if isinstance(each, dict) else None
        if not isinstance(function, dict) or not isinstance(function.get("name"), str):
            wrong = f"tools[{n}] must be of type function, with a name and parameters"
            raise HttpError(400, wrong, "tools")
    return tuple(json.dumps(each) for each in found)


def _with_tools(messages: Sequence[Message], tools: tuple[str, ...]) -> tuple[Message, ...]:
    """Return the messages with the tools in the system message, which may be a new one."""
    first, *rest = messages
    if first.role != "system":
        return (Message("system", "", tools), *messages)
    return (Message("system", first.content, tools), *rest)
