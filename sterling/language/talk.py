"""A model talks in scenes: messages become tokens, tokens are sampled, what was said is heard.

Every seat of a scene is one *line* of tokens. What the model sampled is kept as it was sampled,
with its log-probabilities; what was said to it is put between. No text becomes tokens twice.

A scene that raises, hangs or answers nonsense costs its own lines and nothing else: they are marked
as failed, and why is counted.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Sequence
from functools import partial
from numbers import Real
from typing import Any, Protocol, runtime_checkable

import jax
import numpy as np
from jaxtyping import Array, Key

from sterling import keys as named
from sterling.language.cores import side_by_side
from sterling.language.generate import Answers, Prompts, bucket
from sterling.language.patience import patience
from sterling.language.sampling import Sampling
from sterling.language.scene import Message, Scene
from sterling.language.task import RIGHT, Verdict
from sterling.language.tokenizer import Tokenizer

BOUNDLESS = 1 << 30  # a context that no line fills


@dataclasses.dataclass(frozen=True)
class Voice:
    """How is spoken."""

    tokenizer: Tokenizer
    limit: int  # tokens of one answer
    context: int  # tokens of one line at most; a scene that needs more is cut
    slots: int = 64  # answers that are written at a time
    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    patience: float = 10.0  # seconds that a scene may take to react, its verifiers' own aside


@dataclasses.dataclass
class Line:
    """What one seat heard and said."""

    scene: int  # its number
    seat: int
    ids: list[int] = dataclasses.field(default_factory=list)
    own: list[bool] = dataclasses.field(default_factory=list)  # sampled by the model
    log_prob: list[float] = dataclasses.field(default_factory=list)
    turn: list[int] = dataclasses.field(default_factory=list)  # the turn each token belongs to
    turns: int = 0  # that the seat had
    verdicts: tuple[Verdict, ...] = ()  # one for each of them
    cut: bool = False  # the context was too short, or an answer longer than allowed
    full: bool = False  # the context was too short for it or another seat: its scene is not over
    failed: str = ""  # why the scene was given up

    @property
    def reward(self) -> float:
        """What the line is worth: its verdicts' sum."""
        return sum((verdict.reward for verdict in self.verdicts), 0.0)

    @property
    def sound(self) -> bool:
        """Whether the seat spoke, in a scene that went well: what did not says nothing of it."""
        return not self.failed and self.turns > 0

    @property
    def right(self) -> bool:
        """Whether it came to the right answer: all the reward there is, or a last verdict of that
        name, which in some worlds is worth less after others."""
        if self.failed or not self.verdicts:
            return False
        return self.reward >= 1.0 - 1e-9 or self.verdicts[-1].reason == RIGHT.reason

    @property
    def late(self) -> int:
        """How many of its verdicts ran past their time limit; each is worth 0."""
        return sum(verdict.reason == "timeout" for verdict in self.verdicts)

    def hear(self, tokens: Sequence[int]) -> None:
        """Tokens that others chose."""
        self.ids += tokens
        self.own += [False] * len(tokens)
        self.log_prob += [0.0] * len(tokens)
        self.turn += [self.turns] * len(tokens)

    def say(self, tokens: Sequence[int], log_prob: Sequence[float]) -> None:
        """Tokens that the model chose; they are the turn's last."""
        self.ids += tokens
        self.own += [True] * len(tokens)
        self.log_prob += log_prob
        self.turn += [self.turns] * len(tokens)
        self.turns += 1


@runtime_checkable
class Speaker(Protocol):
    """Agents that speak: prompts with a leading seed axis in, answers with one out."""

    def act(self, obs: Any, keys: Key[Array, "seed"], explore: bool) -> tuple[Any, Any]:
        """See :class:`sterling.training.agent.Agent`."""
        ...


class Talk:
    """The scenes of one seed and their lines, as they go on together."""

    def __init__(self, scenes: Sequence[Scene | str], voice: Voice):
        self.voice = voice
        self.scenes = list(scenes)  # a word instead of a scene: why it could not begin
        self.lines: dict[tuple[int, int], Line] = {}
        for number, scene in enumerate(self.scenes):
            if isinstance(scene, str):
                self.lines[number, 0] = Line(number, 0, failed=scene)

    def waiting(self) -> list[Line]:
        """The lines whose seat is to speak, with what was said to it."""
        found = []
        for number, scene in enumerate(self.scenes):
            if isinstance(scene, str) or scene.turn is None or self._given_up(number):
                continue
            line = self.lines.setdefault((number, scene.turn.seat), Line(number, scene.turn.seat))
            tokens = self._tokens(line, scene.turn.messages)
            if len(line.ids) + len(tokens) + self.voice.limit > self.voice.context:
                line.cut = line.full = True
                line.failed = "" if line.turns else "its opening is longer than the context"
                continue
            line.hear(tokens)
            found.append(line)
        return found

    def answered(self, line: Line, ids: list[int], log_prob: list[float], stopped: bool) -> None:
        """Put what was sampled into the line, and let the scene hear it."""
        scene = self.scenes[line.scene]
        assert not isinstance(scene, str)
        line.say(ids, log_prob)
        line.cut |= not stopped
        tokenizer = self.voice.tokenizer
        # A thought that the template began is one, also where the answer is cut before its end.
        text = "<think>" * tokenizer.thinks + tokenizer.decode(ids[:-1] if stopped else ids)
        try:
            with patience(self.voice.patience):
                scene.say(text)
                self._check(line.scene, scene.verdicts)
            given = itertools.chain(*scene.verdicts)
            if fault := next((each for each in given if getattr(each, "faulty", False)), None):
                self._give_up(line.scene, fault.reason)
        except Exception as error:
            self._give_up(line.scene, _why(error))

    def finished(self) -> list[Line]:
        """All lines with their verdicts."""
        for (number, seat), line in self.lines.items():
            scene = self.scenes[number]
            if not isinstance(scene, str) and not line.failed:
                line.verdicts = tuple(scene.verdicts[seat])
                line.full = scene.turn is not None
                line.cut |= line.full
        return [self.lines[place] for place in sorted(self.lines)]

    def _check(self, number: int, verdicts: Any) -> None:
        """Raise ValueError where verdicts are none, or a seat has more of them than turns."""
        check(verdicts)
        for (scene, seat), line in self.lines.items():
            if scene != number:
                continue
            if seat >= len(verdicts):
                raise ValueError(f"there are no verdicts on seat {seat}")
            if len(verdicts[seat]) > line.turns:
                said = f"{len(verdicts[seat])} verdicts on seat {seat}"
                raise ValueError(f"{said}, which had {line.turns} turns")

    def _tokens(self, line: Line, messages: Sequence[Message]) -> list[int]:
        tokenizer = self.voice.tokenizer
        if not line.turns:
            return tokenizer.opening(messages)
        close = [] if line.ids[-1] in tokenizer.stops else [tokenizer.end]
        return close + tokenizer.going_on(messages)

    def _given_up(self, number: int) -> bool:
        lines = [line for (scene, _), line in self.lines.items() if scene == number]
        return any(line.failed or line.full for line in lines)

    def _give_up(self, number: int, why: str) -> None:
        for (scene, _), line in self.lines.items():
            if scene == number:
                line.failed = why


