"""Which characters a run's texts are made of, and whether its tokenizer has them."""

from __future__ import annotations

import contextlib
import dataclasses
from typing import Any

from sterling import algorithms
from sterling.experience.comparisons import of_file as pairs_of_file
from sterling.language.adapters.jsonl import JsonlTasks, records
from sterling.language.talk import opened
from sterling.needs import PAIRS
from sterling.notice import say
from sterling.training import speech
from sterling.training.begun import BYTES, NEW, start
from sterling.training.contexts import PROBED
from sterling.training.settings import Settings
from sterling.types import Mistake

SHOWN = 8  # characters that a line names


def spelled(settings: Settings) -> Settings:
    """The settings of a run that begins, with a new model's tokens chosen by its texts.

    A new model's alphabet is ASCII's: where texts leave it, bytes are the tokens. A trained model
    has the tokenizer that it has: what that lacks is learned as an unknown token, which no answer
    can hold, and it is said how much that is.
    """
    asked = speech.of(settings)
    if settings.context or asked.replay:  # begun before, or nothing is asked
        return settings
    texts, tokenizer = _texts(settings), start(asked.model).tokenizer
    characters = tokenizer.lost("".join(texts))
    if not characters:
        return settings
    count = sum(not set(characters).isdisjoint(text) for text in texts)
    named = ", ".join(repr(each) for each in characters[:SHOWN])
    named += f" and {len(characters) - SHOWN} more" if len(characters) > SHOWN else ""
    where = f"{named} in {count} of {len(texts)} texts"
    if asked.model not in NEW:
        say(f"{asked.model} has no token for {where}: they are read as unknown, and never said")
        return settings
    model = asked.model + BYTES
    say(f"{asked.model} has no token for {where}: begun as {model}, whose tokens are UTF-8's bytes")
    return dataclasses.replace(settings, speech=dataclasses.replace(asked, model=model))


def _texts(settings: Settings) -> list[str]:
    """What is read and said in a run: its file's texts, or its world's first questions and their
    solutions; all of them where the world is a file's."""
    path, needs = speech.of(settings).texts, algorithms.find(settings.algorithm).needs
    if path and needs(settings.config).of(PAIRS):
        pairs = pairs_of_file(path)
        return [text for each in pairs for text in (*_said(each), each.chosen, each.rejected)]
    if path:
        names = ("system", "prompt", "response")
        found = records(path, names[1:])
        return [each[name] for each in found for name in names if isinstance(each.get(name), str)]
    place, texts = speech.world(settings), []
    family = getattr(getattr(place, "world", place), "family", None)
    count = len(family.records) if isinstance(family, JsonlTasks) else PROBED
    for level in speech.levels(settings, place):
        for seed in range(count):
            texts += _asked(place, seed, level, speech.of(settings).patience)
    return texts


def _asked(place: Any, seed: int, level: int, seconds: float) -> list[str]:
    """A question of the world, and its solution where the world has one."""
    scene = opened(place, seed, level, seconds)
    if isinstance(scene, str) or scene.turn is None:
        return []  # the run itself counts the scenes that fail, and says why
    texts = _said(scene.turn)
    with contextlib.suppress(AttributeError, Mistake):  # not every world has one, nor every file
        texts.append(place.solve(scene))
    return texts


def _said(turn: Any) -> list[str]:
    return [each.content for each in turn.messages]
