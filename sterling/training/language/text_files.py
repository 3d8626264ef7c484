"""The file of texts that a language run learns from."""

from __future__ import annotations

from sterling import algorithms
from sterling.experience.language.answer_pairs import read_pairs
from sterling.experience.language.conversation_files import Messages, read_conversations
from sterling.language.models.turn_lengths import round_up_context
from sterling.language.scene import Message
from sterling.needs.feed import PAIRS
from sterling.training.config.settings import Settings
from sterling.training.language.base_model import language_settings, starting_model
from sterling.training.language.text_world import answer_limit

MEASURED_TEXTS = 32  # the texts with most characters, whose tokens are counted


def conversations_of_texts(settings: Settings) -> list[Messages | str]:
    """Return the conversations and plain texts of a run's file; of a preference pair, one
    conversation with each answer."""
    path, needs = language_settings(settings).texts, algorithms.find(settings.algorithm).needs
    if not needs(settings.config).has_feed(PAIRS):
        return read_conversations(path)
    return [
        (*pair.messages, Message("assistant", answer))
        for pair in read_pairs(path)
        for answer in (pair.chosen, pair.rejected)
    ]


def texts_context(settings: Settings) -> int:
    """Return the context length, in tokens, in which a model answers that is trained on texts
    alone: the user's, or that of the longest text and an answer."""
    speech = language_settings(settings)
    if speech.context:
        return speech.context
    texts, tokenizer = conversations_of_texts(settings), starting_model(speech.model).tokenizer
    texts.sort(key=lambda text: sum(map(len, strings_of(text))))
    longest = max(
        len(tokenizer.encode_plain(x) if isinstance(x, str) else tokenizer.encode_opening(x))
        for x in texts[-MEASURED_TEXTS:]
    )
    return round_up_context(longest + answer_limit(settings))


def strings_of(text: Messages | str) -> list[str]:
    """Return the contents of a conversation's messages, or a plain text alone."""
    return [text] if isinstance(text, str) else [each.content for each in text]
