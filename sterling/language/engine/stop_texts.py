"""Texts that end an answer, besides the tokens that do."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from sterling.language.engine.ask import Said
from sterling.language.tokenizer import Tokenizer


def ended_answer(said: Said, tokenizer: Tokenizer, stops: Sequence[str]) -> tuple[Said, str, bool]:
    """Return an answer up to the first of the texts that stop it, its text without that, and
    whether it came to an end: not if it was cut off at its limit."""
    text = tokenizer.decode(said.ids[:-1] if said.stopped else said.ids)
    places = [text.find(each) for each in stops if each in text]
    if not places:
        return said, text, said.stopped
    count = next(n for n in range(1, len(said.ids) + 1)
                 if any(each in tokenizer.decode(said.ids[:n]) for each in stops))  # fmt: skip
    whole = dataclasses.replace(
        said, ids=said.ids[:count], log_prob=said.log_prob[:count], stopped=False
    )
    return whole, text[: min(places)], True
