"""Read a study back from its files, which somebody may have edited or damaged."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from sterling.report.metrics import read
from sterling.training import folder
from sterling.tuning import outcome
from sterling.types import Mistake

Number = (int, float)
Maybe = (int, float, type(None))
ESTIMATE: dict[str, Any] = {}  # an object
ASKED: dict[str, Any] = {  # what study.json holds
    **{"algorithm": str, "search": str, "objective": str, "environment": str},
    **{"steps": int, "trials": int, "key": int, "custom_environment": bool},
    **{"seeds": [int], "test_seeds": [int], "space": [str]},
    **{"how": dict, "known": dict, "fixed": dict},
}
LATER: dict[str, Any] = {  # and what older studies lack
    **{"updates": int, "parallel": (int, type(None))},
    **{"data": (dict, type(None)), "speech": (dict, type(None))},
    **{"custom_algorithm": bool, "code": dict, "metric": str},
}
LINE: dict[str, Any] = {  # of trials.jsonl and test.jsonl
    **{"id": int, "trial": int, "start": int, "stop": int, "origin": (int, type(None))},
    **{"seeds": [int], "failed": [int], "fields": dict, "at": Number, "cost": dict},
    **{"returns": [[Maybe]], "measured": [Maybe], "scores": [Maybe]},
}
REPORT: dict[str, Any] = {  # what is shown of report.json
    "incumbent": {"trial": int, "fields": dict, "tuning": {"score": Number}, "test": ESTIMATE},
    "defaults": {"test": ESTIMATE},
    "difference": ESTIMATE,
    "budget": dict,
    "test_seeds": [int],
    "command": str,
}
WORDS: dict[type, str] = {
    **{str: "text", bool: "true or false", int: "a whole number", float: "a number"},
    **{dict: "an object", type(None): "null"},
}
EDITED = (TypeError, ValueError, KeyError, AttributeError, IndexError, ArithmeticError)


def read_asked(path: Path) -> dict[str, Any]:
    """What the study in the folder ``path`` was asked for; a :class:`Mistake` that names the field
    where its file does not hold what was written."""
    file = path / "study.json"
    asked = folder.read_json(file)
    with naming(file):
        _check(asked, ASKED, "the study")
        _check(asked, {name: form for name, form in LATER.items() if name in asked}, "the study")
        return dict(asked)


def read_report(path: Path) -> dict[str, Any]:
    """What a finished study came to; a :class:`Mistake` where its file does not say."""
    file = path / "report.json"
    made = folder.read_json(file)
    with naming(file):
        _check(made, REPORT, "the report")
        for each in (made["incumbent"]["test"], made["defaults"]["test"], made["difference"]):
            outcome.shown(each)  # which reads the estimate
        unit = made.get("unit", "steps")
        spent = dict.fromkeys(("trials", unit, f"test_{unit}", "search_wall_seconds"), Number)
        _check(made["budget"], spent, "budget")
        return dict(made)


def read_lines(path: Path) -> list[dict[str, Any]]:
    """The jobs that a history holds; a :class:`Mistake` that names the line where one is not as it
    was written."""
    lines = read(path)
    for number, line in enumerate(lines, 1):
        with naming(Path(f"{path}, line {number}")):
            _check(line, LINE, "a job")
            unit = "updates" if "updates" in line["cost"] else "steps"
            _check(line["cost"], {unit: Number, "seconds": Number}, "cost")
            for name in ("returns", "measured", "scores"):
                if len(line[name]) != len(line["seeds"]):
                    raise Mistake(
                        f"{name} must hold a value for each of {len(line['seeds'])} seeds"
                    )
    return lines


@contextlib.contextmanager
def naming(file: Path, undo: str = "; undo what was edited there") -> Iterator[None]:
    """Name the file in a :class:`Mistake`, and make one of what an edited value leads to; ``undo``
    is what it says to do."""
    try:
        yield
    except Mistake as error:
        raise Mistake(f"{file}: {error}{undo}") from error
    except EDITED as error:
        why = " ".join(f"{type(error).__name__}: {error}".split())[:120]
        raise Mistake(f"{file}: a value cannot be used ({why}); undo what was edited") from error


def _check(value: Any, form: Any, name: str) -> None:
    """Raise :class:`Mistake` where ``value`` has not the form: a type or several, a list of one
    form, or an object with a form for each of some names."""
    if isinstance(form, dict):
        _check(value, dict, name)
        for key, inner in form.items():
            if key not in value:
                raise Mistake(f"{name} lacks {key}")
            _check(value[key], inner, key)
    elif isinstance(form, list):
        if not isinstance(value, list):
            raise Mistake(f"{name} must be a list; got {value!r:.60}")
        for each in value:
            _check(each, form[0], name)
    else:
        kinds: Sequence[type] = form if isinstance(form, tuple) else (form,)
        truth = isinstance(value, bool) and bool not in kinds
        if truth or not isinstance(value, tuple(kinds)):
            wanted = " or ".join(WORDS[kind] for kind in kinds)
            raise Mistake(f"{name} must be {wanted}; got {value!r:.60}")
