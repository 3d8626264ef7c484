"""Conversations with rewards: the scene, its turns and messages, and the world that it comes from.

Every world of text makes scenes, with one turn or many, one seat or several. Scenes are plain
Python on the host; the code that plays them decides how messages become tokens.
"""

from __future__ import annotations

import abc
import dataclasses
import math
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from functools import partial
from numbers import Real
from typing import Any, Protocol, runtime_checkable

from sterling.language.batch_verdicts import DueVerdict
from sterling.language.task import Family, Task, Verdict, batch_judge, judges_elsewhere
from sterling.language.time_limits import time_limit
from sterling.system.mistake import Mistake
from sterling.system.shown_values import short_text, shown_value


@dataclasses.dataclass(frozen=True)
class Message:
    """One message. ``role`` is "system", "user", "assistant" or "tool". ``tools`` are JSON schemas
    (:attr:`sterling.language.tools.tool_calls.Tool.schema`) of the tools that may be called from
    here on: a chat template with tools shows them in its own way, for others they are described in
    words."""

    role: str
    content: str
    tools: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True)
class Turn:
    """Whose turn it is, and the messages to that seat since it last spoke."""

    seat: int
    messages: tuple[Message, ...]
    fresh_context: bool = False  # the seat forgets what was said before: these messages are all
    after: int | None = None  # the seat's turn whose answer the messages follow; None: its latest
    limit: int | None = None  # most tokens of the answer; None: as many as any answer may have
    nth: int | None = None  # tells the turn's answer from others to equal tokens; None: its number
    stop: tuple[str, ...] = ()  # texts that end the answer, and are no part of it


@runtime_checkable
class Scene(Protocol):
    """One conversation in progress."""

    turn: Turn | None  # None: the scene is over
    verdicts: list[list[Verdict]]  # [seat][its turn]; final once ``turn`` is None

    def say(self, text: str) -> None:
        """Give the answer of the seat whose turn it is. Any text is an answer; Mistake if the scene
        is over."""
        ...


@runtime_checkable
class TextWorld(Protocol):
    """A source of scenes. Some worlds also offer ``solve(scene) -> str``, a good answer in the
    scene's present turn, for demonstrations. Worlds with a limited number of questions offer
    ``count(level) -> int`` (:mod:`sterling.language.question_order`). Those that begin a seat's
    context anew have ``contexts``, the most contexts of one seat in a scene (default 1)."""

    name: str
    seats: int
    levels: range  # difficulties, from easy to hard
    turns: int  # most answers that one seat can give in a scene

    def begin(self, seed: int, level: int) -> Scene:
        """Return the scene of this seed and level: the same answers always get the same
        reactions."""
        ...


@dataclasses.dataclass(frozen=True)
class DueCall:
    """A function that a scene waits for, and what it does with the result."""

    function: Callable[[], Any]
    then: Callable[[Any], None]
    limited: bool  # whether a scene's time limit holds for it; else it has one of its own
    waits: bool = False  # whether the function returns at once, with a Future of the result

    def result(self) -> Any:
        """Call the function, and return its result once it is there."""
        found = self.function()
        return found.result() if self.waits else found


