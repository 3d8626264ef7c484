"""What a check finds, and how one is run whatever the user's code does."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from sterling.algorithms.strict_algorithm import PROMOTION, PROMOTION_REMEDY
from sterling.lookup.user_imports import describe_error
from sterling.training.runtime.signals import EXIT_RESUMABLE

HOLDS, FAILS, NOT_CHECKED = "holds", "fails", "not checked"
LEFT_OUT = "left out by --quick"


@dataclass(frozen=True)
class Finding:
    """One line of a review."""

    what: str  # what was checked, such as "learn ignores masked rows"
    verdict: str  # HOLDS, FAILS, NOT_CHECKED or LEFT_OUT
    said: str = ""  # what was observed
    remedy: str = ""  # what to do about it
    where: str = ""  # file:line of the checked code, if known

    @property
    def failed(self) -> bool:
        """Whether the check failed."""
        return self.verdict == FAILS


class CheckFailed(Exception):
    """Raised by a check that fails: what was observed, and what to do."""

    def __init__(self, said: str, remedy: str = ""):
        super().__init__(said)
        self.said, self.remedy = said, remedy


class NotChecked(Exception):
    """Raised by a check that cannot be made, with the reason."""

    verdict = NOT_CHECKED


class LeftOut(NotChecked):
    """Raised by a check that --quick leaves out on purpose."""

    verdict = LEFT_OUT


# what is checked, the check, and the code that it checks
Check = tuple[str, Callable[[], str | None], Any]


def run_checks(checks: Iterator[Check]) -> Iterator[Finding]:
    """Run the checks and yield a finding for each as soon as it is made.

    A check returns what it observed, or raises :class:`CheckFailed`, :class:`NotChecked`, or
    whatever the user's code raises.
    """
    for what, check, code in checks:
        yield _run_check(what, check, code)


def section_checks(section: str, prepare: Callable[[], Iterator[Check]]) -> Iterator[Check]:
    """Yield the checks of a ``section``. If preparing one raises, the last is a check that fails
    with the error: those after it cannot be made, those of other sections can."""
    try:
        yield from prepare()
    except (Exception, SystemExit) as error:
        yield section, partial(fail_section, error), None


def fail_section(error: BaseException) -> str:
    """Raise :class:`CheckFailed`: an ``error`` kept the checks of a section from being made."""
    raise CheckFailed(
        f"it raises {describe_error(error)}", "the other checks of this kind were not made"
    )


def _run_check(what: str, check: Callable[[], str | None], code: Any) -> Finding:
    try:
        return Finding(what, HOLDS, check() or "")
    except NotChecked as reason:
        return Finding(what, reason.verdict, str(reason))
    except CheckFailed as wrong:
        return Finding(what, FAILS, wrong.said, wrong.remedy, code_location(code))
    except SystemExit as error:
        if error.code == EXIT_RESUMABLE:  # a training run that Ctrl-C stopped
            raise
        return Finding(what, FAILS, f"it raises {describe_error(error)}", "", code_location(code))
    except Exception as error:  # from the user's code, or from ours on its results
        remedy = PROMOTION_REMEDY if PROMOTION in str(error) else ""
        said = f"it raises {describe_error(error)}"
        return Finding(what, FAILS, said, remedy, code_location(code))


def not_checked(why: str) -> str:
    """Raise :class:`NotChecked`; with ``partial``, a check that cannot be made for a reason."""
    raise NotChecked(why)


def leave_out(why: str = LEFT_OUT) -> str:
    """Raise :class:`LeftOut`: --quick leaves a check out."""
    raise LeftOut(why)


def code_location(code: Any) -> str:
    """Return ``file:line`` of a function or class; "" if its source is unknown."""
    try:
        code = inspect.unwrap(code)
        file, (_, line) = inspect.getsourcefile(code), inspect.getsourcelines(code)
    except (TypeError, OSError):
        return ""
    return f"{Path(file).name}:{line}" if file else ""
