"""Verdicts on the answers of a whole batch: one call for each judge, and what one bad answer costs.

A judge that takes lists (``verify_batch``) may compare the answers to a question with each other.
So a scene of its family does not ask for a verdict: it says that one is due. Whoever plays the
scenes goes on with the others, until all that can speak have spoken, and then asks for all due
verdicts at once.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from sterling.language.adapters.answer_worker import AWAY, WorkerFault
from sterling.language.away_services import ask_until_answered
from sterling.language.task import BatchJudge, Task, Verdict
from sterling.system.shown_values import shown_value


@dataclasses.dataclass(frozen=True)
class DueVerdict:
    """The answer of a scene's seat that a judge will judge together with others."""

    judge: BatchJudge
    task: Task
    text: str
    seat: int


def judge_together(due: Mapping[int, DueVerdict]) -> dict[int, Verdict]:
    """Return the verdicts that are due, by their scenes' numbers. Each judge is called once, with
    its answers in the order of ``due``."""
    found: dict[int, Verdict] = {}
    for judge in dict.fromkeys(each.judge for each in due.values()):
        numbers = [number for number, each in due.items() if each.judge is judge]
        tasks, texts = [due[n].task for n in numbers], [due[n].text for n in numbers]
        found |= zip(numbers, judge.verify_batch(tasks, texts), strict=True)
    return found


Asked = Sequence[tuple[Task, str]]  # tasks with responses


def ask_for_verdicts(
    ask: Callable[[Asked], list[Verdict]], asked: Asked, who: str
) -> list[Verdict]:
    """Return the verdicts on responses, as ``ask`` gives them for a list, or why there are none.

    If it raises :class:`WorkerFault` for all of them, it is asked about each question's responses
    alone, and only those of a question for which it raises again have no verdict. A service that is
    away is asked again; if it stays away, none has a verdict.
    """
    try:
        return ask_until_answered(lambda: ask(asked), who)
    except WorkerFault as fault:
        questions: dict[tuple[str, int, int], list[int]] = {}
        for number, (task, _) in enumerate(asked):
            questions.setdefault((task.family, task.seed, task.level), []).append(number)
        if len(questions) == 1 or fault.kind == AWAY:
            return [Verdict(0.0, f"verifier {fault.kind}: {fault.detail}")] * len(asked)
    found: dict[int, Verdict] = {}
    for numbers in questions.values():
        own = ask_for_verdicts(ask, [asked[number] for number in numbers], who)
        found |= zip(numbers, own, strict=True)
    return [found[number] for number in range(len(asked))]


def length_fault(found: Any, count: int, things: str) -> str:
    """Return what is wrong with the value that a function returned for ``count`` ``things``; "" if
    it is a list with one element for each."""
    try:
        length = -1 if isinstance(found, str | Mapping) else len(found)
    except TypeError:
        length = -1
    if length == count:
        return ""
    more = f", which has length {length}" if length >= 0 else ""
    return (
        f"{shown_value(found)} for a list of {count} {things if count > 1 else things[:-1]}{more}"
    )
