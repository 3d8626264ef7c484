"""Channels: named numbers that a world reports with each step, beside the reward.

A cost, one of several objectives, success, or a term of the reward: each is a channel. A world
declares it once, as a :class:`Channel`; all code that shows or compares numbers of episodes reads
this declaration.
"""

from __future__ import annotations

import dataclasses
import re

from sterling.system.mistake import Mistake

REDUCTIONS = ("sum", "mean", "last", "max")
NAME_PATTERN = re.compile(r"[A-Za-z0-9_]+")
DIRECTIONS = {"more": 1, "less": -1, "neither": 0}
RESERVED_COLUMNS = ("return", "length", "episodes", "invalid")  # columns of every run


@dataclasses.dataclass(frozen=True)
class Channel:
    """How a reported number, or vector of numbers, is reduced to one number per episode.

    ``reduce`` is "sum" or "mean" over the episode's steps, "last" (the last step's value) or "max".
    A vector's entries are named by ``parts``. If the direction that is better differs between them,
    ``directions`` gives it for each, in place of ``better``.
    """

    parts: tuple[str, ...] = ()  # names of a vector's entries; (): one number
    reduce: str = "sum"
    better: int = 0  # 1: more is better, -1: less is better, 0: neither
    within: tuple[float, float] | None = None  # bounds of an episode's number, if known
    directions: tuple[int, ...] = ()  # ``better`` for each part; (): ``better`` holds for all

    def __post_init__(self) -> None:
        """Raise Mistake for invalid or contradictory fields."""

        if self.reduce not in REDUCTIONS:
            raise Mistake(
                f"Unknown reduce={self.reduce!r} of a channel. Use {', '.join(REDUCTIONS)}."
            )
        for better in (self.better, *self.directions):
            if better not in (-1, 0, 1):
                raise Mistake(f"a channel's better={better!r} is not valid. Use -1, 0 or 1.")
        if self.directions and len(self.directions) != len(self.parts):
            raise Mistake(
                f"a channel has {len(self.parts)} parts and {len(self.directions)} directions. "
                "Give one direction for each part, or `better` for all."
            )
        if self.within is not None and not self.within[0] < self.within[1]:
            raise Mistake(f"a channel's within={self.within} is not (low, high) with low < high.")
        if len(set(self.parts)) < len(self.parts):
            raise Mistake(f"a channel's parts {self.parts} contain a name twice. Rename one.")

    @property
    def shape(self) -> tuple[int, ...]:
        """Return the shape of one step's value."""
        return (len(self.parts),) if self.parts else ()


def check_channels(channels: dict[str, Channel]) -> dict[str, Channel]:
    """Return the channels. Raise Mistake for reserved names and names with other characters."""

    for name, channel in channels.items():
        for word in (name, *channel.parts):
            if not NAME_PATTERN.fullmatch(word):
                raise Mistake(f"{word!r} is not a valid channel name. Use letters, digits and _.")
        if name in RESERVED_COLUMNS:
            raise Mistake(f"channel {name!r}: every run has a column of this name. Rename it.")
    return channels


def channel_name(entry: str) -> str:
    """Return the name of the channel that reports an entry of ``info``: the entry's own, with _ for
    other characters than letters and digits (``reward/speed`` becomes ``reward_speed``)."""
    return re.sub(r"\W+", "_", entry, flags=re.ASCII)


def parse_channels(text: str) -> dict[str, Channel]:
    """Parse a user's channels, ``NAME[:REDUCE[:DIRECTION[:LOW..HIGH]]]``, separated by commas:
    ``cost:sum:less:0..25,speed:mean:more``. A name alone is a sum, and neither direction is better.
    The names are those of entries; :func:`channel_name` makes them channels'.

    Raise Mistake for text of another form, and for two entries with one channel's name.
    """

    made = {}
    for each in filter(None, (part.strip() for part in text.split(","))):
        name, reduce, direction, within, *rest = (*each.split(":"), "", "", "")
        low, dots, high = within.partition("..")
        try:
            ends = (float(low), float(high)) if within else None
        except ValueError:
            ends, dots = None, ""
        if any(rest) or (within and not dots) or (direction and direction not in DIRECTIONS):
            raise Mistake(
                f"Cannot parse channel {each!r}. Write NAME:REDUCE:DIRECTION:LOW..HIGH, for "
                "instance cost:sum:less:0..25 (REDUCE: sum, mean, last or max; DIRECTION: more, "
                "less or neither; only NAME is required)."
            )
        better = DIRECTIONS[direction or "neither"]
        made[name] = Channel(reduce=reduce or "sum", better=better, within=ends)
    named: dict[str, str] = {}
    for entry in made:
        if (first := named.setdefault(channel_name(entry), entry)) != entry:
            raise Mistake(
                f"channels {first!r} and {entry!r} would both be called {channel_name(entry)}. "
                "Leave one out."
            )
    check_channels({name: made[entry] for name, entry in named.items()})
    return made


def channels_to_json(channels: dict[str, Channel]) -> dict[str, dict[str, object]]:
    """Return each column's declaration as plain values, as written to ``result.json``."""
    return {
        name: {
            "reduce": channel.reduce,
            "better": channel.better,
            "within": None if channel.within is None else list(channel.within),
        }
        for name, channel in channel_columns(channels).items()
    }


def channel_columns(channels: dict[str, Channel]) -> dict[str, Channel]:
    """Return one entry per column: ``cost`` for a number, ``objectives.speed`` for a part."""
    made: dict[str, Channel] = {}
    for name, channel in channels.items():
        alone = dataclasses.replace(channel, parts=(), directions=())
        each = channel.directions or (channel.better,) * len(channel.parts)
        made |= {
            f"{name}.{part}": dataclasses.replace(alone, better=better)
            for part, better in zip(channel.parts, each, strict=True)
        } or {name: alone}
    return made
