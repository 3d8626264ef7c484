"""Model-written SELECT statements on a small database, which they can only read.

Each query gets a fresh database in memory. An authorizer admits reading and plain functions and
nothing else (no writing, attaching, pragmas or extensions). Steps of SQLite's machine are
counted, so the same query always gets the same verdict; a clock stands behind the count.
"""

from __future__ import annotations

import sqlite3
import time
from collections import Counter
from contextlib import closing
from typing import Any, NamedTuple

Table = dict[str, Any]  # {"name", "columns": [...], "rows": [[...], ...]}
Row = tuple[Any, ...]
STEPS = 200_000  # of SQLite's virtual machine
SECONDS = 2.0
LENGTH = 2_000  # characters of a query, and of any value it makes

_ALLOWED = {
    sqlite3.SQLITE_SELECT,
    sqlite3.SQLITE_READ,
    sqlite3.SQLITE_FUNCTION,
    sqlite3.SQLITE_RECURSIVE,
}
_FORBIDDEN = {"load_extension", "random", "randomblob", "fts3_tokenizer"}
_EVERY = 1_000  # steps between two looks at the clock


class Answer(NamedTuple):
    """A query's rows, or why there are none: "forbidden", "timeout" or "error"."""

    rows: list[Row] | None
    reason: str = ""


def ask(tables: list[Table], query: str, most: int = 1_000) -> Answer:
    """The first ``most`` rows of one SELECT statement; never raises for a query."""
    if len(query) > LENGTH:
        return Answer(None, "error")
    with closing(sqlite3.connect(":memory:")) as base:
        for table in tables:
            _fill(base, table)
        guard = _Guard(base)
        try:
            rows = base.execute(query).fetchmany(most)
        except (sqlite3.Error, sqlite3.Warning, ValueError, MemoryError):  # any bad query
            return Answer(None, guard.reason)
    return Answer([tuple(row) for row in rows])


def answers(tables: list[Table], queries: list[str]) -> list[list[Row]]:
    """The rows of queries of our own, each of which is valid, on one database."""
    with closing(sqlite3.connect(":memory:")) as base:
        for table in tables:
            _fill(base, table)
        return [base.execute(query).fetchall() for query in queries]


def equal(first: list[Row], second: list[Row], ordered: bool) -> bool:
    """Whether the rows are the same, decimals to six places; as a multiset unless ``ordered``."""
    one, other = ([_rounded(row) for row in rows] for rows in (first, second))
    return one == other if ordered else Counter(one) == Counter(other)


def _rounded(row: Row) -> Row:
    return tuple(round(each, 6) if isinstance(each, float) else each for each in row)


def _fill(base: sqlite3.Connection, table: Table) -> None:
    columns = table["columns"]
    base.execute(f"create table {table['name']} ({','.join(columns)})")
    marks = ",".join("?" * len(columns))
    base.executemany(f"insert into {table['name']} values ({marks})", table["rows"])
    base.commit()


class _Guard:
    """Closes a database for everything but short reading, and knows what it stopped."""

    def __init__(self, base: sqlite3.Connection):
        self.reason = "error"
        self.left = STEPS // _EVERY
        self.end = time.monotonic() + SECONDS
        base.execute("pragma query_only=on")
        base.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, LENGTH)
        base.setlimit(sqlite3.SQLITE_LIMIT_ATTACHED, 0)
        base.setlimit(sqlite3.SQLITE_LIMIT_COLUMN, 100)
        base.setlimit(sqlite3.SQLITE_LIMIT_EXPR_DEPTH, 100)
        base.setlimit(sqlite3.SQLITE_LIMIT_COMPOUND_SELECT, 20)
        base.setlimit(sqlite3.SQLITE_LIMIT_WORKER_THREADS, 0)
        base.set_progress_handler(self._stop, _EVERY)
        base.set_authorizer(self._judge)

    def _stop(self) -> bool:
        self.left -= 1
        if self.left > 0 and time.monotonic() < self.end:
            return False
        self.reason = "timeout"
        return True

    def _judge(self, action: int, first: Any, second: Any, base: Any, inner: Any) -> int:
        named = str(second).lower() if action == sqlite3.SQLITE_FUNCTION else ""
        if action in _ALLOWED and named not in _FORBIDDEN:
            return sqlite3.SQLITE_OK
        self.reason = "forbidden"
        return sqlite3.SQLITE_DENY
