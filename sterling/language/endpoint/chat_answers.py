"""Chat completions in OpenAI's form: whole, or as the events of a stream."""

from __future__ import annotations

import dataclasses
import hashlib
import itertools
import json
import math
from collections.abc import Sequence
from typing import Any

from sterling.language.endpoint.chat_requests import CALL, ChatRequest
from sterling.language.engine.ask import Said
from sterling.language.tokenizer import Tokenizer


@dataclasses.dataclass(frozen=True)
class Completion:
    """All answers to one request."""

    request: ChatRequest
    said: Sequence[Said]
    tokenizer: Tokenizer
    model: str
    created: int  # seconds since 1970
    prompt: Sequence[int]  # tokens

    @property
    def name(self) -> str:
        """Return the completion's id: a function of what was heard and said. So are those of calls;
        a call that is made again later in a conversation has another one."""
        heard = [[each.role, each.content, each.tools] for each in self.request.messages]
        data = json.dumps([heard, [[*each.ids] for each in self.said]]).encode()
        return f"chatcmpl-{hashlib.blake2b(data, digest_size=12).hexdigest()}"

    @property
    def usage(self) -> dict[str, int]:
        """Return the numbers of tokens."""
        own = sum(len(each.ids) for each in self.said)
        return {
            "prompt_tokens": len(self.prompt),
            "completion_tokens": own,
            "total_tokens": len(self.prompt) + own,
        }

    def to_json(self) -> dict[str, Any]:
        """Return the whole answer."""
        choices = [self._choice(number, said) for number, said in enumerate(self.said)]
        whole = self._head("chat.completion") | {"choices": choices, "usage": self.usage}
        return whole | self._prompt_tokens

    def events(self) -> list[str]:
        """Return the answer as the data of a stream's events: of each choice its message in one
        piece, and its end; then the numbers of tokens, if asked for."""
        head, found = self._head("chat.completion.chunk"), []
        for number, said in enumerate(self.said):
            choice = self._choice(number, said)
            delta = dict(choice["message"])
            if "tool_calls" in delta:
                calls = enumerate(delta["tool_calls"])
                delta["tool_calls"] = [{"index": at, **call} for at, call in calls]
            begin = {"index": number, "delta": delta, "finish_reason": None}
            end = {"index": number, "delta": {}, "finish_reason": choice["finish_reason"]}
            own = {name: choice[name] for name in ("logprobs", "token_ids") if name in choice}
            found.append(head | {"choices": [begin | own]})
            found.append(head | {"choices": [end]})
        found[0] |= self._prompt_tokens
        if self.request.usage:
            found.append(head | {"choices": [], "usage": self.usage})
        return [*map(json.dumps, found), "[DONE]"]

    @property
    def _prompt_tokens(self) -> dict[str, Any]:
        """Return the field with the tokens of the prompt, if they are asked for."""
        return {"prompt_token_ids": [*self.prompt]} if self.request.token_ids else {}

    def _head(self, kind: str) -> dict[str, Any]:
        return {"id": self.name, "object": kind, "created": self.created, "model": self.model}

    def _choice(self, number: int, said: Said) -> dict[str, Any]:
        whole, reason = self._text(said)
        thought, text = _without_thought(whole)
        message: dict[str, Any] = {"role": "assistant", "content": text}
        if thought:
            message["reasoning_content"] = thought
        if self.request.has_tools and (calls := _calls(text, f"{self.name}{number}")):
            begun = text[: text.index("<tool_call>")].strip()
            message |= {"content": begun or None, "tool_calls": calls}
            reason = "tool_calls" if reason == "stop" else reason
        log_probs = self._log_probs(said) if self.request.log_probs else None
        found = {"index": number, "message": message, "finish_reason": reason}
        ids = {"token_ids": [*said.ids]} if self.request.token_ids else {}
        return found | {"logprobs": log_probs} | ids

    def _text(self, said: Said) -> tuple[str, str]:
        """Return an answer's text, up to the first of the texts that stop it, and why it ends."""
        text = self.tokenizer.decode(said.ids[:-1] if said.stopped else said.ids)
        text = "<think>" * self.tokenizer.starts_in_thought + text
        places = [text.find(stop) for stop in self.request.stop if stop in text]
        if places:
            return text[: min(places)], "stop"
        return text, "stop" if said.stopped else "length"

    def _log_probs(self, said: Said) -> dict[str, Any]:
        content = []
        for place, pair in enumerate(zip(said.ids, said.log_prob, strict=True)):
            content.append(self._log_prob(*pair) | {"top_logprobs": self._likeliest(said, place)})
        return {"content": content, "refusal": None}

    def _likeliest(self, said: Said, place: int) -> list[dict[str, Any]]:
        """Return the likeliest tokens at a place, as many as asked for that can be drawn."""
        if said.likeliest is None:
            return []
        pairs = zip(*(each[place].tolist() for each in said.likeliest), strict=True)
        first = itertools.islice(pairs, self.request.likeliest)
        return [self._log_prob(token, each) for token, each in first if each > -math.inf]

    def _log_prob(self, token: int, log_prob: float) -> dict[str, Any]:
        text = self.tokenizer.decode([token])
        return {"token": text, "logprob": log_prob, "bytes": [*text.encode()]}


def _without_thought(text: str) -> tuple[str, str]:
    """Return an answer's thought and the rest of it."""
    thought, end, spoken = text.rpartition("</think>")
    if end:
        return thought.replace("<think>", "").strip(), spoken.lstrip("\n")
    before, begin, rest = text.partition("<think>")
    return (rest.strip(), before.strip()) if begin else ("", text)


def error_body(status: int, line: str, param: str | None, code: str | None) -> Any:
    """Return an error in the protocol's form."""
    kind = "server_error" if status >= 500 else "invalid_request_error"
    return {"error": {"message": line, "type": kind, "param": param, "code": code}}


def _calls(text: str, name: str) -> list[dict[str, Any]]:
    """Return the calls in an answer; [] if one of them cannot be read: the text is content then.
    Their ids are nine letters or digits, and a function of what was said."""
    found = []
    for number, inside in enumerate(CALL.findall(text)):
        try:
            call = json.loads(inside)
            tool, arguments = call["name"], call.get("arguments", {})
            written = arguments if isinstance(arguments, str) else json.dumps(arguments)
            json.loads(written)
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            return []
        if not isinstance(tool, str) or not isinstance(arguments, dict | str):
            return []
        own = hashlib.blake2b(f"{name}/{number}".encode(), digest_size=8).hexdigest()[:9]
        function = {"name": tool, "arguments": written}
        found.append({"id": own, "type": "function", "function": function})
    return found
