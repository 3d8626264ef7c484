"""What a check found, and how one is carried out whatever the user's code does."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sterling.importing import explain

HOLDS, FAILS, UNSEEN = "holds", "fails", "not checked"


@dataclass(frozen=True)
class Finding:
    """One line of a review."""

    what: str  # what was looked at, as "masked rows teach nothing"
    verdict: str  # HOLDS, FAILS or UNSEEN
    said: str = ""  # what was seen
    remedy: str = ""  # what to do about it
    where: str = ""  # file:line of the code in question, where that is known

    @property
    def failed(self) -> bool:
        """Whether something is to be mended."""
        return self.verdict == FAILS


class Wrong(Exception):
    """What a check raises where something does not hold: what was seen, and what to do."""

    def __init__(self, said: str, remedy: str = ""):
        super().__init__(said)
        self.said, self.remedy = said, remedy


class Unseen(Exception):
    """What a check raises where it cannot say anything, with the reason."""


Check = tuple[str, Callable[[], str | None], Any]  # what, the check, and the code in question


def carry_out(checks: Iterator[Check]) -> Iterator[Finding]:
    """Yield a finding for each check, as soon as it is made. A check returns what it has seen, or
    raises :class:`Wrong`, :class:`Unseen`, or whatever the user's code raises."""
    for what, check, code in checks:
        yield _finding(what, check, code)


def _finding(what: str, check: Callable[[], str | None], code: Any) -> Finding:
    try:
        return Finding(what, HOLDS, check() or "")
    except Unseen as reason:
        return Finding(what, UNSEEN, str(reason))
    except Wrong as wrong:
        return Finding(what, FAILS, wrong.said, wrong.remedy, place(code))
    except Exception as error:  # the user's code, or ours on what it has made
        return Finding(what, FAILS, f"it raises {explain(error)}", "", place(code))


def place(code: Any) -> str:
    """Return ``file:line`` of a function or class; "" where its source is not known."""
    try:
        code = inspect.unwrap(code)
        file, (_, line) = inspect.getsourcefile(code), inspect.getsourcelines(code)
    except (TypeError, OSError):
        return ""
    return f"{Path(file).name}:{line}" if file else ""
