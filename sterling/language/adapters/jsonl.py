"""Files of JSON lines: one strict reader, and tasks made of them."""

from __future__ import annotations

import difflib
import json
from collections import Counter
from pathlib import Path
from typing import Any

from sterling.language.posing import shuffled
from sterling.language.task import (
    NOTHING,
    RIGHT,
    WRONG,
    Task,
    Verdict,
    check_level,
    final_answer,
)
from sterling.naming import hint
from sterling.types import Mistake

EXAMPLE = {"prompt": "1+1=", "answer": "2", "response": "2", "chosen": "2", "rejected": "3"}
COMPARISONS = ("text", "math")


def records(path: str | Path, fields: tuple[str, ...]) -> list[dict[str, Any]]:
    """The objects of a JSON-lines file (UTF-8), in order; empty lines are passed over.

    Each of ``fields`` must be there in every line and hold a text that is not empty; of a field
    named ``answer`` a number is taken as its text. Other fields are kept as they are. Examples:
    ``("prompt", "answer")`` for tasks, ``("prompt", "response")`` for demonstrations,
    ``("prompt", "chosen", "rejected")`` for preferences.

    Raises Mistake with the file's name, the line's number and a remedy: for a file that cannot be
    read or holds nothing, a line that is no JSON object, a field that is missing, of another
    type, or there twice.
    """
    path = Path(path)
    found = []
    for number, line in enumerate(_lines(path), start=1):
        if line.strip():
            found.append(_record(line, fields, f"{path.name}, line {number}"))
    if not found:
        raise Mistake(f"{path.name} holds no records; {_form(fields)}")
    return found


def _form(fields: tuple[str, ...]) -> str:
    line = json.dumps({field: EXAMPLE.get(field, "...") for field in fields})
    return f"write one JSON object in each line, such as {line}"


def _lines(path: Path) -> list[str]:
    try:
        text = path.read_bytes()
    except OSError as error:
        near = sorted(each.name for each in path.parent.glob("*.jsonl"))
        said = hint(path.name, near, "give the path of a JSON-lines file")
        raise Mistake(f"{path} cannot be read ({error.strerror}){said}") from error
    lines = []
    for number, line in enumerate(text.removeprefix(b"\xef\xbb\xbf").split(b"\n"), start=1):
        try:
            lines.append(line.decode())
        except UnicodeDecodeError as error:
            said = f"{path.name}, line {number} is not UTF-8; save the file as UTF-8"
            raise Mistake(said) from error
    return lines


def _record(line: str, fields: tuple[str, ...], place: str) -> dict[str, Any]:
    try:
        record = json.loads(line, object_pairs_hook=_Pairs, parse_constant=_constant)
    except (ValueError, RecursionError) as error:
        said = getattr(error, "msg", None) or str(error)
        raise Mistake(f"{place} is no JSON ({said}); {_form(fields)}") from error
    if not isinstance(record, _Pairs):
        raise Mistake(f"{place} is no JSON object; {_form(fields)}")
    if record.twice is not None:
        raise Mistake(f"{place} has {record.twice!r} twice; keep one of them")
    for field in fields:
        if field not in record:
            said = _near(field, record)
            raise Mistake(f"{place} has no {field!r}{said}; needed are {', '.join(fields)}")
        value = record[field]
        if field == "answer" and isinstance(value, int | float) and not isinstance(value, bool):
            record[field] = value = str(value)
        if not isinstance(value, str) or not value.strip():
            raise Mistake(f"{place}: {field!r} is {_said(value)}; it must be a text, not empty")
    return dict(record)


class _Pairs(dict[str, Any]):
    """A JSON object that knows of a key given twice."""

    def __init__(self, pairs: list[tuple[str, Any]]):
        super().__init__(pairs)
        counts = Counter(key for key, _ in pairs)
        self.twice = next((key for key, count in counts.items() if count > 1), None)


def _constant(name: str) -> Any:
    raise ValueError(f"{name} is no number")


def _near(field: str, record: dict[str, Any]) -> str:
    near = difflib.get_close_matches(field, record, 1, 0.6)
    return f" (but {near[0]!r})" if near else ""


def _said(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) <= 30 else f"{text[:27]}..."


class JsonlTasks:
    """Prompts with answers from a file: ``{"prompt": ..., "answer": ...}``, and ``system`` if
    there is a system message.

    The answer form is that of :func:`sterling.language.task.final_answer`, in the file as well,
    so that files whose answers end in ``#### 42`` work as they are. Compared as text by default
    (blanks between words do not matter); with ``comparison`` "math" as mathematics. One level.
    Seeds 0 to n-1 draw each of n records once, in an order of their own; so do the next n.
    """

    levels = range(1)

    def __init__(self, path: Path, comparison: str = ""):
        comparison = comparison or "text"
        if comparison not in COMPARISONS:
            said = hint(comparison, COMPARISONS, f"write {path.name} or {path.name}:math")
            raise Mistake(f"answers are not compared as {comparison!r}{said}")
        if comparison == "math":
            from sterling.language.adapters import math

            math.package()
        self.name = str(path) if comparison == "text" else f"{path}:{comparison}"
        self.comparison = comparison
        self.records = records(path, ("prompt", "answer"))
        for number, record in enumerate(self.records, start=1):
            if not final_answer(record["answer"]):
                said = f"{path.name}, record {number}: nothing follows the mark in its 'answer'"
                raise Mistake(f"{said}; write the answer after ####, or in \\boxed{{}}")
            if not isinstance(record.get("system", ""), str):
                raise Mistake(f"{path.name}, record {number}: 'system' must be a text")

    def count(self, level: int) -> int:
        """How many records there are."""
        check_level(self.name, self.levels, level)
        return len(self.records)

    def sample(self, seed: int, level: int) -> Task:
        """The record that this seed draws."""
        check_level(self.name, self.levels, level)
        record = self.records[shuffled(seed, len(self.records))]
        system = record.get("system", "")
        return Task(self.name, seed, level, record["prompt"], record["answer"], system)

    def verify(self, task: Task, response: str) -> Verdict:
        """Compare the final answers."""
        answer = final_answer(response)
        if not answer:
            return NOTHING
        truth = final_answer(task.answer)
        if self.comparison == "math":
            from sterling.language.adapters.math import equivalent

            return equivalent(answer, truth, task.prompt)
        return RIGHT if answer.split() == truth.split() else WRONG

    def solve(self, task: Task) -> str:
        """The answer as the file has it."""
        return str(task.answer)
