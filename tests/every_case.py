"""One test of many small cases, such as all files: it names every case that fails."""

import functools
import inspect
import traceback
from collections.abc import Callable, Iterable
from typing import Any

import pytest


def every(names: str, cases: Iterable[Any], label: Callable[[Any], str] = str) -> Callable:
    """Make a test of one case into one test of all ``cases``.

    It stands where ``pytest.mark.parametrize`` would stand, for cases that take so little time that
    a test for each costs more than the case. ``names`` are the parameters that a case has values
    for, with commas between them; ``label`` returns what a failed case is called.
    """
    parameters, rows = [name.strip() for name in names.split(",")], list(cases)

    def of_all(check: Callable) -> Callable:
        @functools.wraps(check)
        def test(**fixtures: Any) -> None:
            assert rows, "there are no cases"
            failed = {}
            for row in rows:
                values = [row] if len(parameters) == 1 else row
                try:
                    check(**dict(zip(parameters, values, strict=True)), **fixtures)
                except (
                    Exception,
                    SystemExit,
                    pytest.fail.Exception,
                    pytest.skip.Exception,
                ) as wrong:
                    failed[label(row)] = wrong
            if failed:
                told = "\n".join(f"{name}: {fault(wrong)}" for name, wrong in failed.items())
                first = next(iter(failed.values()))
                raise AssertionError(f"{len(failed)} of {len(rows)} fail\n{told}") from first

        own = inspect.signature(check)
        fixtures = [each for name, each in own.parameters.items() if name not in parameters]
        test.__signature__ = own.replace(parameters=fixtures)  # pytest reads the fixtures' names
        return test

    return of_all


def fault(wrong: BaseException) -> str:
    """Return what failed, with its line."""
    frames = traceback.extract_tb(wrong.__traceback__)[:2]  # this file's, then the check's
    return f"{type(wrong).__name__} in line {frames[-1].lineno}: {wrong}".replace("\n", "\n    ")
