"""Judging language models: what they solve in one answer and in many, and what they say.

>>> from sterling.judging import language
>>> found = language.judge(sterling.load("runs/grpo"), beside=["runs/sft"], samples=16)
>>> found.models[-1].pass_at_k[1]

All models are asked the same problems, drawn apart from those of training. The *base* is what the
judged run began with.
"""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Int

from sterling.judging import answers, pass_at_k
from sterling.judging.answers import Mismatch
from sterling.judging.crossed import crossed
from sterling.judging.paired import Change, change
from sterling.judging.spoken import Candidate, Spoken, ask, available, run_folder
from sterling.statistics import Estimate
from sterling.training import speech
from sterling.training.trained import TrainedRun, load
from sterling.types import Mistake

FILE, PICTURE = "language.json", "pass_at_k"


@dataclasses.dataclass(frozen=True)
class Model:
    """What is known of one model."""

    label: str
    path: str
    seeds: tuple[int, ...]
    failed: tuple[int, ...]
    sampling: dict[str, float]  # temperature, top_k, top_p, limit
    pass_at_k: dict[int, Estimate]
    facts: dict[str, Estimate]  # greedy, reward, length, cut, repeated, different, entropy
    levels: dict[int, Estimate]  # share of right answers
    reasons: dict[str, int]  # of the answers' verdicts
    mismatch: Mismatch
    gold: dict[str, Any] | None  # proxy, gold, gap, correlation where a judge gave the rewards
    right: Int[np.ndarray, "seed problem"]  # answers

    def of_seeds(self, answers: int) -> dict[int, list[float]]:
        """pass@k of every seed."""
        ks = pass_at_k.steps(answers)
        return {k: pass_at_k.pass_at_k(self.right, answers, k).mean(1).tolist() for k in ks}

    def to_json(self) -> dict[str, Any]:
        """Plain values; NaN is null."""
        plain = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        for name in ("pass_at_k", "facts", "levels"):
            plain[name] = {str(key): made.to_json() for key, made in plain[name].items()}
        plain |= {"mismatch": dataclasses.asdict(self.mismatch), "right": self.right.tolist()}
        return _finite(plain)


@dataclasses.dataclass(frozen=True)
class Judgement:
    """Several models on the same problems; the judged run's is the last."""

    environment: str
    levels: tuple[int, ...]  # of each problem
    samples: int
    models: list[Model]
    changes: dict[str, list[Change]]  # by which answers count: "any" or "greedy"
    rises: dict[str, dict[int, Estimate]]  # from another model to the judged: pass@k's difference
    notes: list[str]

    @property
    def problems(self) -> int:
        """How many were asked."""
        return len(self.levels)

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        changes = {
            how: [_finite(one.to_json()) for one in own] for how, own in self.changes.items()
        }
        return {
            "environment": self.environment,
            "problems": self.problems,
            "levels": list(self.levels),
            "samples": self.samples,
            "models": [model.to_json() for model in self.models],
            "changes": changes,
            "rises": {
                label: {str(k): made.to_json() for k, made in own.items()}
                for label, own in self.rises.items()
            },
            "notes": self.notes,
        }

    def write(self, folder: str | Path) -> tuple[Path, Path]:
        """``language.json`` and ``pass_at_k.png`` (.svg and .pdf beside it) in ``folder``."""
        from sterling.report import solved, style
        from sterling.report.text import count

        folder = Path(folder)
        text = json.dumps(self.to_json(), indent=1, allow_nan=False)
        (folder / FILE).write_text(text + "\n", encoding="utf-8")
        curves = {model.label: model.pass_at_k for model in self.models}
        seeds = max(len(model.seeds) for model in self.models)
        asked = f"{count(self.problems, 'problem')}, {count(seeds, 'seed')}"
        title = f"{self.environment}: {asked}"
        apart = {model.label: model.of_seeds(self.samples) for model in self.models}
        drawn = style.save(solved.pass_at_k(curves, title, apart), folder / PICTURE)
        return folder / FILE, drawn[0]


