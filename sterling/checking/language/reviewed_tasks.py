"""Language tasks under review: they are made and judged, and what fails is counted."""

from __future__ import annotations

import dataclasses
import functools
import json
import time
from typing import Any

from sterling.language.adapters.user_tasks import UserTasks
from sterling.language.task import Family, Task, Verdict, batch_judge, is_right
from sterling.lookup.user_imports import describe_error
from sterling.types import Mistake

LEVELS = 8  # at most so many are reviewed
TASKS, QUICK_TASKS = 40, 10  # of each level
RECORDS, QUICK_RECORDS = 1_000, 100  # of a family with so many tasks
PATIENCE = 3  # responses that get no verdict because verify hangs, before no more are asked
HUNG = "verifier hung"


@dataclasses.dataclass(frozen=True)
class Posed:
    """A task, and the seed and level by which it was asked (those of a mixture's task differ)."""

    seed: int
    level: int
    task: Task

    def __str__(self) -> str:
        return f"seed {self.seed}, level {self.level}"


class ReviewedTasks:
    """Makes tasks of a family and judges responses.

    ``posed``: the tasks that could be made; ``failed``: why others could not; ``no_verdict``: why
    responses got no verdict; ``left_out``: what is not reviewed, in words.
    """

    def __init__(self, family: Family, quick: bool):
        self.family = family
        self.posed: list[Posed] = []
        self.failed: list[str] = []
        self.no_verdict: list[str] = []
        self.verdicts, self.seconds = 0, 0.0
        levels = list(family.levels)
        step = -(-len(levels) // LEVELS) if levels else 1
        self.levels = levels[::step]
        parts = [f"{len(levels) - len(self.levels)} levels"] if step > 1 else []
        self._seeds = {level: self._seeds_of(level, quick) for level in self.levels}
        more = sum(max(0, self._count(level) - len(self._seeds[level])) for level in self.levels)
        self.left_out = " and ".join([*parts, *([f"{more:,} tasks"] if more else [])])
        self.rate = self._make()

    def _count(self, level: int) -> int:
        """Return how many tasks a level has; 0 if that is unlimited."""
        return int(getattr(self.family, "count", lambda level: 0)(level))

    def _seeds_of(self, level: int, quick: bool) -> range:
        count = self._count(level)
        usual, most = (QUICK_TASKS, QUICK_RECORDS) if quick else (TASKS, RECORDS)
        return range(min(count, most) if count else usual)

    def _make(self) -> float:
        """Make the tasks; return how many were made per second."""
        begun = time.perf_counter()
        for level, seeds in self._seeds.items():
            for seed in seeds:
                try:
                    self.posed.append(Posed(seed, level, self.family.sample(seed, level)))
                except Exception as error:
                    said = str(error) if isinstance(error, Mistake) else describe_error(error)
                    self.failed.append(f"seed {seed}, level {level}: {said}")
        return len(self.posed) / max(time.perf_counter() - begun, 1e-9)

    def judge(self, posed: Posed, response: str) -> Verdict | None:
        """Return the verdict on a response; None, with the reason in ``no_verdict``, if there is
        none."""
        if sum(HUNG in each for each in self.no_verdict) >= PATIENCE:
            return None
        begun = time.perf_counter()
        try:
            found: Any = self.family.verify(posed.task, response)
            fault = _verdict_fault(found)
        except Exception as error:
            found, fault = None, f"verify raises {describe_error(error)}"
        if self.verdicts:  # the first one may start a process
            self.seconds += time.perf_counter() - begun
        self.verdicts += 1
        if not fault:
            return found  # a Verdict, as _verdict_fault has checked
        self.no_verdict.append(f"{posed}: {fault} (response {response!r:.40})")
        return None

    @functools.cached_property
    def batch(self) -> list[Posed]:
        """The tasks of the first judge of several responses at a time; empty if there is none."""
        judges = [batch_judge(self.family, posed.task) for posed in self.posed]
        first = next((judge for judge in judges if judge is not None), None)
        pairs = zip(self.posed, judges, strict=True)
        return [posed for posed, judge in pairs if first is not None and judge is first]

    def reward(self, posed: Posed, response: str) -> float | None:
        """Return the reward of a response, None without a verdict."""
        verdict = self.judge(posed, response)
        return None if verdict is None else verdict.reward

    def is_right(self, posed: Posed, response: str) -> bool:
        """Whether a response is right by its verdict."""
        verdict = self.judge(posed, response)
        return verdict is not None and is_right([verdict])

    @functools.cached_property
    def right(self) -> list[str | None]:
        """A right response to each task: the family's own solution, or the answer in the first of
        the usual forms that gets reward 1; None where nothing does."""
        return [self._right_response(posed) for posed in self.posed]

    def _right_response(self, posed: Posed) -> str | None:
        own = [] if (solution := self.solution(posed)) is None else [solution]
        known = [*own, *answer_forms(posed.task)]
        return next((each for each in known if self.is_right(posed, each)), None)

    def solution(self, posed: Posed) -> str | None:
        """Return the family's own solution; None if it has none, or raises."""
        try:
            return self.family.solve(posed.task) if has_solutions(self.family) else None
        except Exception:
            return None


def answer_forms(task: Task) -> list[str]:
    """Return a task's answer as a response, in the usual forms."""
    text = task.answer if isinstance(task.answer, str) else json.dumps(task.answer)
    return [text, f"<answer>{text}</answer>", f"\\boxed{{{text}}}", f"#### {text}"]


def users_object(family: Any) -> Any:
    """Return the object with the user's functions, if the family is made of them; else itself."""
    return family.made if isinstance(family, UserTasks) else family


def has_solutions(family: Any) -> bool:
    """Whether the family has a ``solve``."""
    return hasattr(users_object(family), "solve")


def _verdict_fault(found: Any) -> str:
    if not isinstance(found, Verdict):
        return f"verify returns {found!r:.40}, not a Verdict"
    return found.reason if found.verifier_failed else ""
