"""Which earlier answer the messages of a request follow.

A client of chat completions keeps nothing on the server: it sends the whole conversation each time.
What it sends back is compared as what it means, not letter by letter: no content is an empty text,
text parts are their text, and the arguments of calls are JSON values (chat_requests.py reads them
so). A conversation that continues an earlier answer keeps the tokens that were sampled; nothing is
tokenized again.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence

from sterling.language.endpoint.chat_requests import CALL
from sterling.language.scene import Message

Known = tuple[str, str, tuple[str, ...]]


class MessageHistory:
    """The conversations of a session, each up to one of its answers."""

    def __init__(self) -> None:
        self._turns: dict[tuple[Known, ...], int] = {}  # the latest turn of equal ones

    def add(self, messages: Sequence[Message], answer: Message, turn: int) -> None:
        """Remember what was asked, and answered in a turn."""
        self._turns[tuple(map(_known, (*messages, answer)))] = turn

    def find(self, messages: Sequence[Message]) -> tuple[int | None, Sequence[Message]]:
        """Return the turn whose answer the messages follow, and those that come after it; None and
        all of them if they follow none."""
        known = tuple(map(_known, messages))
        for count in range(len(known) - 1, 0, -1):
            if (turn := self._turns.get(known[:count])) is not None:
                return turn, messages[count:]
        return None, messages


def _known(message: Message) -> Known:
    return message.role, re.sub(CALL, _sorted_call, message.content).strip(), message.tools


def _sorted_call(found: re.Match[str]) -> str:
    """Return a call with its arguments in alphabetical order."""
    try:
        return json.dumps(json.loads(found[1]), sort_keys=True)
    except (ValueError, RecursionError):
        return found[0]
