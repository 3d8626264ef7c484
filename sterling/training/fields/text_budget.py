"""The budget of a run on a file of texts, if the user gives none."""

from __future__ import annotations

from typing import Any

from sterling.language.jsonl_records import read_objects
from sterling.needs.feed import GENERATED, PAIRS
from sterling.training.config.run_options import LanguageSettings

PASSES = 3  # over the file, as in TRL


def count_texts(path: str) -> int:
    """Return the number of records of a JSON-lines file. Mistake if it cannot be read."""
    return len(read_objects(path, "write one JSON object in each line"))


def count_held_out(needs: Any, path: str, share: float) -> int:
    """Return how many records of a file are held out at ``share``, by what they ask; ``needs`` is
    for preference pairs or for texts. Mistake if a record has another form."""
    from sterling.experience.language import conversation_files
    from sterling.language.worlds.held_out_questions import is_held_out  # these take time to import

    if needs.has_feed(PAIRS):
        asked = [opening for opening, *_ in conversation_files.read_comparisons(path)]
    else:
        texts = conversation_files.read_conversations(path)
        asked = [conversation_files.opening_of(text) for text in texts]
    return sum(is_held_out(each, share) for each in asked)


def default_updates(module: Any, config: Any, speech: LanguageSettings) -> int:
    """Return the updates that draw as many texts as three passes over a file have, without those
    that are held out, in whole iterations; 0 without a file, and for an algorithm that learns from
    answers of its own."""
    needs, path = module.needs(config), speech.texts
    if not path or needs.has_feed(GENERATED):
        return 0
    count, iteration = count_texts(path), config.batch * config.learn
    if 0 < speech.held_out < 1:
        count -= count_held_out(needs, path, speech.held_out)
    return int(config.learn * -(-PASSES * max(count, 1) // iteration))
