"""Evaluate language models: what they solve in one answer and in many, and statistics of their
answers.

>>> from sterling.evaluation.language import solve_rates
>>> found = solve_rates.judge(sterling.load("runs/grpo"), beside=["runs/sft"], samples=16)
>>> found.models[-1].pass_at_k[1]

All models answer the same problems, which are drawn apart from those of training. The *base* is the
model that the evaluated run started from.
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

from sterling.evaluation.language import answer_statistics, pass_at_k
from sterling.evaluation.language.answer_statistics import LogProbMismatch
from sterling.evaluation.language.paired_problems import PairedChange, paired_change
from sterling.evaluation.language.sampled_answers import (
    Candidate,
    SampledAnswers,
    count_problems,
    resolved_path,
    sample_answers,
)
from sterling.evaluation.language.seed_and_problem_intervals import two_way_estimate
from sterling.statistics import Estimate
from sterling.training.language.base_model import language_settings
from sterling.training.trained_run import TrainedRun, load
from sterling.types import Mistake

RESULT_FILE, CURVE_FILE = "language.json", "pass_at_k"


@dataclasses.dataclass(frozen=True)
class JudgedModel:
    """All results of one model."""

    label: str
    path: str
    seeds: tuple[int, ...]
    failed: tuple[int, ...]
    sampling: dict[str, float]  # temperature, top_k, top_p, limit
    pass_at_k: dict[int, Estimate]
    facts: dict[str, Estimate]  # greedy, reward, length, cut, repeated, different, entropy
    levels: dict[int, Estimate]  # share of right answers by level
    reasons: dict[str, int]  # how often each verdict reason was given
    mismatch: LogProbMismatch
    # proxy, gold, gap and correlation, if a judge model gave the rewards
    gold: dict[str, Any] | None
    right: Int[np.ndarray, "seed problem"]  # number of right answers

    def of_seeds(self, answers: int) -> dict[int, list[float]]:
        """Return pass@k of every seed, by k."""
        ks = pass_at_k.plotted_ks(answers)
        return {k: pass_at_k.pass_at_k(self.right, answers, k).mean(1).tolist() for k in ks}

    def to_json(self) -> dict[str, Any]:
        """Return plain values for JSON; NaN becomes null."""
        plain = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        for name in ("pass_at_k", "facts", "levels"):
            plain[name] = {str(key): made.to_json() for key, made in plain[name].items()}
        plain |= {"mismatch": dataclasses.asdict(self.mismatch), "right": self.right.tolist()}
        return _nan_to_null(plain)


@dataclasses.dataclass(frozen=True)
class Judgement:
    """Results of several models on the same problems; the evaluated run is the last."""

    environment: str
    levels: tuple[int, ...]  # of each problem
    samples: int
    models: list[JudgedModel]
    changes: dict[str, list[PairedChange]]  # by the answers that count: "any" or "greedy"
    rises: dict[str, dict[int, Estimate]]  # pass@k of the evaluated model minus that of each other
    notes: list[str]

    @property
    def problems(self) -> int:
        """Return the number of problems."""
        return len(self.levels)

    def to_json(self) -> dict[str, Any]:
        """Return plain values for JSON."""
        changes = {
            how: [_nan_to_null(one.to_json()) for one in own] for how, own in self.changes.items()
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
        """Write ``language.json`` and ``pass_at_k.png`` (with .svg and .pdf) to ``folder``."""
        from sterling.report.pictures import pass_at_k_plot, plot_style
        from sterling.report.text_tables import pluralise

        folder = Path(folder)
        text = json.dumps(self.to_json(), indent=1, allow_nan=False)
        (folder / RESULT_FILE).write_text(text + "\n", encoding="utf-8")
        curves = {model.label: model.pass_at_k for model in self.models}
        seeds = max(len(model.seeds) for model in self.models)
        asked = f"{pluralise(self.problems, 'problem')}, {pluralise(seeds, 'seed')}"
        title = f"{self.environment}: {asked}"
        apart = {model.label: model.of_seeds(self.samples) for model in self.models}
        drawn = plot_style.save_figure(
            pass_at_k_plot.draw_pass_at_k(curves, title, apart), folder / CURVE_FILE
        )
        return folder / RESULT_FILE, drawn[0]


def judge(
    run: TrainedRun | str | Path,
    beside: Sequence[TrainedRun | str | Path] = (),
    *,
    samples: int = 16,
    problems: int = 64,
    levels: str = "",
    base: bool = True,
) -> Judgement:
    """Evaluate ``run``, the runs ``beside`` it and, with ``base``, the model it started from.

    Each model gives ``samples`` answers to each of ``problems`` problems, sampled as its run's
    settings say, and one greedy answer. All are asked in the world of ``run``, at its levels or at
    ``levels`` ("2", "0-3", "1,4"); if there are fewer problems, each is asked once. A base is left
    out if it was random, or is among the runs beside.

    Raises Mistake for runs without a language model, levels that the world does not have, and
    numbers below 1.
    """
    judged = Candidate.from_run(_load_run(run))
    environment = judged.settings.environment
    levels = levels or language_settings(judged.settings).levels
    others = [Candidate.from_run(_load_run(one)) for one in beside]
    begun = judged.base_model() if base else None
    if begun and resolved_path(begun.path) not in [resolved_path(one.path) for one in others]:
        others = [begun, *others]
    everyone = _with_distinct_labels([*others, judged])
    notes = _comparability_notes(everyone)
    asked = (environment, levels, language_settings(judged.settings))
    candidates = [one.with_questions(*asked) for one in everyone]
    if 0 < (most := count_problems(candidates[-1])) < problems:
        notes.append(
            f"the environment has only {most} problems, so {most} were asked instead of {problems}"
        )
        problems = most
    said = [sample_answers(one, problems, samples) for one in candidates]
    return Judgement(
        judged.settings.name,
        said[-1].levels,
        samples,
        [_judge_model(one) for one in said],
        {"any": _paired_changes(said, False), "greedy": _paired_changes(said, True)},
        {one.candidate.label: _pass_at_k_rise(one, said[-1]) for one in said[:-1]},
        notes,
    )


def _judge_model(spoken: SampledAnswers) -> JudgedModel:
    own, voice = spoken.candidate, spoken.candidate.voice()
    entropy, mismatch = answer_statistics.entropy_and_mismatch(spoken)
    return JudgedModel(
        own.label,
        own.path,
        spoken.seeds,
        own.failed,
        {name: getattr(voice, name) for name in ("temperature", "top_k", "top_p", "limit")},
        pass_at_k.pass_at_k_curve(spoken.solved),
        answer_statistics.answer_statistics(spoken) | {"entropy": entropy},
        answer_statistics.solve_rate_by_level(spoken),
        answer_statistics.count_reasons(spoken),
        mismatch,
        answer_statistics.compare_with_gold(spoken),
        spoken.solved.sum(2),
    )


def _paired_changes(said: Sequence[SampledAnswers], greedy: bool) -> list[PairedChange]:
    """Compare each other model with the evaluated one, over as many seeds as both have."""
    last = said[-1]
    made = []
    for other in said[:-1]:
        seeds = min(len(other.seeds), len(last.seeds))
        names = (other.candidate.label, last.candidate.label)
        first, second = (one.solved_at_all(greedy)[:seeds] for one in (other, last))
        made.append(paired_change(names, first, second))
    return made


def _pass_at_k_rise(first: SampledAnswers, second: SampledAnswers) -> dict[int, Estimate]:
    """Return pass@k of the second minus that of the first, on the same seeds and problems."""
    seeds = min(len(first.seeds), len(second.seeds))
    rights = [one.solved[:seeds].sum(2) for one in (first, second)]
    answers = first.solved.shape[2]
    found = {}
    for k in pass_at_k.plotted_ks(answers):
        before, after = (pass_at_k.pass_at_k(right, answers, k) for right in rights)
        found[k] = two_way_estimate(after - before, bounds=(-1.0, 1.0))
    return found


def _with_distinct_labels(candidates: Sequence[Candidate]) -> list[Candidate]:
    """Make labels distinct by adding the parent folder's name to equal ones."""
    labels = [one.label for one in candidates]
    made: list[Candidate] = []
    for one in candidates:
        label = one.label
        if labels.count(label) > 1 and one.path:
            label = f"{Path(one.path).resolve().parent.name}/{label}"
        if label in [other.label for other in made]:
            raise Mistake(f"{one.path or label} is given twice; give each run once")
        made.append(dataclasses.replace(one, label=label))
    return made


