"""SQL tasks: questions about a table, answered by a query that is executed."""

from __future__ import annotations

import functools
import re
from random import Random
from typing import Any, NamedTuple

from sterling.language.adapters.answer_worker import Worker, WorkerFault
from sterling.language.task import RIGHT, Task, Verdict, code_answer, fault_verdict
from sterling.language.tasks.task_checks import Puzzle
from sterling.language.tools import sql_database

SECONDS = 5.0  # time limit of a verdict, after which its process is killed
MEMORY = 2**30  # bytes that this process may use
TABLES = 3  # hidden databases on which a query has to be right
ROWS = 8
MAX_DRAWS = 60  # databases drawn in search of one that exposes a wrong query
MAX_ROUNDS = 4  # times that all are drawn, if three expose too few wrong queries
NAMES = ("ada", "bo", "cy", "di", "ed", "flo", "gus", "hal", "ida", "jo", "kim", "lou")


class _Theme(NamedTuple):
    table: str
    group: str  # a column of words
    groups: tuple[str, ...]
    numbers: tuple[str, str]  # columns of numbers
    other: str  # a second table: one row for each word of ``group``, with a number
    number: str


Tables = list[sql_database.Table]
LIMIT = re.compile(r"where (?P<column>\w+)[<>](?P<number>\d+)")

THEMES = (
    _Theme("people", "city", ("rome", "oslo", "lima"), ("age", "size"), "cities", "rank"),
    _Theme("items", "kind", ("tool", "toy", "book"), ("price", "stock"), "kinds", "shelf"),
    _Theme("games", "team", ("red", "blue", "gold"), ("score", "minute"), "teams", "year"),
)


class _NearThreshold(NamedTuple):
    """A column's numbers: from ``low`` to ``high``, with those in ``holds`` among them."""

    column: str
    low: int
    high: int
    holds: tuple[int, ...]


class Sql(Puzzle):
    """A question about a table: ``people(name,city,age,size): name where age>30`` ->
    ``select name from people where age>30``.

    The answer is one SELECT statement for SQLite, in a fenced block or not. It is executed on
    three hidden databases of eight rows each and has to give the asked rows on all of them, so
    a constant never helps; the order of rows only counts if one is asked for. It runs in a
    process of its own and can only read these tables, with functions that depend on nothing else
    (others are "forbidden": :data:`sterling.language.tools.sql_database.ALLOWED_FUNCTIONS`). A
    query that takes more than 200,000 steps of SQLite, or more than five seconds, is a "timeout";
    an invalid one is an "error".

    The databases are drawn until queries that are nearly right fail on one of them (without the
    condition, with ``>=`` for ``>``, a threshold that is one off, another aggregate), as in
    distilled test suites (Zhong, Yu & Klein 2020, arXiv:2010.02840).

    Levels: 0 a condition; 1 an aggregate under a condition; 2 the first rows in an order, or
    groups; 3 a join of two tables. Prompt 44-55, 51-67, 57-75, 62-67 characters; answer 35-42,
    40-47, 44-51, 58-60.
    """

    name = "sql"
    levels = range(4)

    def pose(self, random: Random, level: int) -> tuple[str, dict[str, Any]]:
        """Return a question, its query, and databases that tell the query from wrong ones."""
        theme = random.choice(THEMES)
        ask = (_filter_question, _aggregate_question, _order_question, _join_question)[level]
        words, query, ordered = ask(random, theme)
        bases = _distinguishing_databases(random, theme, query, level == 3)
        schema = " ".join(f"{t['name']}({','.join(t['columns'])})" for t in bases[0])
        return f"{schema}: {words}", {"query": query, "ordered": ordered, "bases": bases}

    def judge(self, task: Task, answer: str) -> Verdict:
        """Execute the query, and the right one, in a process of its own, and compare their rows."""
        known = task.answer
        question = [known["bases"], known["query"], answer, known["ordered"]]
        try:
            reason = _worker().ask(question, SECONDS)
        except WorkerFault as fault:
            return fault_verdict(fault.kind, fault.detail)
        return RIGHT if reason == "right" else Verdict(0.0, reason)

    def extract(self, response: str) -> str:
        """Return the query without its fences."""
        return code_answer(response)

    def solve(self, task: Task) -> str:
        """Return the query that the question was made with."""
        return str(task.answer["query"])


@functools.cache
def _worker() -> Worker:
    return Worker("sterling.language.tools.sql_database:make_answerer", None, SECONDS, MEMORY)


def _distinguishing_databases(
    random: Random, theme: _Theme, query: str, both: bool
) -> list[Tables]:
    """Return databases on which the query's rows are not all the same, and on which wrong queries
    give other rows. Wrong queries that no database exposed after several rounds may mean the same
    as the right one."""
    best: list[Tables] = []
    fewest = len(query)  # more than there are mutants
    for _ in range(MAX_ROUNDS):
        bases, left = _choose_databases(random, theme, query, both)
        if left < fewest:
            best, fewest = bases, left
        if not left:
            break
    return best


