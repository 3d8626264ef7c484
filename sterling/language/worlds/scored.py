"""A world whose verdicts are a learned judge's: reinforcement learning from preferences.

The judge is a *scorer*: any function from conversations with their last answers to scores, of which
higher is better, such as a reward model that training/scorer.py loads. The world's own verdict, the
*gold* one, is kept beside the judge's: a judge can be pleased by answers that are not good (Gao
2023, arXiv:2210.10760), and only the gold verdicts show it.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from sterling.language import posing
from sterling.language.scene import Message, Scene, TextWorld, Turn
from sterling.language.task import Verdict
from sterling.naming import hint
from sterling.types import Mistake

PREFIX = "scored:"
Answered = tuple[tuple[Message, ...], str]  # what was said before, and the answer
Scorer = Callable[[Sequence[Answered]], list[float]]

_SCORERS: dict[str, Scorer] = {}


@dataclasses.dataclass(frozen=True)
class Judged(Verdict):
    """A judge's verdict; ``reason`` is that of the world."""

    gold: Verdict


def register(name: str, scorer: Scorer) -> None:
    """Let :func:`sterling.language.worlds.find` know ``scored:name:WORLD``; a colon ends a name."""
    if not name or ":" in name:
        raise Mistake(f"a scorer cannot be called {name!r}; give it a name without colons")
    _SCORERS[name] = scorer


def known() -> tuple[str, ...]:
    """The names of registered scorers."""
    return tuple(_SCORERS)


def split(name: str) -> tuple[str, str]:
    """The scorer's name and the world's in ``scored:NAME:WORLD``; Mistake where one is missing."""
    scorer, _, world = name.removeprefix(PREFIX).partition(":")
    if not scorer or not world:
        raise Mistake(f"{name!r} is incomplete; write scored:RUN:WORLD, as scored:r1:reverse-text")
    return scorer, world


def named(name: str, find: Callable[[str], TextWorld]) -> Scored:
    """The world ``scored:NAME:WORLD`` of a registered scorer; ``find`` finds WORLD."""
    scorer, world = split(name)
    if scorer not in _SCORERS:
        near = hint(scorer, _SCORERS, "sterling.training.scorer.announce loads a reward run's")
        raise Mistake(f"no scorer is registered as {scorer!r}{near}")
    return Scored(find(world), _SCORERS[scorer], name)


class Scored:
    """The scenes of ``world``, at whose end the last answer gets sigmoid(its score) as its reward
    and all before it get 0. Verdicts are :class:`Judged`.

    The scorer is asked once at the beginning: what it compiles is not waited for in a scene, and
    one that does not work is found. Raises :class:`Mistake` then, and for worlds of several seats.
    """

    seats = 1

    def __init__(self, world: TextWorld, scorer: Scorer, name: str = ""):
        if world.seats != 1:
            raise Mistake(f"{world.name} has {world.seats} seats; a judge scores worlds of one")
        self.world, self.scorer = world, scorer
        self.name = name or f"{PREFIX}{world.name}"
        self.levels, self.turns = world.levels, world.turns
        if hasattr(world, "solve"):
            self.solve = self._solve
        scene = self.begin(0, world.levels[0])
        assert scene.turn is not None  # a scene begins with somebody's turn
        likely = self._solve(scene) if hasattr(world, "solve") else ""
        try:
            self.score(scene.turn.messages, likely)
        except (TypeError, ValueError) as error:
            raise Mistake(f"the scorer of {self.name} does not work: {error}") from error

    def begin(self, seed: int, level: int) -> _Scene:
        """The world's scene of this seed and level."""
        return _Scene(self, self.world.begin(seed, level))

    def count(self, level: int) -> int:
        """How many questions the world has; 0: without end."""
        return posing.count(self.world, level)

    def score(self, messages: tuple[Message, ...], text: str) -> float:
        """The judge's score of an answer; ValueError where it is no finite number."""
        found = self.scorer([(messages, text)])
        if len(found) != 1 or not math.isfinite(found[0]):
            raise ValueError(f"a score should be one finite number, not {found!r}"[:200])
        return float(found[0])

    def close(self) -> None:
        """Release what the world holds."""
        getattr(self.world, "close", lambda: None)()

    def _solve(self, scene: _Scene) -> str:
        """The world's own solution."""
        world: Any = self.world
        return str(world.solve(scene.inner))


class _Scene:
    def __init__(self, place: Scored, inner: Scene):
        self.place, self.inner = place, inner
        self.turn: Turn | None = inner.turn
        self.verdicts: list[list[Verdict]] = [[]]
        self.heard: tuple[Message, ...] = ()

    def say(self, text: str) -> None:
        self.inner.say(text)  # raises where the scene is over
        assert self.turn is not None
        before = (*self.heard, *self.turn.messages)
        self.heard, self.turn = (*before, Message("assistant", text)), self.inner.turn
        last = 0.0 if self.turn is not None else sigmoid(self.place.score(before, text))
        gold = self.inner.verdicts[0]
        rewards = [0.0] * (len(gold) - 1) + [last]
        self.verdicts = [[Judged(r, g.reason, g) for r, g in zip(rewards, gold, strict=True)]]


def sigmoid(score: float) -> float:
    """1 / (1 + exp(-score)), for any finite score."""
    return 0.5 * (1.0 + math.tanh(0.5 * score))


def gold(verdicts: Iterable[Verdict]) -> float:
    """What the world itself gave: the sum of the gold rewards (of verdicts that no judge gave,
    of their own)."""
    return sum(each.gold.reward if isinstance(each, Judged) else each.reward for each in verdicts)
