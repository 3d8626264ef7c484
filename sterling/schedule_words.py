"""Schedules as words, which the command line takes and config.json holds.

    constant:A                    A throughout
    linear:A:B                    from A to B in a straight line
    cosine:A:B                    from A to B along half a cosine wave
    exponential:A:B               from A to B by a constant factor per step
    KIND:A:B:END                  the same, but B is reached at the share END of the run (0.8)
    warmup:SHARE:A                rise in a straight line from 0 to A over SHARE of the run, then A
    warmup:SHARE+KIND:A:B         the same rise, then the rest of the run follows the schedule
    FILE.csv                      rows of progress (or step, or update) and value, joined by lines
    piecewise:0=A,0.5=B,1=C       the same as words; also piecewise:steps:0=A,20000=B
    FILE.py:FUNCTION              your own function of the progress

A run's progress is 0 in the first iteration and would be 1 after the last one.
"""

from __future__ import annotations

import csv
import dataclasses
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from sterling.lookup import user_imports
from sterling.lookup.name_suggestions import did_you_mean
from sterling.schedules import (
    CURVES,
    KINDS,
    UNITS,
    Function,
    Schedule,
    check_numbers,
    constant,
    piecewise,
    warmup,
)
from sterling.system.mistake import Mistake
from sterling.system.shown_values import shown_value

COLUMNS = {"progress": "progress", "step": "steps", "update": "updates"}  # of a file
REMEDY = "put it into a file and name that, as my_schedules.py:FUNCTION (docs/schedules.md)"
FORMS = "constant:A, linear:A:B, cosine:A:B, exponential:A:B, warmup:SHARE:A or FILE.csv"


@dataclasses.dataclass(frozen=True)
class FileFunction:
    """A schedule that is a user's function, named by the reference ``FILE.py:FUNCTION``."""

    reference: str

    def __call__(self, progress: Any) -> Any:
        """Return the function's value at ``progress``."""
        return user_imports.load(self.reference)(progress)

    def __str__(self) -> str:
        return self.reference


@dataclasses.dataclass(frozen=True)
class LostFunction:
    """A schedule of a stored run whose function was not stored; all its values are NaN."""

    name: str

    def __call__(self, progress: Any) -> Any:
        """Return NaN: the run can be loaded, and its agents hold their last values."""
        return progress * math.nan


def parse(words: str) -> Schedule | FileFunction:
    """Return the schedule that the words describe (see the top of this file).

    Raise :class:`Mistake` for other words, for numbers that a schedule cannot have, and for a file
    that cannot be read.
    """
    if words.endswith(".csv"):
        return read_csv(words)
    kind, colon, rest = words.partition(":")
    if colon and kind not in KINDS and user_imports.is_reference(words):
        return _file_function(words)
    rise, plus, after = words.partition("+")
    if plus and kind == "warmup":
        _, *numbers = rise.split(":")
        then = parse(after)
        if len(numbers) != 1 or not isinstance(then, Schedule):
            raise Mistake(f"{words!r}: write warmup:SHARE+KIND:A:B, as warmup:0.05+cosine:3e-4:0")
        return warmup(_number(numbers[0], words), then)
    if kind not in KINDS or not colon:
        near = did_you_mean(kind, KINDS, f"write {FORMS}") if colon else f"; write {FORMS}"
        raise Mistake(f"{words!r} is neither a number nor a schedule{near}")
    if kind == "piecewise":
        return _parse_points(rest, words)
    return _parse_numbers(kind, [_number(each, words) for each in rest.split(":")], words)


def names_file(words: str) -> bool:
    """Whether the words of a schedule are a CSV file, or a function of a Python file."""
    return words.endswith(".csv") or words.rpartition(":")[0].endswith(user_imports.PYTHON_SUFFIX)


