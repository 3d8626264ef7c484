"""Model-written SELECT statements on a small database, which they can only read.

Each query gets a fresh database in memory. An authorizer admits reading the database's own tables
and the functions of :data:`FUNCTIONS`, and nothing else: no writing, attaching, pragmas or
extensions; no function whose value depends on the clock, on chance or on SQLite's version, or that
computes a long text within one step of SQLite's machine (``printf``). Steps of that machine are
counted, so the same query always gets the same verdict. Preparing a query, and one step, cannot be
interrupted from within: :func:`answering` is meant for a process that is killed at a time limit.
"""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Callable
from contextlib import closing
from typing import Any, NamedTuple

Table = dict[str, Any]  # {"name", "columns": [...], "rows": [[...], ...]}
Row = tuple[Any, ...]
STEPS = 200_000  # of SQLite's virtual machine
LENGTH = 2_000  # characters of a query, and of any value it makes
PATTERN = 50  # characters of a pattern of LIKE
HEAP = 64 * 2**20  # bytes that SQLite may take in the process that judges
FUNCTIONS = {
    *("abs", "avg", "count", "max", "min", "round", "sign", "sum", "total"),
    *("coalesce", "ifnull", "iif", "nullif", "typeof"),
    *("instr", "length", "like", "lower", "ltrim", "rtrim", "substr", "substring", "trim", "upper"),
    *("cume_dist", "dense_rank", "first_value", "lag", "last_value", "lead", "nth_value", "ntile"),
    *("percent_rank", "rank", "row_number"),
}

_EVERY = 1_000  # steps between two looks at their count
_LIMITS = {
    sqlite3.SQLITE_LIMIT_LENGTH: LENGTH,
    sqlite3.SQLITE_LIMIT_SQL_LENGTH: LENGTH,
    sqlite3.SQLITE_LIMIT_LIKE_PATTERN_LENGTH: PATTERN,
    sqlite3.SQLITE_LIMIT_ATTACHED: 0,
    sqlite3.SQLITE_LIMIT_COLUMN: 100,
    sqlite3.SQLITE_LIMIT_EXPR_DEPTH: 100,
    sqlite3.SQLITE_LIMIT_COMPOUND_SELECT: 20,
    sqlite3.SQLITE_LIMIT_FUNCTION_ARG: 20,
    sqlite3.SQLITE_LIMIT_WORKER_THREADS: 0,
}


def answering(_: None) -> Callable[[list[Any]], str]:
    """Return what judges ``[tables of each database, right query, query, ordered]``: "right",
    "wrong", or the reason of the first query that has no rows. Called in a process of its own."""
    with closing(sqlite3.connect(":memory:")) as base:
        base.execute(f"pragma hard_heap_limit={HEAP}")  # of the whole process
    return lambda question: judge(*question)


def judge(bases: list[list[Table]], right: str, query: str, ordered: bool) -> str:
    """Return "right" where the query gives the right query's rows on every database; else "wrong",
    or why it has none: "forbidden", "timeout", "oom" or "error"."""
    for tables in bases:
        truth = ask(tables, right).rows or []
        found = ask(tables, query, len(truth) + 1)
        if found.rows is None:
            return found.reason
        if not equal(found.rows, truth, ordered):
            return "wrong"
    return "right"


class Answer(NamedTuple):
    """A query's rows, or why there are none: "forbidden", "timeout", "oom" or "error"."""

    rows: list[Row] | None
    reason: str = ""


def ask(tables: list[Table], query: str, most: int = 1_000) -> Answer:
    """The first ``most`` rows of one SELECT statement; never raises for a query."""
    if len(query) > LENGTH:
        return Answer(None, "error")
    with closing(sqlite3.connect(":memory:")) as base:
        for table in tables:
            _fill(base, table)
        guard = _Guard(base, {table["name"] for table in tables})
        try:
            rows = base.execute(query).fetchmany(most)
        except MemoryError:
            return Answer(None, "oom")
        except (sqlite3.Error, sqlite3.Warning, ValueError):  # any bad query
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

    def __init__(self, base: sqlite3.Connection, tables: set[str]):
        self.reason = "error"
        self.left = STEPS // _EVERY
        self.tables = tables
        base.execute("pragma query_only=on")
        for limit, most in _LIMITS.items():
            base.setlimit(limit, most)
        base.set_progress_handler(self._stop, _EVERY)
        base.set_authorizer(self._judge)

    def _stop(self) -> bool:
        self.left -= 1
        if self.left > 0:
            return False
        self.reason = "timeout"
        return True

    def _judge(self, action: int, first: Any, second: Any, base: Any, inner: Any) -> int:
        allowed = {
            sqlite3.SQLITE_SELECT: True,
            sqlite3.SQLITE_RECURSIVE: True,  # its steps are counted
            sqlite3.SQLITE_READ: first in self.tables or self._is_made(first, second),
            sqlite3.SQLITE_FUNCTION: str(second).lower() in FUNCTIONS,
        }
        if allowed.get(action, False):
            return sqlite3.SQLITE_OK
        self.reason = "forbidden"
        return sqlite3.SQLITE_DENY

    def _is_made(self, table: Any, column: Any) -> bool:
        """Whether rows are counted that the query itself makes, of which no column is read here;
        SQLite's own tables begin with "sqlite_"."""
        return not column and not str(table).lower().startswith("sqlite_")
