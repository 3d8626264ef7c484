"""The budget of a run on a file of texts, if the user gives none."""

from __future__ import annotations

from typing import Any

from sterling.language.jsonl_records import read_objects
from sterling.needs.feed import GENERATED

PASSES = 3  # over the file, as in TRL


def count_texts(path: str) -> int:
    """Return the number of records of a JSON-lines file. Mistake if it cannot be read."""
    return len(read_objects(path, "write one JSON object in each line"))


def default_updates(module: Any, config: Any, path: str) -> int:
    """Return the updates that draw as many texts as three passes over a file have, in whole
    iterations; 0 without a file, and for an algorithm that learns from answers of its own."""
    if not path or module.needs(config).has_feed(GENERATED):
        return 0
    iteration = config.batch * config.learn
    return int(config.learn * -(-PASSES * count_texts(path) // iteration))
