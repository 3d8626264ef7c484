"""Check that a language run's tokenizer has all characters of its texts."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Sequence
from typing import Any

from sterling.language.adapters.jsonl_tasks import JsonlTasks
from sterling.language.scene import Message, begin_scene
from sterling.system.terminal_messages import print_notice
from sterling.training.config.settings import Settings
from sterling.training.language.base_model import (
    language_settings,
    starting_model,
)
from sterling.training.language.context_length import PROBED_SCENES
from sterling.training.language.model_names import BYTES_SUFFIX, NEW_MODELS
from sterling.training.language.text_files import conversations_of_texts, strings_of
from sterling.training.language.text_world import asked_levels, program_of, text_world
from sterling.types import Mistake

MAX_SHOWN = 8  # characters that the notice lists


def with_alphabet(settings: Settings) -> Settings:
    """Return the settings of :func:`choose_alphabet`, and print its notice."""
    settings, notice = choose_alphabet(settings)
    if notice:
        print_notice(notice)
    return settings


def choose_alphabet(settings: Settings) -> tuple[Settings, str]:
    """Return a new run's settings, with a new model's tokens chosen to have all characters, and a
    notice if its characters lack some (empty: they do not).

    A new model's tokens are ASCII characters; if texts have other characters, its tokens are bytes
    instead. A trained model keeps its tokenizer: characters that it lacks are read as the unknown
    token, which no answer can contain; the notice says how many.
    """
    speech = language_settings(settings)
    if settings.context or speech.replay:  # the run was begun before, or no questions are asked
        return settings, ""
    texts, tokenizer = _sample_texts(settings), starting_model(speech.model).tokenizer
    characters = tokenizer.unknown_characters("".join(texts))
    if not characters:
        return settings, ""
    count = sum(not set(characters).isdisjoint(text) for text in texts)
    named = ", ".join(repr(each) for each in characters[:MAX_SHOWN])
    named += f" and {len(characters) - MAX_SHOWN} more" if len(characters) > MAX_SHOWN else ""
    where = f"{named} in {count} of {len(texts)} texts"
    if speech.model not in NEW_MODELS:
        lost = f"{speech.model} has no token for {where}: they are read as the unknown token"
        return settings, lost
    model = speech.model + BYTES_SUFFIX
    notice = f"{speech.model} has no token for {where}: using {model}, whose tokens are UTF-8 bytes"
    speech = dataclasses.replace(speech, model=model)
    return dataclasses.replace(settings, speech=speech), notice


def _sample_texts(settings: Settings) -> list[str]:
    """Return texts of a run: those of its file, or its world's first questions and solutions; all
    questions if the world reads them from a file."""
    if language_settings(settings).texts:
        return [each for text in conversations_of_texts(settings) for each in strings_of(text)]
    place, texts = text_world(settings), []
    if (probe := program_of(settings, place)) is not None:
        texts += probe.texts
    family = getattr(getattr(place, "world", place), "family", None)
    family = getattr(family, "family", family)  # the questions that a judge judges
    count = len(family.records) if isinstance(family, JsonlTasks) else PROBED_SCENES
    for level in asked_levels(settings, place):
        for seed in range(count):
            texts += _question_and_solution(
                place, seed, level, language_settings(settings).scene_seconds
            )
    return texts


def _question_and_solution(place: Any, seed: int, level: int, seconds: float) -> list[str]:
    """Return a question of the world, and its solution if the world has one."""
    scene = begin_scene(place, seed, level, seconds)
    opening = () if isinstance(scene, str) else _opening_of(scene)
    if not opening:
        return []  # the run itself counts and reports scenes that fail
    texts = [each.content for each in opening]
    with contextlib.suppress(AttributeError, Mistake):  # not every world or file has solutions
        texts.append(place.solve(scene))
    return texts


def _opening_of(scene: Any) -> Sequence[Message]:
    """Return the messages that begin a scene; an agent program's task in place of its request."""
    return scene.turn.messages if scene.turn else getattr(scene, "opening", ())
