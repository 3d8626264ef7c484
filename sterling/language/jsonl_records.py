"""Read files of JSON lines strictly."""

from __future__ import annotations

import difflib
import json
import math
from collections import Counter
from pathlib import Path
from typing import Any

from sterling.language.task import (
    has_half_character,
)
from sterling.lookup.name_suggestions import did_you_mean
from sterling.system.mistake import Mistake
from sterling.system.shown_values import short_text

EXAMPLE_FIELDS = {"prompt": "1+1=", "answer": "2", "response": "2", "chosen": "2", "rejected": "3"}


class NumberText(str):
    """The text of an answer that is a JSON number: ``42.0`` and ``4.2e1`` are ``42``."""


class PromptMessages(str):
    """The text of a prompt that is a list of messages, which ``messages`` holds as they are."""

    messages: list[dict[str, Any]]


def read_records(
    path: str | Path, fields: tuple[str, ...], faults: list[str] | None = None
) -> list[dict[str, Any]]:
    """Read the objects of a JSON-lines file (UTF-8), in order; empty lines are skipped.

    Every line must have each of ``fields``, as a text that is not empty; a number in a field named
    ``answer`` is read as text, and ``question`` is another name of ``prompt``, which may also be a
    list of a user's message, with a system message before it or none. Other fields are kept as they
    are. Example: ``("prompt", "answer")`` for tasks.

    Raises Mistake with the file's name, the line's number and a remedy: for a file that cannot be
    read or holds nothing, a line that is not a JSON object, and a field that is missing, repeated
    or of another type. With ``faults``, those of lines are added to it instead, and the lines left
    out.
    """
    example, found = _example_line(fields), []
    for place, record in read_objects(path, example, faults):
        try:
            if "prompt" in fields and "prompt" not in record and "question" in record:
                record["prompt"] = record["question"]
            if "prompt" in fields and _are_messages(record.get("prompt")):
                record.update(_read_prompt(record["prompt"], place))
            _check_fields(record, fields, place)
            found.append(record)
        except Mistake as error:
            report_fault(str(error), faults)
    return found


def read_objects(
    path: str | Path, example: str, faults: list[str] | None = None
) -> list[tuple[str, dict[str, Any]]]:
    """Return the objects of a JSON-lines file (UTF-8) in order, each with its file and line for
    errors; empty lines are skipped.

    Raises Mistake, or adds to ``faults``, as :func:`read_records` does, without looking at the
    fields; ``example`` says what a line should look like.
    """
    path, found = Path(path), []
    for number, line in enumerate(_read_lines(path), start=1):
        place = f"{path.name}, line {number}"
        try:
            if line.strip():
                found.append((place, _parse_object(line, example, place)))
        except Mistake as error:
            report_fault(str(error), faults)
    if not found and not faults:
        report_fault(f"{path.name} holds no records; {example}", faults)
    return found


def report_fault(said: str, faults: list[str] | None) -> None:
    """Add a fault of a file to the list of them; raise it as a Mistake if there is no list."""
    if faults is None:
        raise Mistake(said)
    faults.append(said)


def _example_line(fields: tuple[str, ...]) -> str:
    line = json.dumps({field: EXAMPLE_FIELDS.get(field, "...") for field in fields})
    return f"write one JSON object in each line, such as {line}"


def _read_lines(path: Path) -> list[str]:
    try:
        text = path.read_bytes()
    except OSError as error:
        near = sorted(each.name for each in path.parent.glob("*.jsonl"))
        detail = did_you_mean(path.name, near, "give the path of a JSON-lines file")
        raise Mistake(f"{path} cannot be read ({error.strerror}){detail}") from error
    lines = []
    for number, line in enumerate(text.removeprefix(b"\xef\xbb\xbf").split(b"\n"), start=1):
        try:
            lines.append(line.decode())
        except UnicodeDecodeError as error:
            detail = f"{path.name}, line {number} is not UTF-8; save the file as UTF-8"
            raise Mistake(detail) from error
    return lines


