"""Read a study from its files, and check values that may have been edited or damaged."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from sterling.report.live.metric_sinks import read_metrics
from sterling.statistics import Headline
from sterling.system.shown_values import short_text, shown_value
from sterling.training.saving import run_folder
from sterling.types import Mistake

NUMBER_TYPES = (int, float)
NUMBER_OR_NULL = (int, float, type(None))
ESTIMATE_FORM: dict[str, Any] = {}  # an object
STUDY_FORM: dict[str, Any] = {  # the fields of study.json
    **{"algorithm": str, "search": str, "objective": str, "environment": str},
    **{"steps": int, "trials": int, "key": int, "custom_environment": bool},
    **{"seeds": [int], "test_seeds": [int], "space": [str]},
    **{"how": dict, "known": dict, "fixed": dict},
}
LATER_STUDY_FORM: dict[str, Any] = {  # fields that older studies lack
    **{"updates": int, "parallel": (int, type(None))},
    **{"data": (dict, type(None)), "speech": (dict, type(None))},
    **{"custom_algorithm": bool, "code": dict, "metric": str},
}
JOB_FORM: dict[str, Any] = {  # of trials.jsonl and test.jsonl
    **{"id": int, "trial": int, "start": int, "stop": int, "origin": (int, type(None))},
    **{"seeds": [int], "failed": [int], "fields": dict, "at": NUMBER_TYPES, "cost": dict},
    **{"returns": [[NUMBER_OR_NULL]], "measured": [NUMBER_OR_NULL], "scores": [NUMBER_OR_NULL]},
}
REPORT_FORM: dict[str, Any] = {  # the fields of report.json that are shown
    "incumbent": {
        "trial": int,
        "fields": dict,
        "tuning": {"score": NUMBER_TYPES},
        "test": ESTIMATE_FORM,
    },
    "defaults": {"test": ESTIMATE_FORM},
    "difference": ESTIMATE_FORM,
    "budget": dict,
    "test_seeds": [int],
    "command": str,
}
TYPE_TEXTS: dict[type, str] = {
    **{str: "text", bool: "true or false", int: "a whole number", float: "a number"},
    **{dict: "an object", type(None): "null"},
}
EDIT_ERRORS = (TypeError, ValueError, KeyError, AttributeError, IndexError, ArithmeticError)


def read_study(path: Path) -> dict[str, Any]:
    """Read the arguments of the study in the folder ``path``.

    Raises :class:`Mistake` that names the field where study.json is not as it was written.
    """
    file = path / "study.json"
    arguments = run_folder.read_json(file)
    with name_file_in_mistakes(file):
        _check_form(arguments, STUDY_FORM, "the study")
        _check_form(
            arguments,
            {name: form for name, form in LATER_STUDY_FORM.items() if name in arguments},
            "the study",
        )
        return dict(arguments)


def read_report(path: Path) -> dict[str, Any]:
    """Read a finished study's report; raises :class:`Mistake` where the file is incomplete."""
    file = path / "report.json"
    report = run_folder.read_json(file)
    with name_file_in_mistakes(file):
        _check_form(report, REPORT_FORM, "the report")
        for each in (report["incumbent"]["test"], report["defaults"]["test"], report["difference"]):
            str(Headline.from_json(each))  # raises where a value is not an estimate
        unit = report.get("unit", "steps")
        spent = dict.fromkeys(("trials", unit, f"test_{unit}", "search_wall_seconds"), NUMBER_TYPES)
        _check_form(report["budget"], spent, "budget")
        return dict(report)


def read_lines(path: Path) -> list[dict[str, Any]]:
    """Read the jobs of a history.

    Raises :class:`Mistake` that names the line where one is not as it was written.
    """
    lines = read_metrics(path)
    for number, line in enumerate(lines, 1):
        with name_file_in_mistakes(Path(f"{path}, line {number}")):
            _check_form(line, JOB_FORM, "a job")
            unit = "updates" if "updates" in line["cost"] else "steps"
            _check_form(line["cost"], {unit: NUMBER_TYPES, "seconds": NUMBER_TYPES}, "cost")
            for name in ("returns", "measured", "scores"):
                if len(line[name]) != len(line["seeds"]):
                    raise Mistake(
                        f"{name} must hold a value for each of {len(line['seeds'])} seeds"
                    )
    return lines


@contextlib.contextmanager
def name_file_in_mistakes(file: Path, undo: str = "; undo what was edited there") -> Iterator[None]:
    """Context manager that adds the file's name to a :class:`Mistake`.

    Other errors that an edited value causes become one, too. ``undo`` is the advice at its end.
    """
    try:
        yield
    except Mistake as error:
        raise Mistake(f"{file}: {error}{undo}") from error
    except EDIT_ERRORS as error:
        why = short_text(f"{type(error).__name__}: {error}")
        raise Mistake(f"{file}: a value cannot be used ({why}); undo what was edited") from error


def _check_form(value: Any, form: Any, name: str) -> None:
    """Raise :class:`Mistake` where ``value`` does not have the form.

    A form is a type or several, a list of one form, or an object with a form for each of some
    names.
    """
    if isinstance(form, dict):
        _check_form(value, dict, name)
        for key, inner in form.items():
            if key not in value:
                raise Mistake(f"{name} lacks {key}")
            _check_form(value[key], inner, key)
    elif isinstance(form, list):
        if not isinstance(value, list):
            raise Mistake(f"{name} must be a list; got {shown_value(value)}")
        for each in value:
            _check_form(each, form[0], name)
    else:
        kinds: Sequence[type] = form if isinstance(form, tuple) else (form,)
        truth = isinstance(value, bool) and bool not in kinds
        if truth or not isinstance(value, tuple(kinds)):
            wanted = " or ".join(TYPE_TEXTS[kind] for kind in kinds)
            raise Mistake(f"{name} must be {wanted}; got {shown_value(value)}")
