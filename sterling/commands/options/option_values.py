"""Parse the values of options: numbers, seeds, bounds, KEY=VALUE pairs."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any

from sterling import schedule_words
from sterling.lookup.name_suggestions import parse_literal
from sterling.system.mistake import Mistake


def option_value(option: str, words: Sequence[str]) -> str | None:
    """Return the value of an option among the words of a command line, before they are parsed."""
    for word, after in zip(words, [*words[1:], ""], strict=False):
        if word == option:
            return after
        if word.startswith(f"{option}="):
            return word.partition("=")[2]
    return None


def number(text: str) -> float:
    """Parse a number such as 0.1, 1e-4, 1_000 or inf."""
    try:
        return float(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number") from error


def number_or_schedule(text: str) -> float | str:
    """Parse a number, or check the words of a schedule (such as linear:3e-4:0) and return them. A
    file is read when the run begins."""
    try:
        return float(text)
    except ValueError:
        pass
    try:
        if not schedule_words.names_file(text):
            schedule_words.parse(text)
    except Mistake as mistake:
        raise argparse.ArgumentTypeError(str(mistake)) from mistake
    return text


def integer(text: str) -> int:
    """Parse an integer such as 1000, 1_000 or 1e3."""
    read = number(text)
    if not read.is_integer():
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number")
    return int(read)


def number_or_off(text: str) -> float | str:
    """Parse a number, or the word off."""
    return text if text == "off" else number(text)


def integer_or_off(text: str) -> int | str:
    """Parse an integer, or the word off."""
    return text if text == "off" else integer(text)


def layer_sizes(text: str) -> int | tuple[int, ...]:
    """Parse the units of all hidden layers, such as 256, or of each, such as 400,300 or, as Python
    and YAML write it, [400, 300]."""
    inner = text.strip()
    listed = inner[:1] + inner[-1:] in ("[]", "()")
    parts = inner[1:-1] if listed else inner
    if "," not in parts and not listed:
        return integer(parts)
    return tuple(integer(part) for part in parts.split(",") if part.strip())


def seeds(text: str) -> int | list[int]:
    """Parse the number of seeds, or a list of seeds such as 3,7 or [3, 7]."""
    found = layer_sizes(text)
    return list(found) if isinstance(found, tuple) else found


def bound_pair(text: str) -> tuple[float | None, float | None]:
    """Parse LOW,HIGH; either may be empty, as in "0," for no upper bound."""
    parts = text.split(",")
    if len(parts) != 2 or not any(part.strip() for part in parts):
        raise argparse.ArgumentTypeError(f"{text!r} is not LOW,HIGH; write for example 0,500 or 0,")
    low, high = (number(part) if part.strip() else None for part in parts)
    return low, high


def failed_score(text: str) -> float | str:
    """Parse what a failed seed counts as: a number, worst or exclude."""
    return text if text in ("worst", "exclude") else number(text)


def key_value(text: str) -> tuple[str, Any]:
    """Parse KEY=VALUE; the value is a Python literal, or else text."""
    key, equals, value = text.partition("=")
    if not key or not equals:
        raise argparse.ArgumentTypeError(f"{text!r} is not of the form KEY=VALUE")
    return key, parse_literal(value)
