"""Turn the cells of a table into numbers: texts, dates, flags, categories and missing entries."""

from __future__ import annotations

import datetime
import warnings
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from jaxtyping import Float

from sterling.types import Mistake

MISSING = frozenset({"", "nan", "na", "n/a", "null", "none", "<na>", "nat"})
FLAGS = {"true": 1.0, "false": 0.0, "yes": 1.0, "no": 0.0, "t": 1.0, "f": 0.0}
MAX_CATEGORIES = 256  # different texts of a column above which it is no category


class NotANumber(ValueError):
    """A cell that is not a number."""

    def __init__(self, row: int, cell: Any):
        super().__init__(f"{cell!r}")
        self.row, self.cell = row, str(cell) if isinstance(cell, str) else cell


def to_numbers(cells: Any) -> Float[np.ndarray, "row *number"]:
    """Return cells as float64, NaN where one is missing; flags as 0 and 1, dates as seconds since
    1970. Raises :class:`NotANumber` for other texts."""
    if isinstance(cells, np.ndarray):
        if cells.dtype.kind in "fiub":
            return cells.astype(np.float64)
        if cells.dtype.kind == "M":
            seconds = cells.astype("datetime64[ns]").astype(np.int64) / 1e9
            return np.where(np.isnat(cells), np.nan, seconds)
        if cells.dtype.kind == "m":
            return cells.astype("timedelta64[ns]").astype(np.int64) / 1e9
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", np.exceptions.ComplexWarning)
            return np.array(cells, np.float64)
    except (ValueError, TypeError, np.exceptions.ComplexWarning):  # missing, flags, texts, complex
        return np.array([_to_number(cell, row) for row, cell in enumerate(cells)], np.float64)


def _to_number(cell: Any, row: int) -> float:
    if isinstance(cell, (complex, np.complexfloating)):
        raise NotANumber(row, cell)
    if not isinstance(cell, str):
        try:
            return float("nan") if cell is None else float(cell)
        except (TypeError, ValueError):
            if is_missing(cell):
                return float("nan")
            if isinstance(cell, datetime.datetime):
                return _seconds(cell)
            raise NotANumber(row, cell) from None
    word = cell.strip()
    try:
        return float(word)
    except ValueError:
        if word.lower() in MISSING:
            return float("nan")
        if word.lower() in FLAGS:
            return FLAGS[word.lower()]
    raise NotANumber(row, word)


def to_times(cells: Any) -> Float[np.ndarray, "row"]:
    """Return times as float64: numbers as they are, dates as seconds since 1970 (UTC where a date
    names no zone), NaN where one is missing. Raises :class:`NotANumber` for other texts."""
    try:
        return to_numbers(cells)
    except NotANumber as wrong:
        _to_time(wrong.cell, wrong.row)  # raises for this one rather than for the numbers before
        return np.array([_to_time(cell, row) for row, cell in enumerate(cells)], np.float64)


def _to_time(cell: Any, row: int) -> float:
    if is_missing(cell):
        return float("nan")
    try:
        return _seconds(datetime.datetime.fromisoformat(str(cell).strip()))
    except ValueError:
        raise NotANumber(row, cell) from None


def _seconds(date: datetime.datetime) -> float:
    zoned = date if date.tzinfo else date.replace(tzinfo=datetime.UTC)
    return zoned.timestamp()


def is_missing(cell: Any) -> bool:
    """Whether a cell holds nothing: None, NaN, pandas' NA or a text that says so."""
    if isinstance(cell, str):
        return cell.strip().lower() in MISSING
    if cell is None or type(cell).__name__ in ("NAType", "NaTType"):
        return True
    return isinstance(cell, (float, np.floating)) and bool(np.isnan(cell))


def to_texts(cells: Any) -> list[str | None]:
    """Return cells as texts, whole numbers without a point; None where one is missing."""
    return [None if is_missing(cell) else cell_text(cell) for cell in cells]


def cell_text(cell: Any) -> str:
    """Return one cell as text: 1.0 as "1", as in a file of whole numbers."""
    if isinstance(cell, str):
        return cell.strip()
    if isinstance(cell, (float, np.floating)) and float(cell).is_integer():
        return str(int(cell))
    return str(cell)


class Categories:
    """Number the texts of a column in the order in which they appear, or as ``order`` says."""

    def __init__(self, column: str, order: Sequence[str] = ()):
        self.column, self.fixed = column, bool(order)
        self._codes = {text: code for code, text in enumerate(order)}

    def encode(self, texts: Iterable[str | None], before: int) -> Float[np.ndarray, "row"]:
        """Return the code of every text, NaN for None; ``before``: the rows before the first.
        Raises Mistake for a text that ``order`` lacks, and for too many texts."""
        known, found = self._codes, []
        for row, text in enumerate(texts, before + 1):
            if text is None:
                found.append(np.nan)
                continue
            if text not in known:
                self._check_new(text, row)
                known[text] = len(known)
            found.append(float(known[text]))
        return np.array(found, np.float64)

    def _check_new(self, text: str, row: int) -> None:
        if self.fixed:
            raise Mistake(
                f"row {row}: column {self.column!r} holds {text!r}, which is none of "
                f"{', '.join(self._codes)}; add it to --discrete"
            )
        if len(self._codes) >= MAX_CATEGORIES:
            raise Mistake(
                f"column {self.column!r} holds more than {MAX_CATEGORIES} different texts, the "
                f"last {text!r} in row {row}; leave the column out, or write numbers"
            )

    def sorted_choices(self) -> tuple[list[str], np.ndarray]:
        """Return the texts in their final order (sorted, unless fixed), and every code's place in
        it. Numbers are sorted as numbers."""
        texts = list(self._codes)
        order = texts if self.fixed else sorted(texts, key=_sorting_key)
        place = {text: at for at, text in enumerate(order)}
        return order, np.array([place[text] for text in texts], np.int64)


def _sorting_key(text: str) -> tuple[int, float, str]:
    try:
        return 0, float(text), text
    except ValueError:
        return 1, 0.0, text
