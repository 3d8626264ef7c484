"""The question of a study that trains until it is decided: contenders, environment, score."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import Any

from sterling.envs.registry import find_backend
from sterling.statistics.scores.score_bounds import Bounds, resolve_failed_score
from sterling.statistics.scores.score_table import FailedRule
from sterling.training.config.resolve_settings import resolve_settings
from sterling.training.config.settings import Settings
from sterling.training.evaluation.scored_channel import bounds_and_direction
from sterling.training.fields.config_fields import whole_number
from sterling.types import Mistake

SEED_DISTANCE = 1000  # distance between the first seeds of two contenders


@dataclasses.dataclass(frozen=True)
class Contender:
    """An algorithm with its settings, under a label."""

    label: str
    algorithm: str
    fields: dict[str, Any] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True)
class Question:
    """Which of the contenders is better on ``environment`` after ``steps`` steps?"""

    contenders: tuple[Contender, ...]
    environment: str
    steps: int  # environment steps per seed
    max_seeds: int = 30  # maximum seeds of each contender
    per_look: int = 5  # new seeds of each contender before each look (interim analysis)
    alpha: float = 0.05  # probability of any wrong decision; see docs/statistics.md
    failed: FailedRule = None  # what a failed seed counts as: a number, or "worst"
    key: int = 0  # random key of the permutations
    options: dict[str, Any] = dataclasses.field(default_factory=dict)  # for ``sterling.train``
    about: str = "tendency"  # what is compared; or "mean"
    within: Bounds | None = None  # bounds of the scores, for about="mean"
    metric: str = "return"  # the score: the return, or a channel of the world
    direction: str = "higher"  # which scores are better; "lower" if the world's channel says so

    @property
    def max_looks(self) -> int:
        """Return the maximum number of looks."""
        return self.max_seeds // self.per_look


def check_question(question: Question) -> None:
    """Raise Mistake for a question that is invalid in every world."""
    labels = [each.label for each in question.contenders]
    if len(labels) < 2 or len(set(labels)) < len(labels):
        raise Mistake(f"a comparison needs at least two different labels; got {', '.join(labels)}")
    if not 0 < question.per_look <= question.max_seeds <= SEED_DISTANCE:
        raise Mistake(
            f"{question.per_look} seeds per look and at most {question.max_seeds} seeds are not "
            f"possible: 1 <= seeds per look <= maximum seeds <= {SEED_DISTANCE}."
        )
    whole_number("key", question.key)
    if question.failed == "exclude":
        raise Mistake(
            "failed=exclude would bias the comparison, because failed seeds are not random. Give "
            "the score of a failed seed: --failed SCORE or --failed worst."
        )
    if isinstance(question.failed, float | int) and not math.isfinite(question.failed):
        raise Mistake(f"failed must be a finite number; got {question.failed}")


def contender_settings(question: Question) -> dict[str, Settings]:
    """Return each contender's settings for one look; raise Mistake if they cannot be trained."""
    find_backend(question.environment)
    known = ("envs", "strategy", "preset", "env_options")
    rest = {name: value for name, value in question.options.items() if name in known}
    rest |= {"steps": question.steps, "seeds": question.per_look}
    return {
        each.label: resolve_settings(
            each.algorithm, question.environment, fields=each.fields, **rest
        )
        for each in question.contenders
    }


def with_score_declaration(question: Question, settings: Sequence[Settings]) -> Question:
    """Return the question with the direction of its scores and, if it needs them, their bounds."""
    within, better = bounds_and_direction(question.metric, settings)
    question = dataclasses.replace(question, direction="lower" if better < 0 else "higher")
    if question.failed == "worst":
        question = dataclasses.replace(
            question, failed=resolve_failed_score("worst", within, better)
        )
    if question.about != "mean" or question.within is not None:
        return question
    low, high = within or (None, None)
    if low is None or high is None:
        raise Mistake(
            f"{question.environment} does not declare two bounds of its {question.metric}s, and "
            "means cannot be compared without them. Add --within LOW,HIGH (in Python "
            "within=(low, high)), or leave out --about mean."
        )
    return dataclasses.replace(question, within=(low, high))
