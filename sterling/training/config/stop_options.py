"""Parse the settings that stop a run early or keep its best policy: stop_at, patience, time_budget,
keep. See docs/steering.md.
"""

from __future__ import annotations

import math
import re
from typing import Any

from sterling.system.shown_values import shown_value
from sterling.training.fields.config_fields import whole_number
from sterling.types import Mistake

STOP_OPTIONS = ("stop_at", "patience", "time_budget")
NO_STOP: dict[str, Any] = {"stop_at": None, "patience": 0, "time_budget": 0.0}
TIME_FORM = re.compile(r"(?:([\d.]+)h)?(?:([\d.]+)m(?:in)?)?(?:([\d.]+)s)?")
TIME_EXAMPLE = "Give minutes, or text such as '1h30m', '45m' or '90s'."


def parse_stop_options(given: dict[str, Any]) -> dict[str, Any]:
    """Return the checked options among ``given``: numbers as they are stored. None and "off" stand
    for an option that is not set."""
    found = {name: value for name, value in given.items() if name in STOP_OPTIONS}
    for name, value in found.items():
        if value is None or value == "off":
            found[name] = NO_STOP[name]
        elif name == "stop_at":
            found[name] = _finite_number(value)
        elif name == "patience":
            found[name] = whole_number("patience (evaluations without improvement)", value)
        else:
            found[name] = parse_minutes(value)
    return found


def parse_keep(word: Any) -> str:
    """Return which policy is kept beside the last one: "best", or "" for none."""
    if word not in (None, "", "last", "best"):
        raise Mistake(
            f"Unknown keep={shown_value(word)}. Use keep='best' (--keep best), or leave it out."
        )
    return "best" if word == "best" else ""


def parse_minutes(value: Any) -> float:
    """Return a time in minutes, from a number of minutes or text such as "1h30m" or "90s"."""
    text = str(value).strip().replace("_", "")
    found = TIME_FORM.fullmatch(text)
    try:
        if isinstance(value, bool):
            raise ValueError
        if found and text:
            hours, minutes, seconds = (float(part or 0) for part in found.groups())
            minutes = 60 * hours + minutes + seconds / 60
        else:
            minutes = float(text)
    except ValueError:
        raise Mistake(f"Cannot parse time_budget={shown_value(value)}. {TIME_EXAMPLE}") from None
    if not 0 <= minutes < math.inf:
        raise Mistake(f"time_budget must be finite and at least 0; got {shown_value(value)}")
    return minutes


def _finite_number(value: Any) -> float:
    good = isinstance(value, (int, float)) and not isinstance(value, bool)
    if not good or not math.isfinite(value):
        raise Mistake(f"stop_at must be a finite return; got {shown_value(value)}")
    return float(value)
