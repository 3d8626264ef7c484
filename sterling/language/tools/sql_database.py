"""Run SELECT statements that a model wrote on a small database, which they can only read.

Each query gets a fresh database in memory. An authorizer allows reading the database's own tables
and calling the functions of :data:`ALLOWED_FUNCTIONS`, and nothing else: no writing, attaching,
pragmas or extensions; no function whose value depends on the clock, on chance or on SQLite's
version, or that computes a long text within one step of SQLite's machine (``printf``). Steps of
that machine are counted, so the same query always gets the same verdict. Preparing a query, and a
single step, cannot be interrupted from within: :func:`make_answerer` is meant for a process that is
killed at a time limit.
"""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Callable
from contextlib import closing
from typing import Any, NamedTuple

Table = dict[str, Any]  # {"name", "columns": [...], "rows": [[...], ...]}
Row = tuple[Any, ...]
MAX_STEPS = 200_000  # of SQLite's virtual machine
MAX_LENGTH = 2_000  # characters of a query, and of any value it computes
MAX_PATTERN = 50  # characters of a pattern of LIKE
MAX_HEAP_BYTES = 64 * 2**20  # bytes that SQLite may take in the process that judges
ALLOWED_FUNCTIONS = {
    *("abs", "avg", "count", "max", "min", "round", "sign", "sum", "total"),
    *("coalesce", "ifnull", "iif", "nullif", "typeof"),
    *("instr", "length", "like", "lower", "ltrim", "rtrim", "substr", "substring", "trim", "upper"),
    *("cume_dist", "dense_rank", "first_value", "lag", "last_value", "lead", "nth_value", "ntile"),
    *("percent_rank", "rank", "row_number"),
}

_STEPS_PER_CHECK = 1_000  # steps between two checks of their count
_LIMITS = {
    sqlite3.SQLITE_LIMIT_LENGTH: MAX_LENGTH,
    sqlite3.SQLITE_LIMIT_SQL_LENGTH: MAX_LENGTH,
    sqlite3.SQLITE_LIMIT_LIKE_PATTERN_LENGTH: MAX_PATTERN,
    sqlite3.SQLITE_LIMIT_ATTACHED: 0,
    sqlite3.SQLITE_LIMIT_COLUMN: 100,
    sqlite3.SQLITE_LIMIT_EXPR_DEPTH: 100,
    sqlite3.SQLITE_LIMIT_COMPOUND_SELECT: 20,
    sqlite3.SQLITE_LIMIT_FUNCTION_ARG: 20,
    sqlite3.SQLITE_LIMIT_WORKER_THREADS: 0,
}


def make_answerer(_: None) -> Callable[[list[Any]], str]:
    """Return the function that judges ``[tables of each database, right query, query, ordered]``:
    "right", "wrong", or the reason of the first query without rows. Called in a process of its
    own."""
    with closing(sqlite3.connect(":memory:")) as base:
        base.execute(f"pragma hard_heap_limit={MAX_HEAP_BYTES}")  # a limit of the whole process
    return lambda question: judge_query(*question)


def judge_query(bases: list[list[Table]], right: str, query: str, ordered: bool) -> str:
    """Return "right" if the query gives the right query's rows on every database; else "wrong", or
    why it has no rows: "forbidden", "timeout", "oom" or "error"."""
    for tables in bases:
        truth = run_query(tables, right).rows or []
        found = run_query(tables, query, len(truth) + 1)
        if found.rows is None:
            return found.reason
        if not same_rows(found.rows, truth, ordered):
            return "wrong"
    return "right"


class QueryResult(NamedTuple):
    """A query's rows, or why there are none: "forbidden", "timeout", "oom" or "error"."""

    rows: list[Row] | None
    reason: str = ""


def run_query(tables: list[Table], query: str, most: int = 1_000) -> QueryResult:
    """Return the first ``most`` rows of one SELECT statement; never raises for a query."""
    if len(query) > MAX_LENGTH:
        return QueryResult(None, "error")
    with closing(sqlite3.connect(":memory:")) as base:
        for table in tables:
            _create_table(base, table)
        guard = _QueryGuard(base, {table["name"] for table in tables})
        try:
            rows = base.execute(query).fetchmany(most)
        except MemoryError:
            return QueryResult(None, "oom")
        except (sqlite3.Error, sqlite3.Warning, ValueError):  # any bad query
            return QueryResult(None, guard.reason)
    return QueryResult([tuple(row) for row in rows])


def run_own_queries(tables: list[Table], queries: list[str]) -> list[list[Row]]:
    """Return the rows of our own queries, each of which is valid, on one database."""
    with closing(sqlite3.connect(":memory:")) as base:
        for table in tables:
            _create_table(base, table)
        return [base.execute(query).fetchall() for query in queries]


def same_rows(first: list[Row], second: list[Row], ordered: bool) -> bool:
    """Whether the rows are the same, with decimals rounded to six places; as a multiset unless
    ``ordered``."""
    one, other = ([_round_row(row) for row in rows] for rows in (first, second))
    return one == other if ordered else Counter(one) == Counter(other)


def _round_row(row: Row) -> Row:
    return tuple(round(each, 6) if isinstance(each, float) else each for each in row)


def _create_table(base: sqlite3.Connection, table: Table) -> None:
    columns = table["columns"]
    base.execute(f"create table {table['name']} ({','.join(columns)})")
    marks = ",".join("?" * len(columns))
    base.executemany(f"insert into {table['name']} values ({marks})", table["rows"])
    base.commit()


class _QueryGuard:
    """Restricts a database to short reading, and records what it stopped."""

    def __init__(self, base: sqlite3.Connection, tables: set[str]):
        self.reason = "error"
        self.left = MAX_STEPS // _STEPS_PER_CHECK
        self.tables = tables
        base.execute("pragma query_only=on")
        for limit, most in _LIMITS.items():
            base.setlimit(limit, most)
        base.set_progress_handler(self._stop, _STEPS_PER_CHECK)
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
            sqlite3.SQLITE_FUNCTION: str(second).lower() in ALLOWED_FUNCTIONS,
        }
        if allowed.get(action, False):
            return sqlite3.SQLITE_OK
        self.reason = "forbidden"
        return sqlite3.SQLITE_DENY

    def _is_made(self, table: Any, column: Any) -> bool:
        """Whether this reads rows that the query itself makes, and none of their columns; tables of
        SQLite itself, whose names begin with "sqlite_", are not such rows."""
        return not column and not str(table).lower().startswith("sqlite_")
