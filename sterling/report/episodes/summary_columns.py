"""The world's summaries as columns of an evaluation: one number for each seed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from jaxtyping import Float

from sterling.lookup.user_imports import describe_error
from sterling.problem.episode_summaries import Summary
from sterling.system.shown_values import shown_value
from sterling.system.terminal_messages import print_notice
from sterling.types import Mistake


def summary_columns(
    found: Mapping[str, np.ndarray], summaries: Mapping[str, Summary], seeds: tuple[int, ...]
) -> dict[str, Float[np.ndarray, "seed 1"]]:
    """Return each summary of the columns ``found``, ``(seed, episode)``.

    A seed whose summary raises, or returns no finite number, has NaN; a line on standard error
    says so once for each summary.
    """
    return {name: _column(name, summary, found, seeds) for name, summary in summaries.items()}


def _column(
    name: str, summary: Summary, found: Mapping[str, np.ndarray], seeds: tuple[int, ...]
) -> Float[np.ndarray, "seed 1"]:
    values, reasons = np.full((len(seeds), 1), np.nan), {}
    for at, seed in enumerate(seeds):
        try:
            value = summary.of(_Columns({each: _own_copy(x[at]) for each, x in found.items()}))
        except Mistake as error:
            reasons[seed] = str(error)
            continue
        except Exception as error:  # of the user's function: one line, and the run goes on
            reasons[seed] = f"it raises {describe_error(error)}"
            continue
        if _is_finite_number(value):
            values[at] = float(value)
        else:
            reasons[seed] = f"it returned {shown_value(value)}, which is no finite number"
    if reasons:
        those, why = ", ".join(map(str, reasons)), next(iter(reasons.values()))
        print_notice(f"summary {name!r} has no value for seed {those}: {why}")
    return values


class _Columns(dict[str, np.ndarray]):
    """Columns by name; another name raises Mistake."""

    def __missing__(self, name: str) -> np.ndarray:
        raise Mistake(f"episodes have no column {name!r}; they have {', '.join(self)}")


def _own_copy(column: np.ndarray) -> np.ndarray:
    """Return a column that a user's function may change, with numbers in double precision."""
    return column.astype(np.float64 if column.dtype.kind == "f" else column.dtype)


def _is_finite_number(value: Any) -> bool:
    number = np.asarray(value)
    return number.shape == () and number.dtype.kind in "iuf" and bool(np.isfinite(number))
