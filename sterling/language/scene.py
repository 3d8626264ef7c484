"""Conversations that reward what is said in them: the scene, its turns, the world they come from.

Every world of text is a factory of scenes: one turn or many, one seat or several. Scenes are plain
host Python; whoever talks in them decides how messages become tokens.
"""

from __future__ import annotations

import abc
import dataclasses
from typing import Protocol, runtime_checkable

from sterling.language.task import Verdict
from sterling.types import Mistake


@dataclasses.dataclass(frozen=True)
class Message:
    """Something said. ``role`` is "system", "user", "assistant" or "tool". ``tools`` are JSON
    schemas (:attr:`sterling.language.tools.Tool.schema`) of what may be called from here on: a chat
    template that knows tools shows them its own way, for others they are described in words."""

    role: str
    content: str
    tools: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True)
class Turn:
    """Whose turn it is, and what was said to that seat since it last spoke."""

    seat: int
    messages: tuple[Message, ...]


@runtime_checkable
class Scene(Protocol):
    """One conversation in progress."""

    turn: Turn | None  # None: the scene is over
    verdicts: list[list[Verdict]]  # [seat][its turn]; final once ``turn`` is None

    def say(self, text: str) -> None:
        """What the seat in turn answers. Any text is an answer; Mistake where the scene is over."""
        ...


@runtime_checkable
class TextWorld(Protocol):
    """A source of scenes. Some worlds also offer ``solve(scene) -> str``, a good thing to say in
    the scene's present turn, for demonstrations; those whose questions have an end offer
    ``count(level) -> int`` (:mod:`sterling.language.posing`)."""

    name: str
    seats: int
    levels: range  # difficulties, from easy to hard
    turns: int  # most things that one seat can say in a scene

    def begin(self, seed: int, level: int) -> Scene:
        """The scene of this seed and level: the same answers always meet the same reactions."""
        ...


class Stage(abc.ABC):
    """What scenes share: keeping turns and verdicts. A scene adds ``hear(text)``, which judges
    what was said and either asks the next seat or leaves ``turn`` None."""

    def __init__(self, seats: int = 1):
        self.turn: Turn | None = None
        self.verdicts: list[list[Verdict]] = [[] for _ in range(seats)]

    def say(self, text: str) -> None:
        """What the seat in turn answers; see :class:`Scene`."""
        if self.turn is None:
            raise Mistake("the scene is over, nobody can speak in it; begin another one")
        seat, self.turn = self.turn.seat, None
        self.hear(seat, text)

    @abc.abstractmethod
    def hear(self, seat: int, text: str) -> None:
        """React to what a seat said: give it a verdict, and ask somebody or end the scene."""

    def ask(self, seat: int, *messages: Message) -> None:
        """Give a seat the turn, with what is said to it."""
        self.turn = Turn(seat, messages)

    def judge(self, seat: int, reward: float, reason: str) -> None:
        """The verdict on what a seat just said."""
        self.verdicts[seat].append(Verdict(reward, reason))