def _parse_object(line: str, example: str, place: str) -> dict[str, Any]:
    try:
        record = json.loads(line, object_pairs_hook=_JsonObject, parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:
        detail = getattr(error, "msg", None) or str(error)
        raise Mistake(f"{place} is not JSON ({detail}); {example}") from error
    if not isinstance(record, _JsonObject):
        raise Mistake(f"{place} is not a JSON object; {example}")
    if record.twice is not None:
        raise Mistake(f"{place} has {record.twice!r} twice; keep one of them")
    return dict(record)


def _check_fields(record: dict[str, Any], fields: tuple[str, ...], place: str) -> None:
    """Check the texts of a record, and write a number in ``answer`` as text."""
    for field in fields:
        if field not in record:
            detail = _similar_field(field, record)
            remedy = f"each line needs {', '.join(fields)}"
            if not {"messages", "conversations", "chosen"}.isdisjoint(record):
                remedy += (
                    ". Texts to imitate or compare are no questions: give them as --texts FILE"
                )
            raise Mistake(f"{place} has no {field!r}{detail}; {remedy}")
        record[field] = check_text(record[field], field, place)
    for field in (*fields, "system"):
        check_characters(record.get(field, ""), field, place)


def _are_messages(value: Any) -> bool:
    """Whether a field is a list of messages, ``{"role": ..., "content": ...}``."""
    return isinstance(value, list) and all(isinstance(each, dict) for each in value) and value != []


def _read_prompt(messages: list[dict[str, Any]], place: str) -> dict[str, str]:
    """Return the prompt, and the system message if there is one, of a list of messages."""
    roles = [each.get("role") for each in messages]
    if roles not in (["user"], ["system", "user"]):
        raise Mistake(
            f"{place}: 'prompt' has messages of {', '.join(map(str, roles))}; a question is one of "
            "the user, with one of the system before it or none"
        )
    texts = {str(role): check_text(each.get("content"), f"content of {role}", place)
             for role, each in zip(roles, messages, strict=True)}  # fmt: skip
    prompt = PromptMessages(texts.pop("user"))
    prompt.messages = messages
    return {"prompt": prompt, **texts}


def check_text(value: Any, field: str, place: str) -> str:
    """Return a field's text; a number in ``answer`` as text. Mistake for an empty text, and for
    anything else."""
    if field == "answer" and isinstance(value, int | float) and not isinstance(value, bool):
        return _number_text(value, place)
    if not isinstance(value, str) or not value.strip():
        raise Mistake(
            f"{place}: {field!r} is {_shortened_json(value)}; it must be a non-empty text"
        )
    return value


def check_characters(value: Any, field: str, place: str) -> None:
    """Raise Mistake if a text holds half a character; values that are no text have none."""
    if isinstance(value, str) and has_half_character(value):
        raise Mistake(
            f"{place}: {field!r} holds half a character (a lone surrogate, such as \\ud83d). "
            "Write the whole character, or remove it"
        )


def _number_text(value: float, place: str) -> NumberText:
    if not math.isfinite(value):
        raise Mistake(f"{place}: 'answer' is too large for a number; write it as a text")
    whole = isinstance(value, int) or (value.is_integer() and abs(value) < 2**53)
    return NumberText(int(value) if whole else value)


class _JsonObject(dict[str, Any]):
    """A JSON object that remembers a repeated key."""

    def __init__(self, pairs: list[tuple[str, Any]]):
        super().__init__(pairs)
        counts = Counter(key for key, _ in pairs)
        self.twice = next((key for key, count in counts.items() if count > 1), None)


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is not a number")


def _similar_field(field: str, record: dict[str, Any]) -> str:
    near = difflib.get_close_matches(field, record, 1, 0.6)
    return f" (but {near[0]!r})" if near else ""


def _shortened_json(value: Any) -> str:
    return short_text(json.dumps(value))
