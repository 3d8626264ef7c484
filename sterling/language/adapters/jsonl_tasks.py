"""Make tasks from files of JSON lines."""

from __future__ import annotations

import json
import re
from fractions import Fraction
from pathlib import Path
from typing import Any

from sterling.language.jsonl_records import (
    NumberText,
    check_text,
    read_records,
    report_fault,
)
from sterling.language.question_order import shuffled_index
from sterling.language.task import (
    NO_ANSWER,
    RIGHT,
    WRONG,
    Task,
    Verdict,
    check_level,
    final_answer,
)
from sterling.lookup.name_suggestions import did_you_mean
from sterling.system.mistake import Mistake

COMPARISONS = ("text", "math", "algebra")
_NUMBER = re.compile(r"[-+]?(?:\d{1,400}(?:\.\d{0,400})?|\.\d{1,400})(?:[eE][-+]?\d{1,3})?")


class JsonlTasks:
    """Prompts with answers from a file: ``{"prompt": ..., "answer": ...}``, and ``system`` if there
    is a system message.

    The answer form is that of :func:`sterling.language.task.final_answer`, also in the file, so
    that files whose answers end in ``#### 42`` work as they are. Answers are compared as text by
    default (blanks between words do not matter; for a JSON number, as numbers); with ``comparison``
    "math", as mathematics, where words and names stay text; with "algebra", so that letters are
    variables: ``AB`` is ``BA``. There is one level. Seeds 0 to n-1 draw each of n records once, in
    random order; so do the next n. With ``faults``, those of the file's lines are added to it and
    not raised (:func:`read_records`). Unless they are ``answered``, records need no answer: a judge
    (:mod:`sterling.language.worlds.judged_questions`) judges the responses.
    """

    levels = range(1)

    def __init__(
        self,
        path: Path,
        comparison: str = "",
        faults: list[str] | None = None,
        *,
        fields: tuple[str, ...] = ("prompt", "answer"),
    ):
        comparison = comparison or "text"
        if comparison not in COMPARISONS:
            detail = did_you_mean(comparison, COMPARISONS, f"write {path.name} or {path.name}:math")
            raise Mistake(f"answers cannot be compared as {comparison!r}{detail}")
        if comparison != "text":
            from sterling.language.adapters import math_answers

            math_answers.require_package()
        self.name = str(path) if comparison == "text" else f"{path}:{comparison}"
        self.comparison = comparison
        self.records = []
        for number, record in enumerate(read_records(path, fields, faults), start=1):
            if fault := _record_fault(record, answered="answer" in fields):
                report_fault(f"{path.name}, record {number}: {fault}", faults)
            else:
                self.records.append(record)

    def count(self, level: int) -> int:
        """Return the number of records."""
        check_level(self.name, self.levels, level)
        return len(self.records)

    def sample(self, seed: int, level: int) -> Task:
        """Return the record that this seed draws, as a task."""
        check_level(self.name, self.levels, level)
        record = self._record(seed)
        system = record.get("system", "")
        return Task(self.name, seed, level, _prompt_of(record), record.get("answer"), system)

    def record(self, task: Task) -> dict[str, Any]:
        """Return a task's record as it is in the file."""
        return self._record(task.seed)

    def columns(self, task: Task) -> dict[str, Any]:
        """Return the columns of a task's record besides its prompt."""
        record = self._record(task.seed)
        return {name: value for name, value in record.items() if name != "prompt"}

    def _record(self, seed: int) -> dict[str, Any]:
        return self.records[shuffled_index(seed, len(self.records))]

    def judges(self, task: Task) -> bool:
        """Whether a task has an answer to compare with: a text or a number."""
        return isinstance(task.answer, str | int | float) and not isinstance(task.answer, bool)

    def verify(self, task: Task, response: str) -> Verdict:
        """Compare the final answers."""
        answer = final_answer(response)
        if not answer:
            return NO_ANSWER
        truth = final_answer(check_text(task.answer, "answer", self.name))
        if self.comparison != "text":
            from sterling.language.adapters.math_answers import compare_answers

            return compare_answers(answer, truth, task.prompt, self.comparison == "algebra")
        is_number = isinstance(self._record(task.seed)["answer"], NumberText | int | float)
        right = is_number and _is_same_number(answer, truth)
        return RIGHT if right or answer.split() == truth.split() else WRONG

    def solve(self, task: Task) -> str:
        """Return the answer as it is in the file; Mistake if it has none."""
        if task.answer is None:
            raise Mistake(f"{self.name} has questions without an answer to imitate; add 'answer'")
        return str(task.answer)


def _prompt_of(record: dict[str, Any]) -> str:
    """Return a record's prompt, or what stands for it: the record without its answer, as JSON."""
    named = [each for name in ("prompt", "question") if isinstance(each := record.get(name), str)]
    if named:
        return named[0]
    return json.dumps(
        {name: x for name, x in record.items() if name != "answer"}, ensure_ascii=False
    )


def _record_fault(record: dict[str, Any], *, answered: bool) -> str:
    """Return what is wrong with a task's record, "" if nothing is."""
    if answered and not final_answer(record["answer"]):
        mark = "write the answer after ####, or in \\boxed{}"
        return f"its 'answer' is empty after the mark; {mark}"
    return "" if isinstance(record.get("system", ""), str) else "'system' must be a text"


def _is_same_number(answer: str, truth: str) -> bool:
    """Whether two plain numbers are equal, however they are written."""
    if not (_NUMBER.fullmatch(answer) and _NUMBER.fullmatch(truth)):
        return False
    return Fraction(answer.rstrip(".")) == Fraction(truth)
