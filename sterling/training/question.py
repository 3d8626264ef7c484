"""What a study that trains until it is decided is asked: contenders, a world, a score."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import Any

from sterling.envs.registry import find
from sterling.statistics.declared import Bounds, counted_as
from sterling.statistics.scores import Failed
from sterling.training.fields import whole
from sterling.training.scored_by import declared
from sterling.training.settings import Settings, resolve
from sterling.types import Mistake

APART = 1000  # between the first seeds of two labels


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
    within: Bounds | None = None  # bounds of the scores, for about="mean"
    metric: str = "return"  # the score, or a channel that the world reports
    direction: str = "higher"  # which scores are better, or "lower": the world's channel says so

    @property
    def looks(self) -> int:
        """At most."""
        return self.max_seeds // self.per_look


def check_words(question: Question) -> None:
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


def planned(question: Question) -> dict[str, Settings]:
    """The settings of a look of each contender. Raises Mistake for what cannot be trained."""
    find(question.environment)
    known = ("envs", "strategy", "preset", "env_options")
    rest = {name: value for name, value in question.options.items() if name in known}
    rest |= {"steps": question.steps, "seeds": question.per_look}
    return {
        each.label: resolve(each.algorithm, question.environment, fields=each.fields, **rest)
        for each in question.contenders
    }


def settled(question: Question, settings: Sequence[Settings]) -> Question:
    """The question with the direction of its scores and, where it needs them, their bounds."""
    within, better = declared(question.metric, settings)
    question = dataclasses.replace(question, direction="lower" if better < 0 else "higher")
    if question.failed == "worst":
        question = dataclasses.replace(question, failed=counted_as("worst", within, better))
    if question.about != "mean" or question.within is not None:
        return question
    low, high = within or (None, None)
    if low is None or high is None:
        raise Mistake(
            f"{question.environment} does not declare two bounds of its {question.metric}s, "
            "without which no number of seeds decides between means: add --within LOW,HIGH (in "
            "Python within=(low, high)), or leave out --about mean"
        )
    return dataclasses.replace(question, within=(low, high))