def converse(
    agent: Speaker,
    scenes: Sequence[Sequence[Scene | str]],
    voice: Voice,
    keys: Key[Array, "seed"],
    *,
    explore: bool = True,
) -> list[list[Line]]:
    """Play the scenes of every seed to their ends, and return their lines.

    Without ``explore`` the likeliest token is always said.
    """
    talks = [Talk(each, voice) for each in scenes]
    turn = 0
    while any(waiting := [talk.waiting() for talk in talks]):
        own = named.fold_each(keys, "turn", turn)
        write = partial(_act, agent, own, explore)
        answers = side_by_side(write, _prompts(waiting, voice))
        for seed, (talk, lines) in enumerate(zip(talks, waiting, strict=True)):
            for row, line in enumerate(lines):
                talk.answered(line, *_said(answers, seed, row))
        turn += 1
    return [talk.finished() for talk in talks]


def _act(agent: Speaker, keys: Key[Array, "seed"], explore: bool, prompts: Prompts) -> Answers:
    return agent.act(prompts, keys, explore)[0]


def opened(world: Any, seed: int, level: int, seconds: float) -> Scene | str:
    """A scene of the world, or in a word why it could not begin."""
    try:
        with patience(seconds):
            return world.begin(seed, level)
    except Exception as error:
        return _why(error)


def demonstrate(world: Any, scenes: Sequence[Scene | str], voice: Voice) -> list[Line]:
    """The lines of scenes in which the world's own ``solve`` speaks, which no limit of an answer
    binds; those that are longer than the context are marked as cut."""
    talk = Talk(scenes, dataclasses.replace(voice, context=BOUNDLESS))
    while waiting := talk.waiting():
        for line in waiting:
            thought = "\n</think>\n\n" * voice.tokenizer.thinks  # nothing: it ends at once
            text = thought + world.solve(talk.scenes[line.scene])
            ids = [*voice.tokenizer.encode(text), voice.tokenizer.end]
            talk.answered(line, ids, [0.0] * len(ids), True)
    lines = talk.finished()
    for line in lines:
        line.cut = line.full = len(line.ids) > voice.context
    return lines


def _said(answers: Answers, seed: int, row: int) -> tuple[list[int], list[float], bool]:
    count = int(answers.length[seed, row])
    ids, log_prob = answers.ids[seed, row, :count], answers.log_prob[seed, row, :count]
    return ids.tolist(), log_prob.tolist(), bool(answers.stopped[seed, row])


def _prompts(waiting: Sequence[Sequence[Line]], voice: Voice) -> Prompts:
    """What was heard so far, padded: few shapes, so that few programs are compiled."""
    rows = bucket(max(len(lines) for lines in waiting))
    room = bucket(max(len(line.ids) for lines in waiting for line in lines))
    seeds = len(waiting)
    ids = np.full((seeds, rows, room), voice.tokenizer.pad, np.int32)
    lengths = np.ones((seeds, rows), np.int32)
    for seed, lines in enumerate(waiting):
        for row, line in enumerate(lines):
            ids[seed, row, : len(line.ids)] = line.ids
            lengths[seed, row] = len(line.ids)
    total = np.array([len(lines) for lines in waiting], np.int32)
    one = Sampling.of(rows, voice.temperature, voice.top_k, voice.top_p)
    every = jax.tree.map(lambda x: np.broadcast_to(np.asarray(x), (seeds, *x.shape)), one)
    number = np.broadcast_to(np.arange(rows, dtype=np.int32), (seeds, rows))
    ids, lengths, total, number, every = jax.device_put((ids, lengths, total, number, every))
    limit, stops = voice.limit, voice.tokenizer.stops
    return Prompts(ids, lengths, total, number, every, limit, min(voice.slots, rows), stops)


def check(verdicts: Any) -> None:
    """Raise ValueError where a scene's verdicts are no verdicts."""
    for verdict in (each for seat in verdicts for each in seat):
        reward = getattr(verdict, "reward", None)
        if not isinstance(reward, Real) or not math.isfinite(reward):
            raise ValueError(f"a verdict without a finite reward: {verdict!r}"[:200])


def _why(error: Exception) -> str:
    said = " ".join(str(error).split())[:200]
    return f"{type(error).__name__}: {said}"
