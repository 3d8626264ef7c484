"""Read the columns of tables into one matrix of numbers on disk, piece by piece."""

from __future__ import annotations

import dataclasses
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float

from sterling.data.tables.table_cells import Categories, NotANumber, to_numbers, to_texts, to_times
from sterling.data.tables.table_files import Chunk, Table
from sterling.data.tables.table_layout import TableColumns
from sterling.types import Mistake

CODE = "episode"  # the matrix's column that numbers the episodes by their first row


class ColumnReader:
    """Turn the cells of one column into numbers. The first rows decide whether it holds numbers or
    categories; the numbers of categories are their places in the order of appearance."""

    def __init__(self, column: str, *, may_be_text: bool = False, choices: Any = None):
        self.column, self.may_be_text = column, may_be_text
        ordered = bool(choices)
        self.categories = Categories(column, choices) if ordered else None
        self.width = 1
        self._decided = ordered

    def read(self, cells: Any, before: int) -> Float[np.ndarray, "row number"]:
        """Return the numbers of the next rows; ``before``: the rows read before."""
        if self.categories is None:
            try:
                made = to_numbers(cells)
            except NotANumber as wrong:
                self._begin_categories(cells, wrong, before)
            else:
                self._decided |= bool(np.isfinite(made).any())
                return self._checked(made.reshape(len(made), -1), before)
        assert self.categories is not None
        return self.categories.encode(to_texts(cells), before)[:, None]

    def _begin_categories(self, cells: Any, wrong: NotANumber, before: int) -> None:
        place = f"row {before + wrong.row + 1}: column {self.column!r} holds {wrong.cell!r}"
        texts = [text for text in to_texts(cells) if text is not None]
        numbers = sum(map(_is_number, texts))
        if not self.may_be_text or self._decided or numbers > len(texts) / 2:
            raise Mistake(
                f"{place}, which is not a number. Write a number, or leave it empty and leave such "
                "rows out with --drop-incomplete"
            )
        self.categories, self._decided = Categories(self.column), True

    def _checked(self, made: np.ndarray, before: int) -> np.ndarray:
        if not before:
            self.width = made.shape[1]
        elif made.shape[1] != self.width:
            raise Mistake(
                f"row {before + 1}: column {self.column!r} holds {made.shape[1]} numbers, and "
                f"{self.width} in the rows before"
            )
        return made


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


@dataclasses.dataclass
class Matrix:
    """All used columns of one or several tables as numbers; NaN where an entry is missing."""

    values: Float[np.ndarray, "row column"]  # memory-mapped
    places: dict[str, slice]  # column -> where its numbers are
    readers: dict[str, ColumnReader]
    tables: np.ndarray  # the number of each row's table
    columns: TableColumns
    names: list[str]  # of the tables
    unused: list[str]  # columns of the tables that are not read

    def column(self, name: str) -> np.ndarray:
        """Return a column of one number per row."""
        return np.array(self.values[:, self.places[name]])[:, 0]

    def wide(self, names: Sequence[str]) -> np.ndarray:
        """Return the places of all numbers of several columns."""
        every = np.arange(self.values.shape[1])
        return np.concatenate([every[self.places[name]] for name in names] or [every[:0]])

    def place_name(self, row: int) -> str:
        """Return where a row is, for a message."""
        first = int(np.argmax(self.tables == self.tables[row]))
        table = self.names[int(self.tables[row])]
        return f"{table}, row {row - first + 1}"


def read_matrix(tables: Sequence[Table], columns: TableColumns, folder: Path | None) -> Matrix:
    """Read the used columns of tables, one table after the other, into a nameless temporary file in
    ``folder`` (None: the system's)."""
    readers = {name: _make_reader(name, columns) for name in columns.used}
    for old, new in zip(columns.obs, columns.next_obs, strict=bool(columns.next_obs)):
        readers[new] = readers[old]  # equal texts get equal numbers
    episodes: dict[Any, int] = {}
    counts, count = list[int](), 0
    with tempfile.TemporaryFile(dir=folder) as file:
        for number, table in enumerate(tables):
            before = 0
            for chunk in table.read(columns.used):
                made = _chunk_numbers(chunk, columns, readers, before, table.name)
                codes = _episode_codes(chunk, columns, (number, before, table.name), episodes)
                np.concatenate([codes[:, None], *made.values()], 1).tofile(file)
                before += len(codes)
            counts.append(before)
            count += before
        if not count:
            raise Mistake(f"{tables[0].name} has no rows. Give a table with at least one.")
        file.flush()
        widths = {CODE: 1} | {name: part.shape[1] for name, part in made.items()}
        total = sum(widths.values())
        values = np.memmap(file, np.float64, "r", shape=(count, total))  # the file stays mapped
    ends = np.cumsum([*widths.values()])
    places = {name: slice(int(end) - width, int(end))
              for (name, width), end in zip(widths.items(), ends, strict=True)}  # fmt: skip
    which = np.repeat(np.arange(len(tables), dtype=np.int32), counts)
    unused = [name for name in tables[0].columns if name not in columns.used]
    names = [table.name for table in tables]
    return Matrix(values, places, readers, which, columns, names, unused)


def _make_reader(name: str, columns: TableColumns) -> ColumnReader:
    may_be_text = name in (*columns.obs, *columns.action) and name not in columns.continuous
    return ColumnReader(name, may_be_text=may_be_text, choices=columns.choices.get(name))


def _chunk_numbers(
    chunk: Chunk, columns: TableColumns, readers: dict[str, ColumnReader], before: int, table: str
) -> dict[str, np.ndarray]:
    """Return the numbers of each column of some rows, except those that only name episodes."""
    made: dict[str, np.ndarray] = {}
    wanted = [*columns.obs, *columns.next_obs, *columns.action, *columns.extra]
    wanted += [columns.reward, columns.terminal, columns.timeout, columns.time]
    for name in dict.fromkeys(name for name in wanted if name):
        try:
            if name == columns.time:
                made[name] = _times(name, chunk[name], before)
            else:
                made[name] = readers[name].read(chunk[name], before)
        except Mistake as error:
            raise Mistake(f"{table}, {error}") from error
    return made


def _times(name: str, cells: Any, before: int) -> np.ndarray:
    try:
        return to_times(cells).reshape(-1, 1)
    except NotANumber as wrong:
        place = f"row {before + wrong.row + 1}: column {name!r} holds {wrong.cell!r}"
        message = f"{place}, which is neither a number nor a date. Write 2024-05-01T12:00:00"
        raise Mistake(message) from wrong


def _episode_codes(
    chunk: Chunk, columns: TableColumns, place: tuple[int, int, str], known: dict[Any, int]
) -> Float[np.ndarray, "row"]:
    """Return the number of each row's episode, by first appearance; tables share no episodes.
    ``place``: the table's number, the rows before these, and its name."""
    number, before, table = place
    names = columns.episode
    parts = [to_texts(chunk[name]) for name in names]
    for name, texts in zip(names, parts, strict=True):
        if None in texts:
            row = before + texts.index(None) + 1
            raise Mistake(f"{table}, row {row}: column {name!r} is empty, so that the row belongs "
                          "to no episode. Fill it in.")  # fmt: skip
    count = len(next(iter(chunk.values())))
    keys = zip(*parts, strict=True) if parts else [()] * count
    return np.array([known.setdefault((number, *key), len(known)) for key in keys], np.float64)
