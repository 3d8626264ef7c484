"""Channels: what a world reports of a step beside the reward, and how it is judged.

A cost, several objectives, a success, the terms that a reward is made of: each is a channel with a
name. A world declares it once, as a :class:`Channel`, and every place that shows or compares
numbers of episodes reads the declaration.
"""

from __future__ import annotations

import dataclasses
import re

REDUCE = ("sum", "mean", "last", "max")
NAME = re.compile(r"[A-Za-z0-9_]+")
DIRECTIONS = {"more": 1, "less": -1, "neither": 0}
OWN = ("return", "length", "episodes", "invalid")  # columns that every run has


@dataclasses.dataclass(frozen=True)
class Channel:
    """How one reported number, or vector of numbers, becomes a number of an episode.

    ``reduce`` says how: the "sum" or "mean" over the episode's steps, the value of its "last" step,
    or the largest one, "max". A vector's entries have the names ``parts``, and where they differ in
    which direction is better, ``directions`` says it of each in place of ``better``.
    """

    parts: tuple[str, ...] = ()  # names of a vector's entries; (): one number
    reduce: str = "sum"
    better: int = 0  # 1: more is better, -1: less is better, 0: neither
    within: tuple[float, float] | None = None  # bounds of an episode's number, where known
    directions: tuple[int, ...] = ()  # of each part, as ``better``; (): ``better`` holds for all

    def __post_init__(self) -> None:
        """Raise Mistake for what cannot be."""
        from sterling.types import Mistake

        if self.reduce not in REDUCE:
            raise Mistake(f"a channel's reduce is one of {', '.join(REDUCE)}, not {self.reduce!r}")
        for better in (self.better, *self.directions):
            if better not in (-1, 0, 1):
                raise Mistake(f"a channel's better is -1, 0 or 1, not {better!r}")
        if self.directions and len(self.directions) != len(self.parts):
            raise Mistake(
                f"a channel of {len(self.parts)} parts has {len(self.directions)} directions; give "
                "one for each part, or better for all"
            )
        if self.within is not None and not self.within[0] < self.within[1]:
            raise Mistake(f"a channel's bounds within={self.within} are not (low, high)")
        if len(set(self.parts)) < len(self.parts):
            raise Mistake(f"a channel's parts need names of their own, not {self.parts}")

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of one step's value."""
        return (len(self.parts),) if self.parts else ()


def checked(channels: dict[str, Channel]) -> dict[str, Channel]:
    """The channels; Mistake where a name is taken or cannot be a column's."""
    from sterling.types import Mistake

    for name, channel in channels.items():
        for word in (name, *channel.parts):
            if not NAME.fullmatch(word):
                raise Mistake(f"{word!r} cannot name a channel; use letters, digits and _")
        if name in OWN:
            raise Mistake(f"a channel cannot be called {name!r}: every run has that column itself")
    return channels


def parse(text: str) -> dict[str, Channel]:
    """Read declarations as a user types them, ``NAME[:REDUCE[:DIRECTION[:LOW..HIGH]]]``, several
    with commas between: ``cost:sum:less:0..25,speed:mean:more``. A name alone is a sum of which
    neither direction is better.

    Raises Mistake for what cannot be read.
    """
    from sterling.types import Mistake

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
                f"channel {each!r} cannot be read; write NAME:REDUCE:DIRECTION:LOW..HIGH, for "
                "instance cost:sum:less:0..25 (REDUCE sum, mean, last or max; DIRECTION more, less "
                "or neither; all but NAME may be left out)"
            )
        better = DIRECTIONS[direction or "neither"]
        made[name] = Channel(reduce=reduce or "sum", better=better, within=ends)
    return checked(made)


def described(channels: dict[str, Channel]) -> dict[str, dict[str, object]]:
    """Each column's declaration in plain values, as a run's ``result.json`` holds it."""
    return {
        name: {
            "reduce": channel.reduce,
            "better": channel.better,
            "within": None if channel.within is None else list(channel.within),
        }
        for name, channel in columns(channels).items()
    }


def columns(channels: dict[str, Channel]) -> dict[str, Channel]:
    """One entry for each number of an episode: ``cost``, and ``objectives.speed`` for a part."""
    made: dict[str, Channel] = {}
    for name, channel in channels.items():
        alone = dataclasses.replace(channel, parts=(), directions=())
        each = channel.directions or (channel.better,) * len(channel.parts)
        made |= {
            f"{name}.{part}": dataclasses.replace(alone, better=better)
            for part, better in zip(channel.parts, each, strict=True)
        } or {name: alone}
    return made
