"""How many tokens a context of several turns has room for."""

from __future__ import annotations

from collections.abc import Iterable

from sterling.language.scene import Message
from sterling.language.tokenizer import Tokenizer


def length_of_turns(
    openings: Iterable[tuple[Message, ...]],
    replies: Iterable[tuple[Message, ...]],
    turns: int,
    tokenizer: Tokenizer,
    limit: int,
) -> int:
    """Return the length of a context of so many turns, with the longest of these messages; between
    turns there are at least twice as many tokens as in an answer."""
    longest = max((len(tokenizer.encode_opening(each)) for each in openings), default=0)
    # one more token: an answer that was cut is closed before the reply
    between = max((1 + len(tokenizer.encode_continuation(each)) for each in replies), default=0)
    between = max(between, 2 * limit)
    return round_up_context(longest + turns * limit + (turns - 1) * between)


def round_up_context(tokens: int) -> int:
    """Return ``tokens`` rounded up to a multiple of 8."""
    return -(-tokens // 8) * 8
