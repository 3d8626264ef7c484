"""Ask a verifier again whose service is away (system/away_errors.py), until it answers."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from sterling.language.adapters.answer_worker import AWAY, WorkerFault
from sterling.language.time_limits import pause_time_limit
from sterling.system.terminal_messages import print_notice

FIRST_WAIT, LONGEST_WAIT = 1.0, 60.0  # seconds between two attempts; doubled after each
MOST_WAIT = 3_600.0  # seconds after which the answer itself is taken for the cause
LEAVING = "a second Ctrl-C ends the run, which resumes from its last checkpoint"


def ask_until_answered(ask: Callable[[], Any], who: str) -> Any:
    """Return the answer of ``ask()``; while it raises a fault of the kind "away", ask again. Lines
    say that ``who`` is away, and that it is back. Other faults pass through, and this one after
    ``MOST_WAIT`` seconds."""
    wait, waited = FIRST_WAIT, 0.0
    with pause_time_limit():
        while True:
            try:
                answer = ask()
            except WorkerFault as fault:
                if fault.kind != AWAY or waited >= MOST_WAIT:
                    raise
                if not waited:
                    print_notice(
                        f"{who} is away ({fault.detail}): it is asked again until it answers; "
                        f"{LEAVING}"
                    )
                time.sleep(wait)
                wait, waited = min(2.0 * wait, LONGEST_WAIT), waited + wait
                continue
            if waited:
                print_notice(f"{who} answers again, after {waited:.0f} s")
            return answer
