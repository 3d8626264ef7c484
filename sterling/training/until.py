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
from sterling.envs.registry import find
from sterling.report.damaged import check_run
from sterling.report.metrics import Sink
from sterling.statistics import compare
from sterling.statistics.comparison import Comparison
from sterling.statistics.declared import Bounds, counted_as
from sterling.statistics.scores import Failed
from sterling.training import folder
from sterling.training.api import resume, train
from sterling.training.fields import whole
from sterling.training.guard import EXIT_RESUMABLE
from sterling.training.settings import Settings, resolve
from sterling.training.start import build
from sterling.training.trained import bounds
from sterling.types import Mistake

APART = 1000  # between the first seeds of two labels
EARLIER = {"about": "tendency", "within": None}  # how a study from before these goes on


@dataclasses.dataclass(frozen=True)
class Contender:
    """An algorithm with settings of its own."""

    label: str
    algorithm: str
    fields: dict[str, Any] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True)
class Question:
    """Which of the contenders is better on ``environment`` after ``steps`` steps?"""

    contenders: tuple[Contender, ...]
    environment: str
    steps: int  # environment steps per seed
    max_seeds: int = 30  # of each contender
    per_look: int = 5  # fresh seeds of each contender for each look at the scores
    alpha: float = 0.05  # probability of any wrong decision; see docs/statistics.md
    failed: Failed = None  # what a failed seed counts as: a number, or "worst"
    key: int = 0  # of the permutations
    options: dict[str, Any] = dataclasses.field(default_factory=dict)  # for ``sterling.train``
    about: str = "tendency"  # what is decided, or "mean"
    within: Bounds | None = None  # bounds of the returns, for about="mean"

    @property
    def looks(self) -> int:
        """At most."""
        return self.max_seeds // self.per_look


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
        scores = {each.label: returns(path / each.label) for each in question.contenders}
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
    return compare(
        dict(scores),
        alpha=question.alpha,
        interims=question.looks,
        per_interim=question.per_look,
        failed=question.failed,
        key=question.key,
        about=question.about,
        within=question.within,
    )


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


def returns(path: Path) -> list[float]:
    """The final return of every seed so far, oldest first; NaN where it failed."""
    found: list[float] = []
    for run in _finished(path):
        result = folder.read_result(run) or {}
        check_run(run, {}, result, [])
        made, seeds = result.get("final", {}).get("return", {}), result.get("seeds", [])
        per_seed = made.get("per_seed", [None] * len(seeds))
        found += [float("nan") if score is None else score for score in per_seed]
    return found


def _finished(path: Path) -> list[Path]:
    return sorted(each.parent for each in path.glob("*/result.json"))


def _checked(question: Question, path: Path) -> Question:
    """The question, with the bounds that its world declares where it needs them.

    All that can be wrong is told before anything is trained; agents that have no run in ``path``
    yet are made in their world to see whether they fit it.
    """
    _check_words(question)
    find(question.environment)
    known = ("envs", "strategy", "preset", "env_options")
    rest = {name: value for name, value in question.options.items() if name in known}
    rest |= {"steps": question.steps, "seeds": question.per_look}
    planned = {
        each.label: resolve(each.algorithm, question.environment, fields=each.fields, **rest)
        for each in question.contenders
    }
    question = _with_bounds(question, list(planned.values()))
    _compared(question, {label: [] for label in planned})  # raises where they can never decide
    for label, settings in planned.items():
        if not (path / label).exists():
            build(settings, warm=False).source.close()
    return question


def _check_words(question: Question) -> None:
    """Raises Mistake for a question that makes no sense in any world."""
    labels = [each.label for each in question.contenders]
    if len(labels) < 2 or len(set(labels)) < len(labels):
        raise Mistake(f"a comparison needs two or more different labels; got {', '.join(labels)}")
    if not 0 < question.per_look <= question.max_seeds <= APART:
        raise Mistake(
            f"{question.per_look} seeds a look and {question.max_seeds} at most do not fit; "
            f"both lie between 1 and {APART}"
        )
    whole("key", question.key)
    if question.failed == "exclude":
        raise Mistake(
            "leaving failed seeds out would let luck choose the runs that are compared: say what "
            "one counts as, --failed SCORE or --failed worst"
        )
    if isinstance(question.failed, float | int) and not math.isfinite(question.failed):
        raise Mistake(f"failed must be a finite number; got {question.failed}")


def _with_bounds(question: Question, planned: Sequence[Settings]) -> Question:
    """The question with the bounds of returns that its world declares, where it needs them."""
    said = {bounds(settings) for settings in planned}
    if question.failed == "worst":
        worst = counted_as("worst", bounds(planned[0]))
        question = dataclasses.replace(question, failed=worst)
    if question.about != "mean" or question.within is not None:
        return question
    low, high = (said.pop() if len(said) == 1 else None) or (None, None)
    if low is None or high is None:
        raise Mistake(
            f"{question.environment} does not declare two bounds of its returns, without which no "
            "number of seeds decides between means: add --within LOW,HIGH (in Python within=(low, "
            "high)), or leave out --about mean"
        )
    return dataclasses.replace(question, within=(low, high))


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
