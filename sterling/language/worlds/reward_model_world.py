"""A world whose verdicts are a learned judge's: reinforcement learning from preferences.

The judge is a *scorer*: any function from conversations with their last answers to scores (higher
is better), such as a reward model that training/language/judge_models.py loads. The world's own
verdict, the *gold* one, is kept with the judge's: a judge can be pleased by answers that are not
good (Gao 2023, arXiv:2210.10760), and only the gold verdicts show it.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any, cast

from sterling.language import question_order
from sterling.language.batch_verdicts import DueVerdict
from sterling.language.scene import Message, Scene, TextWorld, Turn, context_count
from sterling.language.task import Verdict
from sterling.lookup.name_suggestions import did_you_mean
from sterling.system.mistake import Mistake
from sterling.system.shown_values import shown_value

PREFIX = "scored:"
AnsweredPrompt = tuple[tuple[Message, ...], str]  # the messages before, and the answer
Scorer = Callable[[Sequence[AnsweredPrompt]], list[float]]

_SCORERS: dict[str, Scorer] = {}


@dataclasses.dataclass(frozen=True)
class JudgedVerdict(Verdict):
    """A judge's verdict; its ``reason`` is the world's."""

    gold: Verdict


def register_scorer(name: str, scorer: Scorer) -> None:
    """Register a scorer, so that :func:`sterling.language.worlds.find_world` finds
    ``scored:NAME:WORLD``. The name must not contain a colon."""
    if not name or ":" in name:
        raise Mistake(f"a scorer cannot be called {name!r}; give it a name without colons")
    _SCORERS[name] = scorer


def scorer_names() -> tuple[str, ...]:
    """Return the names of registered scorers."""
    return tuple(_SCORERS)


def split_name(name: str) -> tuple[str, str]:
    """Return the scorer's name and the world's in ``scored:NAME:WORLD``; Mistake if one is
    missing."""
    scorer, _, world = name.removeprefix(PREFIX).partition(":")
    if not scorer or not world:
        raise Mistake(f"{name!r} is incomplete; write scored:RUN:WORLD, as scored:r1:reverse-text")
    return scorer, world


def find_scored(name: str, find: Callable[[str], TextWorld]) -> ScoredWorld:
    """Return the world ``scored:NAME:WORLD`` of a registered scorer; ``find`` finds WORLD."""
    scorer, world = split_name(name)
    if scorer not in _SCORERS:
        near = did_you_mean(
            scorer,
            _SCORERS,
            "register a reward run with "
            "sterling.training.language.judge_models.register_reward_model",
        )
        raise Mistake(f"no scorer is registered as {scorer!r}{near}")
    return ScoredWorld(find(world), _SCORERS[scorer], name)


class ScoredWorld:
    """The scenes of ``world``, where the last answer gets sigmoid(its score) as its reward, and all
    answers before get 0. Verdicts are :class:`JudgedVerdict`.

    The scorer is called once at the beginning, so that no scene waits for its compilation, and an
    error shows at once. Raises :class:`Mistake` then, and for worlds of several seats.
    """

    seats = 1

    def __init__(self, world: TextWorld, scorer: Scorer, name: str = ""):
        if world.seats != 1:
            raise Mistake(
                f"{world.name} has {world.seats} seats; a judge can only score worlds of one seat"
            )
        self.world, self.scorer = world, scorer
        self.name = name or f"{PREFIX}{world.name}"
        self.levels, self.turns = world.levels, world.turns
        self.contexts = context_count(world)
        if hasattr(world, "solve"):
            self.solve = self._solve
        scene = self.begin(0, world.levels[0])
        assert scene.turn is not None  # a scene begins with somebody's turn
        likely = self._solve(scene) if hasattr(world, "solve") else ""
        try:
            self.score(scene.turn.messages, likely)
        except (TypeError, ValueError) as error:
            raise Mistake(f"the scorer of {self.name} does not work: {error}") from error

    def begin(self, seed: int, level: int) -> _ScoredScene:
        """Return the world's scene of this seed and level."""
        return _ScoredScene(self, self.world.begin(seed, level))

    def count(self, level: int) -> int:
        """Return the number of questions of the world; 0: unlimited."""
        return question_order.question_count(self.world, level)

    def score(self, messages: tuple[Message, ...], text: str) -> float:
        """Return the judge's score of an answer; ValueError if it is not one finite number."""
        found = self.scorer([(messages, text)])
        if len(found) != 1 or not math.isfinite(found[0]):
            raise ValueError(f"a score should be one finite number, not {shown_value(found)}")
        return float(found[0])

    def close(self) -> None:
        """Release what the world holds."""
        getattr(self.world, "close", lambda: None)()

    def _solve(self, scene: _ScoredScene) -> str:
        """Return the world's own solution."""
        world: Any = self.world
        return str(world.solve(scene.inner))


class _ScoredScene:
    def __init__(self, place: ScoredWorld, inner: Scene):
        self.place, self.inner = place, cast(Any, inner)
        self.turn: Turn | None = inner.turn
        self.verdicts: list[list[Verdict]] = [[]]
        self.heard: tuple[Message, ...] = ()

    @property
    def in_batch(self) -> bool:
        """Whether the world's scene leaves its verdicts to who plays it: see BaseScene."""
        return getattr(self.inner, "in_batch", False)

    @in_batch.setter
    def in_batch(self, value: bool) -> None:
        if hasattr(self.inner, "in_batch"):
            self.inner.in_batch = value

    @property
    def due_verdict(self) -> DueVerdict | None:
        """The verdict that the world's scene waits for."""
        return getattr(self.inner, "due_verdict", None)

    def give_verdict(self, verdict: Verdict) -> None:
        self.inner.give_verdict(verdict)
        self._score()

    def say(self, text: str) -> None:
        self.inner.say(text)  # raises if the scene is over
        assert self.turn is not None
        heard = () if getattr(self.turn, "fresh_context", False) else self.heard
        self.heard = (*heard, *self.turn.messages, Message("assistant", text))
        self.turn = None
        if self.due_verdict is None:
            self._score()

    def _score(self) -> None:
        """React to an answer that the world's scene has judged."""
        self.turn = self.inner.turn
        *before, answer = self.heard
        over = self.turn is None
        last = sigmoid(self.place.score(tuple(before), answer.content)) if over else 0.0
        gold = self.inner.verdicts[0]
        rewards = [0.0] * (len(gold) - 1) + [last]
        self.verdicts = [
            [JudgedVerdict(r, g.reason, g) for r, g in zip(rewards, gold, strict=True)]
        ]


def sigmoid(score: float) -> float:
    """Return 1 / (1 + exp(-score)), for any finite score."""
    return 0.5 * (1.0 + math.tanh(0.5 * score))


def gold_reward(verdicts: Iterable[Verdict]) -> float:
    """Return the sum of the world's own rewards: the gold rewards of judged verdicts, and the
    rewards of verdicts that no judge gave."""
    return sum(
        each.gold.reward if isinstance(each, JudgedVerdict) else each.reward for each in verdicts
    )
