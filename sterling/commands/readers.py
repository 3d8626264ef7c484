"""How the words of the command line become values."""

from __future__ import annotations

import argparse
from typing import Any

from sterling.naming import literal


def number(text: str) -> float:
    """0.1, 1e-4, 1_000 or inf."""
    try:
        return float(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{text!r} is no number") from error


def integer(text: str) -> int:
    """1000, 1_000 or 1e3."""
    read = number(text)
    if not read.is_integer():
        raise argparse.ArgumentTypeError(f"{text!r} is no whole number")
    return int(read)


def seeds(text: str) -> int | list[int]:
    """How many, or which, apart by commas."""
    return [integer(part) for part in text.split(",") if part] if "," in text else integer(text)


def within(text: str) -> tuple[float | None, float | None]:
    """LOW,HIGH; one may be left empty, as in "0,"."""
    parts = text.split(",")
    if len(parts) != 2 or not any(part.strip() for part in parts):
        raise argparse.ArgumentTypeError(f"{text!r} is not of the form LOW,HIGH, as 0,500 or 0,")
    low, high = (number(part) if part.strip() else None for part in parts)
    return low, high


def failed(text: str) -> float | str:
    """A number, worst or exclude."""
    return text if text in ("worst", "exclude") else number(text)


def pair(text: str) -> tuple[str, Any]:
    """KEY=VALUE."""
    key, equals, value = text.partition("=")
    if not key or not equals:
        raise argparse.ArgumentTypeError(f"{text!r} is not of the form KEY=VALUE")
    return key, literal(value)