class BaseScene(abc.ABC):
    """Base of scenes: keeps turns and verdicts. A scene adds ``hear(seat, text)``, which judges an
    answer, and then either asks the next seat or leaves ``turn`` None."""

    in_batch = False  # whether who plays the scene makes the calls and gives the verdicts due
    due_verdict: DueVerdict | None = None
    due_call: DueCall | None = None

    def __init__(self, seats: int = 1):
        self.turn: Turn | None = None
        self.verdicts: list[list[Verdict]] = [[] for _ in range(seats)]

    def say(self, text: str) -> None:
        """Give the answer of the seat whose turn it is; see :class:`Scene`."""
        if self.turn is None:
            raise Mistake("the scene is over, nobody can speak in it; begin another one")
        seat, self.turn = self.turn.seat, None
        self.hear(seat, text)

    @abc.abstractmethod
    def hear(self, seat: int, text: str) -> None:
        """React to a seat's answer: give it a verdict, and ask a seat or end the scene."""

    def ask(self, seat: int, *messages: Message, fresh_context: bool = False) -> None:
        """Give a seat the turn, with these messages; in a ``fresh_context`` they are all that it
        knows: what it shall remember is said in them again."""
        self.turn = Turn(seat, messages, fresh_context)

    def judge(self, seat: int, reward: float | Mapping[str, float], reason: str = "") -> None:
        """Add the verdict on a seat's latest answer: its reward, or several with names. Without a
        ``reason`` their size says whether it is right (:meth:`Verdict.of_rewards`)."""
        verdict = Verdict.of_rewards(reward)
        self.verdicts[seat].append(
            dataclasses.replace(verdict, reason=reason) if reason else verdict
        )

    def verify(self, family: Family, task: Task, seat: int, text: str) -> None:
        """Have a family judge a seat's latest answer. If the scene is one of a batch, a family that
        judges in batches does so together with the others', and one that judges in other processes
        beside them. Then :meth:`take_verdict` is called; do nothing else in the turn."""
        judge = batch_judge(family, task) if self.in_batch else None
        take, verify = partial(self.take_verdict, seat), partial(family.verify, task, text)
        if judge is not None:
            self.due_verdict = DueVerdict(judge, task, text, seat)
        elif judges_elsewhere(family, task):
            self._call(DueCall(verify, take, limited=False))
        else:
            take(verify())

    def call(self, function: Callable[[], Any], then: Callable[[Any], None]) -> None:
        """Call a function that may take long, such as a tool; then ``then(result)``, which judges
        or asks. Do nothing else in the turn. If the scene is one of a batch, the function runs in a
        thread of its own, beside those of other scenes and for at most a scene's time limit, and
        ``then`` where the scene is played."""
        self._call(DueCall(function, then, limited=True))

    def wait(self, function: Callable[[], Future[Any]], then: Callable[[Any], None]) -> None:
        """Have who plays the scene call a function that returns a Future, such as that of the next
        request of another program; then ``then(result)``. Do nothing else in the turn. No time
        limit holds for it, and it takes no thread."""
        self.due_call = DueCall(function, then, limited=False, waits=True)

    def _call(self, due: DueCall) -> None:
        if self.in_batch:
            self.due_call = due
        else:
            due.then(due.function())

    def give_verdict(self, verdict: Verdict) -> None:
        """Give the verdict that is due."""
        due, self.due_verdict = self.due_verdict, None
        assert due is not None
        self.take_verdict(due.seat, verdict)

    def take_verdict(self, seat: int, verdict: Verdict) -> None:
        """React to a family's verdict on a seat's answer: add it. A scene may also ask a seat."""
        self.verdicts[seat].append(verdict)


def check_seat(world: TextWorld, seat: object) -> None:
    """Raise :class:`Mistake`, which names the world, unless ``seat`` is one of its seats."""
    if seat not in range(world.seats):
        said = "1 seat" if world.seats == 1 else f"{world.seats} seats"
        raise Mistake(
            f"a scene of {world.name} asks seat {seat!r}, and the world has {said}, numbered from "
            "0. Set its `seats`, or correct the scene's turns"
        )


def context_count(world: Any) -> int:
    """Return the most contexts of one seat in a scene of the world (``contexts``). Raises Mistake
    unless that is a number above 0."""
    count = getattr(world, "contexts", 1)
    if isinstance(count, bool) or not isinstance(count, int) or count < 1:
        raise Mistake(f"{world.name}: `contexts` must be a number above 0, not {count!r}")
    return count


def check_contexts(world: Any, count: int) -> None:
    """Raise Mistake, which names the world, if a seat of a scene had more contexts than it says."""
    if count > (most := context_count(world)):
        raise Mistake(
            f"a scene of {world.name} began {count} contexts for one seat, and the world has "
            f"{most}. Set its `contexts`, or begin fewer"
        )


def check_verdicts(verdicts: Any) -> None:
    """Raise ValueError unless every verdict of a scene has a finite reward."""
    for verdict in (each for seat in verdicts for each in seat):
        reward = getattr(verdict, "reward", None)
        if not isinstance(reward, Real) or not math.isfinite(reward):
            raise ValueError(f"a verdict without a finite reward: {shown_value(verdict)}")


def begin_scene(world: Any, seed: int, level: int, seconds: float) -> Scene | str:
    """Return a scene of the world, or a text that says why it could not begin."""
    try:
        with time_limit(seconds):
            return world.begin(seed, level)
    except Exception as error:
        return error_line(error)


def error_line(error: Exception) -> str:
    """Return an exception as one line."""
    return f"{type(error).__name__}: {short_text(str(error))}"