def _comparability_notes(candidates: Sequence[Candidate]) -> list[str]:
    """Return notes on settings in which the models differ, which makes them less comparable."""
    judged, told = candidates[-1], []
    own = judged.voice()
    for one in candidates:
        if one.settings.name != judged.settings.name:
            told.append(f"{one.label} was trained on {one.settings.name}")
        if one.failed:
            told.append(f"{one.label}: failed seeds {', '.join(map(str, one.failed))} left out")
        theirs, ours = (language_settings(each.settings).held_out for each in (one, judged))
        if theirs < ours:
            told.append(
                f"{one.label} held out {theirs:g} of its questions, {judged.label} {ours:g}: "
                "it may have been trained on some that are asked here"
            )
        other = one.voice()
        for name, unit in (("temperature", ""), ("top_k", ""), ("top_p", ""), ("limit", " tokens")):
            theirs, ours = getattr(other, name), getattr(own, name)
            if theirs != ours:
                told.append(f"{one.label}: {name} {theirs:g}{unit}, {judged.label}: {ours:g}{unit}")
    return told


def _load_run(run: TrainedRun | str | Path) -> TrainedRun:
    return run if isinstance(run, TrainedRun) else load(run)


def _nan_to_null(value: Any) -> Any:
    """Replace NaN and infinities by None, for JSON."""
    if isinstance(value, dict):
        return {name: _nan_to_null(part) for name, part in value.items()}
    if isinstance(value, list | tuple):
        return [_nan_to_null(part) for part in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
