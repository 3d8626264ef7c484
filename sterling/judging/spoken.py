"""What a language model says to problems drawn apart from training's: several answers to each."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Bool, Float

from sterling.language import posing
from sterling.language.talk import Line, Voice
from sterling.training import speech
from sterling.training.agent import Agent
from sterling.training.settings import Settings
from sterling.training.trained import TrainedRun
from sterling.types import Mistake

UNSAID = "silent"  # why a seat without a turn has no verdict


@dataclasses.dataclass(frozen=True, eq=False)
class Candidate:
    """A model to be judged: its agents and how they are asked."""

    label: str
    agent: Agent
    settings: Settings
    failed: tuple[int, ...] = ()  # seeds that diverged: they are not judged
    path: str = ""

    @classmethod
    def of(cls, run: TrainedRun, label: str = "") -> Candidate:
        """A trained run's; raises Mistake for one that taught no language model, or no seed."""
        name = label or (run.path.resolve().name if run.path else run.settings.algorithm)
        if run.settings.speech is None:
            raise Mistake(f"{name} taught no language model; judge it with --episodes alone")
        failed = tuple(run.result.get("failed_seeds", ()))
        if len(failed) == len(run.settings.seeds):
            raise Mistake(f"every seed of {name} failed: there is nothing to judge")
        return cls(name, run.agent, run.settings, failed, str(run.path or ""))

    def start(self) -> Candidate | None:
        """The models that the run began with; None if they were random."""
        model = speech.of(self.settings).model
        if speech.start(model).models is None:
            return None
        return Candidate("base", speech.agents(self.settings), self.settings, self.failed, model)

    def asked(self, environment: Any, levels: str, held_out: float) -> Candidate:
        """The same, asked another run's questions: its world, its levels, those it held out."""
        own = dataclasses.replace(speech.of(self.settings), levels=levels, held_out=held_out)
        named = {"environment": environment, "speech": own, "context": 0}
        settings = speech.settled(dataclasses.replace(self.settings, **named))
        return dataclasses.replace(self, settings=settings)

    def voice(self) -> Voice:
        """How it speaks: its tokenizer, answer length, temperature and cuts."""
        tokenizer = speech.start(speech.of(self.settings).model).tokenizer
        return speech.voice(self.settings, speech.world(self.settings), tokenizer)


@dataclasses.dataclass(frozen=True, eq=False)
class Spoken:
    """What one candidate said: ``lines[seed][problem][answer]``, of seat 0."""

    candidate: Candidate
    seeds: tuple[int, ...]  # that are judged
    levels: tuple[int, ...]  # of each problem
    lines: list[list[list[Line]]]
    greedy: list[list[Line]]  # [seed][problem]: the likeliest tokens

    @property
    def solved(self) -> Bool[np.ndarray, "seed problem answer"]:
        """Which answers were right."""
        return np.array([[[solved(one) for one in own] for own in seed] for seed in self.lines])

    def solved_at_all(self, greedy: bool) -> Bool[np.ndarray, "seed problem"]:
        """Which problems the likeliest tokens solve; without ``greedy``, any of the answers."""
        if greedy:
            return np.array([[solved(one) for one in seed] for seed in self.greedy])
        return np.asarray(self.solved.any(2))

    def mean(self, of: Any) -> Float[np.ndarray, "seed problem"]:
        """``of(line)``, averaged over a problem's answers; None is left out, NaN if all are."""
        return np.array([[_mean([of(one) for one in own]) for own in seed] for seed in self.lines])

    def every(self) -> list[Line]:
        """All lines."""
        return [one for seed in self.lines for own in seed for one in own]


def ask(candidate: Candidate, problems: int, samples: int) -> Spoken:
    """Ask ``problems`` problems, ``samples`` times by chance and once greedily.

    The problems depend on world, levels and their number only. Raises Mistake where there are none.
    """
    for name, many in (("problems", problems), ("samples", samples)):
        if many < 1:
            raise Mistake(f"judging needs at least one of its {name}; got {name}={many}")
    settings = candidate.settings
    seeds = jnp.asarray(settings.seeds, jnp.int32)
    talk = (candidate.agent, settings, seeds, problems)
    sampled = speech.spoken(*talk, explore=True, answers=samples)
    likeliest = speech.spoken(*talk)
    kept = [at for at, seed in enumerate(settings.seeds) if seed not in candidate.failed]
    asked = speech.levels(settings, speech.world(settings))
    return Spoken(
        candidate,
        tuple(settings.seeds[at] for at in kept),
        tuple(asked[at % len(asked)] for at in range(problems)),
        [_grouped(sampled[at], problems, samples) for at in kept],
        [[own[0] for own in _grouped(likeliest[at], problems, 1)] for at in kept],
    )


def available(candidate: Candidate) -> int:
    """How many problems can be asked before one comes again; 0: without end."""
    settings = candidate.settings
    place = speech.world(settings, judging=True)
    asked = speech.levels(settings, place)
    return len(asked) * min(posing.count(place, level) for level in asked)


def solved(line: Line) -> bool:
    """Whether a line came to the right answer: all the reward there is, or a last verdict "right".

    Where a judge's verdicts stand in for the world's, the world's own (``gold``) count.
    """
    if line.failed or not line.verdicts:
        return False
    return gold(line) >= 1.0 - 1e-9 or line.verdicts[-1].reason == "right"


def gold(line: Line) -> float:
    """What the world itself gave for a line, whoever's verdicts it was trained on."""
    return sum(getattr(one, "gold", one).reward for one in line.verdicts)


def reason(line: Line) -> str:
    """Why a line got what it got: its last verdict, or what went wrong before there was one."""
    if line.failed:
        return f"failed ({line.failed.partition(':')[0]})"
    if line.verdicts:
        return line.verdicts[-1].reason
    return "cut" if line.cut else UNSAID


def _grouped(lines: Sequence[Line], problems: int, samples: int) -> list[list[Line]]:
    """Lines of seat 0 by problem and answer; one that never spoke is empty."""
    of_scene = {line.scene: line for line in lines if not line.seat}
    return [
        [of_scene.get(number) or Line(number, 0) for number in range(first, first + samples)]
        for first in range(0, problems * samples, samples)
    ]


def _mean(values: Sequence[float | None]) -> float:
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else float("nan")


def run_folder(path: str | Path) -> str:
    """A path as it can be compared with another."""
    return str(Path(path).resolve())
