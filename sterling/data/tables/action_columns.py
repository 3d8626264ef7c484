"""Decide what the action columns of a table are, choices or real numbers, and convert them."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

import numpy as np
from gymnasium import spaces

from sterling.data.episode_columns import BLOCK_ROWS
from sterling.data.space_json import Space, guess_space
from sterling.data.tables.table_cells import MAX_CATEGORIES, cell_text
from sterling.data.tables.table_matrix import ColumnReader, Matrix
from sterling.types import Mistake


@dataclasses.dataclass(frozen=True)
class ActionColumn:
    """One column of actions."""

    name: str
    place: slice  # in the matrix
    count: int = 0  # of choices; 0: real numbers
    choices: tuple[str, ...] = ()  # what each choice is in the table; (): its own number
    values: np.ndarray | None = None  # sorted entries of the matrix that are the choices
    order: np.ndarray | None = None  # entry of the matrix (a code) -> choice

    def convert(self, values: np.ndarray) -> np.ndarray:
        """Return the column of some rows of the matrix, ``(row, number)``."""
        found = values[:, self.place]
        if not self.count:
            return found.astype(np.float32)
        if self.values is not None:
            return np.searchsorted(self.values, found)
        codes = found.astype(np.int64)
        return codes if self.order is None else self.order[codes]


class Measured:
    """Extremes and different entries of a column of numbers."""

    def __init__(self, width: int):
        self.low, self.high = np.full(width, np.inf), np.full(width, -np.inf)
        self.whole, self.distinct = True, np.zeros(0)

    def add(self, values: np.ndarray) -> None:
        """Include the complete rows among some more."""
        values = values[np.isfinite(values).all(1)]
        if not len(values):
            return
        self.low = np.minimum(self.low, values.min(0))
        self.high = np.maximum(self.high, values.max(0))
        self.whole &= bool((values == np.rint(values)).all())
        if len(self.distinct) <= MAX_CATEGORIES:
            self.distinct = np.unique(np.concatenate([self.distinct, values.ravel()]))


def find_action_columns(matrix: Matrix, rows: np.ndarray) -> tuple[list[ActionColumn], Space]:
    """Return the action columns and the action space, for the rows that are used.

    Texts are choices, in sorted order. Numbers are choices where the user says so, or where they
    are whole and between 0 and 255. Raises Mistake for choices beside real numbers.
    """
    names = matrix.columns.action
    measured = {name: Measured(matrix.readers[name].width) for name in names}
    for part in _row_values(matrix, rows):
        for name, one in measured.items():
            if matrix.readers[name].categories is None:
                one.add(part[:, matrix.places[name]])
    found = [_action_column(matrix, name, measured[name]) for name in names]
    counts = [one.count for one in found]
    if all(counts):
        single = len(counts) == 1
        return found, spaces.Discrete(counts[0]) if single else spaces.MultiDiscrete(counts)
    if any(counts):
        some = ", ".join(one.name for one in found if one.count)
        others = ", ".join(one.name for one in found if not one.count)
        raise Mistake(
            f"the actions {some} are choices and {others} real numbers; read all as numbers with "
            f"--continuous {some}, or all as choices with --discrete {others}"
        )
    low, high = (np.concatenate([getattr(measured[x], end) for x in names]) for end in ENDS)
    return found, guess_space("action", np.zeros((0, len(low)), np.float32), low, high)


ENDS = ("low", "high")


def _row_values(matrix: Matrix, rows: np.ndarray) -> Iterator[np.ndarray]:
    for low in range(0, len(rows), BLOCK_ROWS):
        yield np.asarray(matrix.values[rows[low : low + BLOCK_ROWS]])


def _action_column(matrix: Matrix, name: str, seen: Measured) -> ActionColumn:
    reader, place = matrix.readers[name], matrix.places[name]
    if reader.categories is not None:
        return _category_column(reader, name, place)
    told = name in matrix.columns.choices
    few = reader.width == 1 and len(seen.distinct) and len(seen.distinct) <= MAX_CATEGORIES
    if told and not few:
        raise Mistake(
            f"--discrete {name}: the column holds more than {MAX_CATEGORIES} different numbers; "
            "leave the option out"
        )
    counted = seen.whole and bool((seen.low >= 0).all())
    high = int(seen.high.max()) if counted and few else 0
    if told and not (counted and high + 1 <= 2 * len(seen.distinct)):
        choices = tuple(cell_text(x) for x in seen.distinct)
        return ActionColumn(name, place, len(choices), choices, values=seen.distinct)
    if told or (counted and few and high < MAX_CATEGORIES and not _is_continuous(matrix, name)):
        return ActionColumn(name, place, high + 1)
    return ActionColumn(name, place)


def _is_continuous(matrix: Matrix, name: str) -> bool:
    return name in matrix.columns.continuous


def _category_column(reader: ColumnReader, name: str, place: slice) -> ActionColumn:
    assert reader.categories is not None
    choices, order = reader.categories.sorted_choices()
    return ActionColumn(name, place, len(choices), tuple(choices), order=order)


def convert_actions(found: list[ActionColumn], space: Space, values: np.ndarray) -> np.ndarray:
    """Return the actions of some rows of the matrix, in the form of their space; of rows without an
    action, anything."""
    filled = np.nan_to_num(values, nan=0.0)
    made = np.concatenate([one.convert(filled) for one in found], 1)
    return made[:, 0] if isinstance(space, spaces.Discrete) else made
