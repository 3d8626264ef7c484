"""Train seeds until it is known which algorithm is better, or as many as may be.

    <folder>/question.json            what is asked; another question is refused (a study begun
                                      when means were compared goes on, decided by tendency)
    <folder>/<label>/<look>/          run folders: the seeds that were trained for one look
    <folder>/decision.json            what is known so far (statistics.compare)

Every look trains a few fresh seeds of every algorithm that is not yet told apart from another.
Labels have seeds of their own: what is compared are independent runs. Each step is a run folder, so
a study that was stopped goes on, exactly, when it is asked again.
"""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from sterling.disk import is_empty, writing
from sterling.report.damaged import check_run
from sterling.report.metrics import Sink
from sterling.statistics import Headline, compare, headline
from sterling.statistics.comparison import Comparison
from sterling.statistics.scores import Failed
from sterling.training import folder
from sterling.training.api import resume, train
from sterling.training.guard import EXIT_RESUMABLE
from sterling.training.question import (
    APART,
    Contender,
    Question,
    check_words,
    planned,
    settled,
)
from sterling.training.scored_by import declared
from sterling.training.start import build
from sterling.types import Mistake

EARLIER = {"about": "tendency", "within": None}  # how a study from before these goes on
EARLIER |= {"metric": "return", "direction": "higher"}

Watch = Callable[[Contender, Sequence[int]], Sequence[Sink]]


def until_decided(question: Question, path: str | Path, watch: Watch | None = None) -> Any:
    """Train until decided and return the ``statistics.Comparison``; ``watch`` gives each training
    its sinks.

    Raises Mistake for a question that cannot be answered, for a folder that holds another one, and
    where a seed failed and ``failed`` does not say what it counts as; SystemExit 75 when stopped.
    """
    path = Path(path)
    question = _checked(question, path)
    with writing(path):
        _begin(question, path)
    while True:
        scores = {each.label: finals(path / each.label, question.metric)
                  for each in question.contenders}  # fmt: skip
        lost = sum(not math.isfinite(score) for found in scores.values() for score in found)
        if lost and question.failed is None:
            raise Mistake(
                f"{lost} seeds failed; ask again in the same words and say what a failed seed "
                "counts as: --failed SCORE (in Python failed=SCORE)"
            )
        made = _compared(question, scores)
        folder.write_json(path / "decision.json", made.to_json())
        if made.finished:
            return made
        for each in question.contenders:
            if made.next_runs.get(each.label):
                _train_look(question, each, path, watch)


def _compared(question: Question, scores: Mapping[str, Sequence[float]]) -> Comparison:
    """What the scores so far say of the question."""
    sign = -1.0 if question.direction == "lower" else 1.0
    low, high = question.within or (None, None)
    turned = (None if high is None else -high, None if low is None else -low)
    made = compare(
        {label: [sign * score for score in found] for label, found in scores.items()},
        alpha=question.alpha,
        interims=question.looks,
        per_interim=question.per_look,
        failed=_signed(question.failed, sign),
        key=question.key,
        about=question.about,
        within=turned if sign < 0.0 and question.within else question.within,
    )
    if sign > 0.0:
        return made
    return dataclasses.replace(made, decisions=tuple(one.of_less() for one in made.decisions))


def _signed(failed: Failed, sign: float) -> Failed:
    return sign * failed if isinstance(failed, int | float) else failed


def _train_look(question: Question, each: Contender, path: Path, watch: Watch | None) -> None:
    """Train, or go on training, a contender's next seeds."""
    look = len(_finished(path / each.label))
    first = question.contenders.index(each) * APART + look * question.per_look
    seeds = list(range(first, first + question.per_look))
    out = path / each.label / f"{look:02d}"
    sinks = watch(each, seeds) if watch else ()
    if (out / "config.json").exists():
        resume(out, sinks=sinks)
    else:
        options = {**question.options, **each.fields, "steps": question.steps, "seeds": seeds}
        train(each.algorithm, question.environment, out=out, sinks=sinks, **options)
    if folder.read_result(out) is None:  # no room for its end, which has been said
        raise SystemExit(EXIT_RESUMABLE)


def finals(path: Path, metric: str = "return") -> list[float]:
    """The final score of every seed so far, oldest first; NaN where it failed."""
    found: list[float] = []
    for run in _finished(path):
        result = folder.read_result(run) or {}
        check_run(run, {}, result, [])
        made, seeds = result.get("final", {}).get(metric, {}), result.get("seeds", [])
        per_seed = made.get("per_seed", [None] * len(seeds))
        found += [float("nan") if score is None else score for score in per_seed]
    return found


def _finished(path: Path) -> list[Path]:
    return sorted(each.parent for each in path.glob("*/result.json"))


def standings(question: Question, path: Path) -> dict[str, Headline]:
    """What may be said of each contender's final scores so far."""
    settings = list(planned(question).values())
    within, better = declared(question.metric, settings)
    how: Any = {"failed": question.failed, "within": within, "better": better}
    found = {each.label: finals(path / each.label, question.metric) for each in question.contenders}
    return {label: headline(scores, **how) for label, scores in found.items()}


def _checked(question: Question, path: Path) -> Question:
    """The question, with what its world declares of its scores.

    All that can be wrong is told before anything is trained; agents that have no run in ``path``
    yet are made in their world to see whether they fit it.
    """
    check_words(question)
    settings = planned(question)
    question = settled(question, list(settings.values()))
    _compared(question, {label: [] for label in settings})  # raises where they can never decide
    for label, each in settings.items():
        if not (path / label).exists():
            build(each, warm=False).source.close()
    return question


def _begin(question: Question, path: Path) -> None:
    """Write the question down, or see that it is the one that was asked here before."""
    asked = json.loads(json.dumps(dataclasses.asdict(question)))
    file = path / "question.json"
    if not file.exists():
        path.mkdir(parents=True, exist_ok=True)
        if not is_empty(path):
            raise Mistake(f"{path} holds something else; choose another folder")
        folder.write_json(file, asked)
        return
    asked_before = folder.read_json(file)
    if not isinstance(asked_before, dict):
        raise Mistake(f"{file} must hold an object, not {asked_before!r:.40}; restore it")
    before = EARLIER | asked_before
    differs = [name for name in asked if asked[name] != before.get(name)]
    if differs == ["failed"] and before.get("failed") is None:  # said once a seed had failed
        folder.write_json(file, asked)
    elif differs:
        raise Mistake(
            f"{path} holds another question ({', '.join(differs)} differ); choose another folder"
        )