def _choose_databases(
    random: Random, theme: _Theme, query: str, both: bool
) -> tuple[list[Tables], int]:
    """Return databases, each of which exposes wrong queries that those before did not, and the
    number of wrong queries that are left."""
    left, drawn = _wrong_queries(query), 0
    bases: list[Tables] = []
    seen: list[list[sql_database.Row]] = []
    while len(bases) < TABLES:
        drawn += 1
        useful = bool(left) and drawn <= MAX_DRAWS
        base = _random_database(
            random, theme, both, _near_threshold(random, query) if useful else None
        )
        truth, *others = sql_database.run_own_queries(base, [query, *left])
        if not truth or (len(bases) == TABLES - 1 and all(truth == rows for rows in seen)):
            continue
        same = [
            each for each, rows in zip(left, others, strict=True) if _have_same_rows(rows, truth)
        ]
        if useful and len(same) == len(left):
            continue
        left, bases, seen = same, [*bases, base], [*seen, truth]
    return bases, len(left)


def _have_same_rows(rows: list[sql_database.Row], truth: list[sql_database.Row]) -> bool:
    return sql_database.same_rows(rows, truth, ordered=False)


def _wrong_queries(query: str) -> list[str]:
    """Return queries that differ from the right one in a small part."""
    found = [query.partition(" where ")[0]]
    for sign in "<>":
        found.append(query.replace(sign, f"{sign}="))
    if limit := LIMIT.search(query):
        number = int(limit["number"])
        found += [f"{query[: limit.start('number')]}{number + by}" for by in (-1, 1)]
    functions = ("sum", "max", "min", "avg")
    for one in functions:
        found += [query.replace(f"{one}(", f"{other}(") for other in functions]
    return sorted({*found} - {query})


def _near_threshold(random: Random, query: str) -> _NearThreshold | None:
    """Return how the filtered column is to lie around its threshold; None: anywhere."""
    limit = LIMIT.search(query)
    if limit is None:
        return None
    at, most = int(limit["number"]), 99
    ends = [(1, at, (at,)), (1, at + 1, (at + 1,)), (at, most, (at,)), (at - 1, most, (at - 1,))]
    low, high, holds = random.choice([(1, most, (at - 1, at, at + 1)), *ends])
    return _NearThreshold(limit["column"], low, high, holds)


def _random_database(
    random: Random, theme: _Theme, both: bool, near: _NearThreshold | None
) -> Tables:
    """Return a random database. Its names and numbers all differ, so that an order is never
    ambiguous."""
    names = random.sample(NAMES, ROWS)
    first, second = (_random_numbers(random, column, 99, ROWS, near) for column in theme.numbers)
    groups = random.choices(theme.groups, k=ROWS)
    rows = [list(row) for row in zip(names, groups, first, second, strict=True)]
    tables = [{"name": theme.table, "columns": ["name", theme.group, *theme.numbers], "rows": rows}]
    if both:
        numbers = _random_numbers(random, theme.number, 9, len(theme.groups), near)
        others = [list(row) for row in zip(theme.groups, numbers, strict=True)]
        tables.append({"name": theme.other, "columns": [theme.group, theme.number], "rows": others})
    return tables


def _random_numbers(
    random: Random, column: str, most: int, count: int, near: _NearThreshold | None
) -> list[int]:
    """Return different numbers from 1 to ``most``; those of the column in ``near`` lie as it
    says."""
    if near is None or near.column != column:
        return random.sample(range(1, most + 1), count)
    others = [n for n in range(near.low, min(near.high, most) + 1) if n not in near.holds]
    found = [*near.holds, *random.sample(others, count - len(near.holds))]
    random.shuffle(found)
    return found


def _random_condition(random: Random, theme: _Theme) -> str:
    if random.random() < 0.3:
        return f"{theme.group}='{random.choice(theme.groups)}'"
    return f"{random.choice(theme.numbers)}{random.choice('<>')}{random.randint(20, 80)}"


def _filter_question(random: Random, theme: _Theme) -> tuple[str, str, bool]:
    column, condition = random.choice(("name", *theme.numbers)), _random_condition(random, theme)
    words = f"{column} where {condition}"
    return words, f"select {column} from {theme.table} where {condition}", False


def _aggregate_question(random: Random, theme: _Theme) -> tuple[str, str, bool]:
    column, condition = random.choice(theme.numbers), _random_condition(random, theme)
    phrase, function = random.choice(
        [("sum", "sum"), ("largest", "max"), ("smallest", "min"), ("average", "avg")]
    )
    words = f"{phrase} of {column} where {condition}"
    return words, f"select {function}({column}) from {theme.table} where {condition}", False


def _order_question(random: Random, theme: _Theme) -> tuple[str, str, bool]:
    column = random.choice(theme.numbers)
    if random.random() < 0.5:
        function = random.choice(("sum", "max", "min"))
        query = (
            f"select {theme.group},{function}({column}) from {theme.table} group by {theme.group}"
        )
        return f"each {theme.group} with its {function} of {column}", query, False
    count = random.randint(2, 5)
    phrase, direction = random.choice([("most", " desc"), ("least", "")])
    query = f"select name from {theme.table} order by {column}{direction} limit {count}"
    return f"the {count} names with {phrase} {column}, in that order", query, True


def _join_question(random: Random, theme: _Theme) -> tuple[str, str, bool]:
    condition = f"{theme.number}{random.choice('<>')}{random.randint(3, 7)}"
    column = random.choice(("name", *theme.numbers))
    table = f"{theme.table} join {theme.other} using({theme.group})"
    query = f"select {column} from {table} where {condition}"
    return f"{column} where {condition}", query, False
