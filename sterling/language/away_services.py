"""Ask a verifier or tool again whose service is away (system/away_errors.py), until it answers."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from sterling.language.adapters.answer_worker import AWAY, WorkerFault
from sterling.language.time_limits import pause_time_limit, remaining_time
from sterling.lookup.user_imports import describe_error
from sterling.system.away_errors import is_away
from sterling.system.terminal_messages import print_notice

FIRST_WAIT, LONGEST_WAIT = 1.0, 60.0  # seconds between two attempts; doubled after each
MOST_WAIT = 3_600.0  # seconds after which the answer itself is taken for the cause
LEAVING = "a second Ctrl-C ends the run, which resumes from its last checkpoint"


def ask_until_answered(ask: Callable[[], Any], who: str) -> Any:
    """Return the answer of ``ask()``; while it raises that a service is away, ask again. Lines say
    that ``who`` is away, and that it is back. Other errors pass through, and this one after
    ``MOST_WAIT`` seconds. Waits and failed attempts use up nothing of a time limit around it."""
    wait, waited = FIRST_WAIT, 0.0
    while True:
        left = remaining_time()
        try:
            answer = ask()
        except Exception as error:
            reason = away_reason(error)
            if not reason or waited >= MOST_WAIT:
                raise
            with pause_time_limit(left):
                if not waited:
                    print_notice(
                        f"{who} is away ({reason}): it is asked again until it answers; {LEAVING}"
                    )
                time.sleep(wait)
            wait, waited = min(2.0 * wait, LONGEST_WAIT), waited + wait
            continue
        if waited:
            print_notice(f"{who} answers again, after {waited:.0f} s")
        return answer


def away_reason(error: Exception) -> str:
    """Return what an error says of a service that is away; "" for other errors."""
    if isinstance(error, WorkerFault):
        return error.detail if error.kind == AWAY else ""
    return describe_error(error) if is_away(error) else ""
