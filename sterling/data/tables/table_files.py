"""Read tables piece by piece: CSV files, Parquet files, data frames and dicts of columns."""

from __future__ import annotations

import contextlib
import csv
import dataclasses
import gzip
import itertools
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from sterling.data.episode_columns import BLOCK_ROWS
from sterling.system.shown_values import short_text
from sterling.types import Mistake

Cells = Any  # of one column: a list of texts, or an array (row,) or (row, number)
Chunk = dict[str, Cells]
CSV_SUFFIXES = (".csv", ".tsv", ".txt")
PARQUET_SUFFIXES = (".parquet", ".pq")
DELIMITERS = (",", ";", "\t", "|")
DECIMAL_COMMA = re.compile(r"^([-+]?\d*),(\d+(?:[eE][-+]?\d+)?)$")
PYARROW_REMEDY = 'needs pyarrow. Install it: pip install "sterling-rl[tables]"'


@dataclasses.dataclass(frozen=True)
class Table:
    """A table that is read piece by piece."""

    name: str
    format: str  # "csv", "parquet" or "frame"
    columns: list[str]
    read: Callable[[Sequence[str]], Iterator[Chunk]]  # the columns named, some rows at a time


def is_table_file(path: Path) -> bool:
    """Whether a file's name is that of a CSV or Parquet file."""
    return _suffix(path) in (*CSV_SUFFIXES, *PARQUET_SUFFIXES)


def open_table(table: Any) -> Table:
    """Open a CSV or Parquet file by its path, a data frame (pandas, polars, Arrow, or anything with
    ``__dataframe__``), or a dict of columns. Raises Mistake for anything else."""
    if isinstance(table, (str, Path)):
        path = Path(table).expanduser()
        if not path.is_file():
            raise Mistake(f"There is no file {path}. Give a CSV or Parquet file.")
        if _suffix(path) in PARQUET_SUFFIXES:
            return _open_parquet(path)
        if _suffix(path) in CSV_SUFFIXES:
            return _open_csv(path)
        raise Mistake(f"{path} is no table by its name. Give a .csv, .tsv or .parquet file.")
    if isinstance(table, Mapping):
        return _in_memory({str(name): np.asarray(cells) for name, cells in table.items()})
    if hasattr(table, "column_names") and hasattr(table, "column"):  # Arrow
        return _in_memory({name: _arrow_cells(table.column(name)) for name in table.column_names})
    if hasattr(table, "columns") and hasattr(table, "__getitem__"):  # pandas, polars
        names = list(table.columns)
        return _in_memory({str(name): np.asarray(table[name]) for name in names})
    if hasattr(table, "__dataframe__"):
        return open_table(_import_pyarrow("A data frame of this kind").from_dataframe(table))
    raise Mistake(
        f"{type(table).__name__} is no table. Give a file, a data frame or a dict of columns."
    )


def _suffix(path: Path) -> str:
    """Return a file's suffix in lower case, without that of gzip."""
    name = path.name.lower().removesuffix(".gz")
    return Path(name).suffix


def _in_memory(columns: dict[str, np.ndarray]) -> Table:
    lengths = {len(array) if array.ndim else -1 for array in columns.values()}
    if len(lengths) > 1 or -1 in lengths:
        raise Mistake("The columns of the table have different lengths. Give one entry per row.")
    count = lengths.pop() if lengths else 0

    def read(names: Sequence[str]) -> Iterator[Chunk]:
        for low in range(0, count, BLOCK_ROWS):
            yield {name: _plain(columns[name][low : low + BLOCK_ROWS], name) for name in names}

    return Table("the table", "frame", list(columns), read)


def _plain(cells: np.ndarray, name: str) -> np.ndarray:
    """Return cells that are lists of numbers as an array ``(row, number)``."""
    if cells.dtype != object or not len(cells) or not isinstance(cells[0], (list, np.ndarray)):
        return cells
    try:
        return np.stack([np.asarray(cell, np.float64) for cell in cells])
    except (ValueError, TypeError) as error:
        message = f"column {name!r} holds lists of different lengths; give every row equally many"
        raise Mistake(message) from error