def judge(
    run: TrainedRun | str | Path,
    beside: Sequence[TrainedRun | str | Path] = (),
    *,
    samples: int = 16,
    problems: int = 64,
    levels: str = "",
    base: bool = True,
) -> Judgement:
    """Ask ``run``, the runs ``beside`` it and, with ``base``, the model it began with.

    ``samples`` answers to each of ``problems``, sampled as each run's settings say, and one by the
    likeliest tokens. All are asked in the world of ``run``, at its levels or at ``levels`` ("2",
    "0-3", "1,4"), where there are no more problems each of these once. A base that was random, or
    is among the runs beside, is left out.

    Raises Mistake for runs that taught no language model, levels the world does not have, and
    numbers below 1.
    """
    judged = Candidate.of(_loaded(run))
    environment = judged.settings.environment
    levels = levels or speech.of(judged.settings).levels
    others = [Candidate.of(_loaded(one)) for one in beside]
    begun = judged.start() if base else None
    if begun and run_folder(begun.path) not in [run_folder(one.path) for one in others]:
        others = [begun, *others]
    everyone = _named([*others, judged])
    notes = _notes(everyone)
    asked = (environment, levels, speech.of(judged.settings).held_out)
    candidates = [one.asked(*asked) for one in everyone]
    if 0 < (most := available(candidates[-1])) < problems:
        notes.append(f"there are {most} problems, and each was asked: not {problems}")
        problems = most
    said = [ask(one, problems, samples) for one in candidates]
    return Judgement(
        judged.settings.name,
        said[-1].levels,
        samples,
        [_model(one) for one in said],
        {"any": _changes(said, False), "greedy": _changes(said, True)},
        {one.candidate.label: _rise(one, said[-1]) for one in said[:-1]},
        notes,
    )


def _model(spoken: Spoken) -> Model:
    own, voice = spoken.candidate, spoken.candidate.voice()
    entropy, mismatch = answers.certainty(spoken)
    return Model(
        own.label,
        own.path,
        spoken.seeds,
        own.failed,
        {name: getattr(voice, name) for name in ("temperature", "top_k", "top_p", "limit")},
        pass_at_k.curve(spoken.solved),
        answers.described(spoken) | {"entropy": entropy},
        answers.by_level(spoken),
        answers.reasons(spoken),
        mismatch,
        answers.beside_gold(spoken),
        spoken.solved.sum(2),
    )


def _changes(said: Sequence[Spoken], greedy: bool) -> list[Change]:
    """From each of the others to the judged one, over as many seeds as both have."""
    last = said[-1]
    made = []
    for other in said[:-1]:
        seeds = min(len(other.seeds), len(last.seeds))
        names = (other.candidate.label, last.candidate.label)
        first, second = (one.solved_at_all(greedy)[:seeds] for one in (other, last))
        made.append(change(names, first, second))
    return made


def _rise(first: Spoken, second: Spoken) -> dict[int, Estimate]:
    """pass@k of the second minus that of the first, on the same seeds and problems."""
    seeds = min(len(first.seeds), len(second.seeds))
    rights = [one.solved[:seeds].sum(2) for one in (first, second)]
    answers = first.solved.shape[2]
    found = {}
    for k in pass_at_k.steps(answers):
        before, after = (pass_at_k.pass_at_k(right, answers, k) for right in rights)
        found[k] = crossed(after - before, bounds=(-1.0, 1.0))
    return found


def _named(candidates: Sequence[Candidate]) -> list[Candidate]:
    """Labels that differ: equal ones get their parent folder's name before them."""
    labels = [one.label for one in candidates]
    made: list[Candidate] = []
    for one in candidates:
        label = one.label
        if labels.count(label) > 1 and one.path:
            label = f"{Path(one.path).resolve().parent.name}/{label}"
        if label in [other.label for other in made]:
            raise Mistake(f"{one.path or label} is named twice; give each run once")
        made.append(dataclasses.replace(one, label=label))
    return made


def _notes(candidates: Sequence[Candidate]) -> list[str]:
    """What makes the models less comparable than they look."""
    judged, told = candidates[-1], []
    own = judged.voice()
    for one in candidates:
        if one.settings.name != judged.settings.name:
            told.append(f"{one.label} was taught on {one.settings.name}")
        if one.failed:
            told.append(f"{one.label}: failed seeds {', '.join(map(str, one.failed))} left out")
        theirs, ours = (speech.of(each.settings).held_out for each in (one, judged))
        if theirs < ours:
            told.append(
                f"{one.label} held out {theirs:g} of its questions, {judged.label} {ours:g}: "
                "it may have learned some that are asked here"
            )
        other = one.voice()
        for name, unit in (("temperature", ""), ("top_k", ""), ("top_p", ""), ("limit", " tokens")):
            theirs, ours = getattr(other, name), getattr(own, name)
            if theirs != ours:
                told.append(f"{one.label}: {name} {theirs:g}{unit}, {judged.label}: {ours:g}{unit}")
    return told


def _loaded(run: TrainedRun | str | Path) -> TrainedRun:
    return run if isinstance(run, TrainedRun) else load(run)


def _finite(value: Any) -> Any:
    """Plain JSON: NaN becomes None."""
    if isinstance(value, dict):
        return {name: _finite(part) for name, part in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(part) for part in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