def read_csv(path: str | Path) -> Schedule:
    """Return the piecewise schedule of a CSV file. Its first row names two columns: ``progress``,
    ``step`` or ``update``, and ``value``. Raise :class:`Mistake` if it cannot be read."""
    try:
        text = Path(path).read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise Mistake(f"the schedule {path} cannot be read: {error}") from error
    header, *rows = [row for row in csv.reader(text.splitlines()) if row] or [[]]
    names = [name.strip() for name in header]
    if len(names) != 2 or names[0] not in COLUMNS or names[1] != "value":
        first = "progress,value (or step,value; or update,value)"
        raise Mistake(f"{path}: the first row must be {first}; got {','.join(header)!r}")
    if wrong := [row for row in rows if len(row) != 2]:
        raise Mistake(f"{path}: each row must have two numbers; got {','.join(wrong[0])!r}")
    points = [tuple(_number(each, str(path)) for each in row) for row in rows]
    return piecewise(points, COLUMNS[names[0]])  # type: ignore[arg-type]


def describe(schedule: Function) -> str | dict[str, str]:
    """Return how config.json holds a schedule: its words; for a function that cannot be stored an
    object with its name."""
    if isinstance(schedule, (Schedule, FileFunction)):
        return str(schedule)
    if isinstance(schedule, LostFunction):
        return {"not stored": schedule.name}
    return {"not stored": getattr(schedule, "__qualname__", type(schedule).__name__)}


def from_stored(plain: Any) -> Function:
    """Return the schedule that :func:`describe` wrote; :class:`Mistake` for anything else."""
    if isinstance(plain, str):
        return parse(plain)
    if isinstance(plain, dict) and isinstance(plain.get("not stored"), str):
        return LostFunction(plain["not stored"])
    raise Mistake(f"a schedule must be words, as linear:3e-4:0; got {shown_value(plain)}")


def from_value(value: str | Function) -> Function:
    """Return the schedule that words describe, or a function itself. A function of a module or file
    is held by its reference, so that it can be stored."""
    if isinstance(value, str):
        return parse(value)
    if isinstance(value, (Schedule, FileFunction, LostFunction)):
        return value
    reference = user_imports.reference_to(value)
    return FileFunction(reference) if reference else value


def storable_values(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values of fields as JSON can hold them: a schedule that is a file, an object or a
    function as its words. Raise :class:`Mistake` for a function that cannot be imported."""
    return {name: _storable_value(name, value) for name, value in fields.items()}


def _storable_value(name: str, value: Any) -> Any:
    if not callable(value) and not (isinstance(value, str) and names_file(value)):
        return value
    words = describe(from_value(value))
    if not isinstance(words, str):
        raise Mistake(f"the schedule of {name} cannot be imported and stored: {REMEDY}")
    return words


def _file_function(words: str) -> FileFunction:
    made = FileFunction(user_imports.absolute_reference(words))
    if user_imports.source_file(words) is None:
        raise Mistake(f"{words!r}: there is no such file. Write FILE.py:FUNCTION, or {FORMS}")
    return made


def _parse_numbers(kind: str, numbers: Sequence[float], words: str) -> Schedule:
    if kind == "constant" and len(numbers) == 1:
        return constant(numbers[0])
    if kind == "warmup" and len(numbers) == 2:
        return warmup(*numbers)
    if kind in CURVES and len(numbers) in (2, 3):
        first, last, end = (*numbers, 1.0)[:3]
        return check_numbers(Schedule(kind, first, last, end))
    forms = {"constant": "constant:A", "warmup": "warmup:SHARE:A or warmup:SHARE+KIND:A:B"}
    raise Mistake(f"{words!r}: write {forms.get(kind, f'{kind}:A:B or {kind}:A:B:END')}")


def _parse_points(text: str, words: str) -> Schedule:
    unit, colon, rest = text.partition(":")
    if colon and unit not in UNITS:
        raise Mistake(f"{words!r}: places are {', '.join(UNITS)}; got {unit!r}")
    pairs = [each.partition("=") for each in (rest if colon else text).split(",")]
    if not all(equals for _, equals, _ in pairs):
        raise Mistake(f"{words!r}: write piecewise:PLACE=VALUE,... as piecewise:0=3e-4,1=0")
    points = [(_number(place, words), _number(value, words)) for place, _, value in pairs]
    return piecewise(points, unit if colon else "progress")


def _number(text: str, words: str) -> float:
    try:
        found = float(text)
    except ValueError as error:
        raise Mistake(f"{words!r}: {text!r} is not a number") from error
    if not math.isfinite(found):
        raise Mistake(f"{words!r}: {text!r} is not a finite number")
    return found