def _open_csv(path: Path) -> Table:
    with _readable_errors(path), _open_text(path) as file:
        header = file.readline()
        delimiter = max(DELIMITERS, key=header.count)
        columns = [name.strip() for name in next(csv.reader([header], delimiter=delimiter), [])]
    if not columns:
        raise Mistake(f"{path} is empty. The first line must name the columns.")

    def read(names: Sequence[str]) -> Iterator[Chunk]:
        if twice := [name for name in names if columns.count(name) > 1]:
            raise Mistake(f"{path} has two columns {twice[0]!r}. Rename one of them.")
        places = [columns.index(name) for name in names]
        plain = _with_decimal_point if delimiter == ";" else str.strip
        with _readable_errors(path), _open_text(path) as file:
            rows = csv.reader(file, delimiter=delimiter)
            next(rows)
            full = (row for row in rows if row)
            while some := list(itertools.islice(full, BLOCK_ROWS)):
                try:
                    cells = [[plain(row[at]) for row in some] for at in places]
                except IndexError as error:
                    raise Mistake(_short_row(path, some, len(columns), rows.line_num)) from error
                yield dict(zip(names, cells, strict=True))

    return Table(path.name, "csv", columns, read)


def _with_decimal_point(cell: str) -> str:
    """Return 1,5 as 1.5: spreadsheets that separate columns by semicolons write decimal commas."""
    return DECIMAL_COMMA.sub(r"\1.\2", cell.strip())


def _short_row(path: Path, some: list[list[str]], wanted: int, line: int) -> str:
    at = next(at for at, row in enumerate(some) if len(row) < wanted)
    return (
        f"{path}, line {line - len(some) + 1 + at}: {len(some[at])} cells, but the first line "
        f"names {wanted} columns. Complete the line."
    )


def _open_text(path: Path) -> Any:
    how: dict[str, Any] = {"mode": "rt", "newline": "", "encoding": "utf-8-sig"}
    return gzip.open(path, **how) if path.suffix.lower() == ".gz" else path.open(**how)


@contextlib.contextmanager
def _readable_errors(path: Path) -> Iterator[None]:
    """Context manager that turns the errors of a file that is no CSV into a Mistake."""
    try:
        yield
    except (UnicodeDecodeError, csv.Error, EOFError, OSError) as error:
        reason = short_text(str(error))
        raise Mistake(f"{path} is no CSV file in UTF-8 ({reason}). Save it as one.") from error


def _open_parquet(path: Path) -> Table:
    parquet = _import_pyarrow(f"Reading {path.name}", "parquet")
    try:
        file = parquet.ParquetFile(path)
    except (OSError, ValueError) as error:  # pyarrow's own errors are ValueErrors
        reason = short_text(str(error))
        raise Mistake(f"{path} cannot be read as Parquet ({reason}). Restore it.") from error

    def read(names: Sequence[str]) -> Iterator[Chunk]:
        for batch in file.iter_batches(BLOCK_ROWS, columns=list(names)):
            yield {name: _arrow_cells(batch.column(name)) for name in names}

    return Table(path.name, "parquet", list(file.schema_arrow.names), read)


def _arrow_cells(column: Any) -> np.ndarray:
    """Return a column of Arrow as an array; one of lists as ``(row, number)``."""
    column = column.combine_chunks() if hasattr(column, "combine_chunks") else column
    if hasattr(column, "dictionary_decode"):
        column = column.dictionary_decode()
    return _plain(np.asarray(column.to_numpy(zero_copy_only=False)), "of lists")


def _import_pyarrow(what: str, part: str = "interchange") -> Any:
    import importlib

    try:
        return importlib.import_module(f"pyarrow.{part}")
    except ImportError as error:
        raise Mistake(f"{what} {PYARROW_REMEDY}") from error
