"""Questions about a table, answered by a query that is executed."""

from __future__ import annotations

import functools
import re
from random import Random
from typing import Any, NamedTuple

from sterling.language import database
from sterling.language.adapters.worker import Fault, Worker
from sterling.language.task import RIGHT, Task, Verdict, code_answer, unjudged
from sterling.language.tasks.puzzle import Puzzle

SECONDS = 5.0  # for a verdict; its process is killed after so many
MEMORY = 2**30  # bytes of that process
TABLES = 3  # hidden databases that a query has to be right on
ROWS = 8
DRAWN = 60  # databases that are looked at for one that tells a wrong query from the right one
AGAIN = 4  # times that all are drawn again where three were not enough
NAMES = ("ada", "bo", "cy", "di", "ed", "flo", "gus", "hal", "ida", "jo", "kim", "lou")


class _Theme(NamedTuple):
    table: str
    group: str  # a column of words
    groups: tuple[str, ...]
    numbers: tuple[str, str]  # columns of numbers
    other: str  # a second table: one row for each word of ``group``, with a number
    number: str


Tables = list[database.Table]
LIMIT = re.compile(r"where (?P<column>\w+)[<>](?P<number>\d+)")

THEMES = (
    _Theme("people", "city", ("rome", "oslo", "lima"), ("age", "size"), "cities", "rank"),
    _Theme("items", "kind", ("tool", "toy", "book"), ("price", "stock"), "kinds", "shelf"),
    _Theme("games", "team", ("red", "blue", "gold"), ("score", "minute"), "teams", "year"),
)


class _Near(NamedTuple):
    """A column's numbers: from ``low`` to ``high``, with those that it ``holds`` among them."""

    column: str
    low: int
    high: int
    holds: tuple[int, ...]


class Sql(Puzzle):
    """A question about a table: ``people(name,city,age,size): name where age>30`` ->
    ``select name from people where age>30``.

    The answer is one SELECT statement for SQLite, in a fenced block or not. It is executed on
    three hidden databases of eight rows each and has to give the asked rows on all of them, so
    a constant never helps; the order of rows only counts where one is asked for. It runs in a
    process of its own and can only read these tables, with functions that depend on nothing else
    (others are "forbidden": :data:`sterling.language.database.FUNCTIONS`). One that takes more than
    200,000 steps of SQLite, or more than five seconds, is a "timeout"; an invalid one an "error".

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
        """A question, its query, and databases that tell the query from others."""
        theme = random.choice(THEMES)
        ask = (_filtered, _aggregate, _ordered, _joined)[level]
        words, query, ordered = ask(random, theme)
        bases = _told_apart(random, theme, query, level == 3)
        schema = " ".join(f"{t['name']}({','.join(t['columns'])})" for t in bases[0])
        return f"{schema}: {words}", {"query": query, "ordered": ordered, "bases": bases}

    def judge(self, task: Task, answer: str) -> Verdict:
        """Execute the query, and the right one beside it, in a process of its own."""
        known = task.answer
        question = [known["bases"], known["query"], answer, known["ordered"]]
        try:
            reason = _worker().ask(question, SECONDS)
        except Fault as fault:
            return unjudged(fault.kind, fault.detail)
        return RIGHT if reason == "right" else Verdict(0.0, reason)

    def extract(self, response: str) -> str:
        """The query, out of its fences."""
        return code_answer(response)

    def solve(self, task: Task) -> str:
        """The query that the question was made with."""
        return str(task.answer["query"])


@functools.cache
def _worker() -> Worker:
    return Worker("sterling.language.database:answering", None, SECONDS, MEMORY)


def _told_apart(random: Random, theme: _Theme, query: str, both: bool) -> list[Tables]:
    """Databases on which the query's rows are not all the same, and of its mutants' rows some are
    others; those that no database told apart in so many tries may mean the same."""
    best: list[Tables] = []
    fewest = len(query)  # more than there are mutants
    for _ in range(AGAIN):
        bases, left = _chosen(random, theme, query, both)
        if left < fewest:
            best, fewest = bases, left
        if not left:
            break
    return best


def _chosen(random: Random, theme: _Theme, query: str, both: bool) -> tuple[list[Tables], int]:
    """Databases, each of which tells mutants apart that those before did not; how many are left."""
    left, drawn = _mutants(query), 0
    bases: list[Tables] = []
    seen: list[list[database.Row]] = []
    while len(bases) < TABLES:
        drawn += 1
        useful = bool(left) and drawn <= DRAWN
        base = _base(random, theme, both, _near(random, query) if useful else None)
        truth, *others = database.answers(base, [query, *left])
        if not truth or (len(bases) == TABLES - 1 and all(truth == rows for rows in seen)):
            continue
        same = [each for each, rows in zip(left, others, strict=True) if _same(rows, truth)]
        if useful and len(same) == len(left):
            continue
        left, bases, seen = same, [*bases, base], [*seen, truth]
    return bases, len(left)


def _same(rows: list[database.Row], truth: list[database.Row]) -> bool:
    return database.equal(rows, truth, ordered=False)


def _mutants(query: str) -> list[str]:
    """Queries that miss a part of the question by little."""
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


def _near(random: Random, query: str) -> _Near | None:
    """How the filtered column is to lie around its threshold; None: anyhow."""
    limit = LIMIT.search(query)
    if limit is None:
        return None
    at, most = int(limit["number"]), 99
    ends = [(1, at, (at,)), (1, at + 1, (at + 1,)), (at, most, (at,)), (at - 1, most, (at - 1,))]
    low, high, holds = random.choice([(1, most, (at - 1, at, at + 1)), *ends])
    return _Near(limit["column"], low, high, holds)


def _base(random: Random, theme: _Theme, both: bool, near: _Near | None) -> Tables:
    """Names and numbers are all different, so that an order is never ambiguous."""
    names = random.sample(NAMES, ROWS)
    first, second = (_numbers(random, column, 99, ROWS, near) for column in theme.numbers)
    groups = random.choices(theme.groups, k=ROWS)
    rows = [list(row) for row in zip(names, groups, first, second, strict=True)]
    tables = [{"name": theme.table, "columns": ["name", theme.group, *theme.numbers], "rows": rows}]
    if both:
        numbers = _numbers(random, theme.number, 9, len(theme.groups), near)
        others = [list(row) for row in zip(theme.groups, numbers, strict=True)]
        tables.append({"name": theme.other, "columns": [theme.group, theme.number], "rows": others})
    return tables


def _numbers(random: Random, column: str, most: int, count: int, near: _Near | None) -> list[int]:
    """Different numbers from 1 to ``most``; of the column that is meant as ``near`` says."""
    if near is None or near.column != column:
        return random.sample(range(1, most + 1), count)
    others = [n for n in range(near.low, min(near.high, most) + 1) if n not in near.holds]
    found = [*near.holds, *random.sample(others, count - len(near.holds))]
    random.shuffle(found)
    return found


def _condition(random: Random, theme: _Theme) -> str:
    if random.random() < 0.3:
        return f"{theme.group}='{random.choice(theme.groups)}'"
    return f"{random.choice(theme.numbers)}{random.choice('<>')}{random.randint(20, 80)}"


def _filtered(random: Random, theme: _Theme) -> tuple[str, str, bool]:
    column, condition = random.choice(("name", *theme.numbers)), _condition(random, theme)
    words = f"{column} where {condition}"
    return words, f"select {column} from {theme.table} where {condition}", False


def _aggregate(random: Random, theme: _Theme) -> tuple[str, str, bool]:
    column, condition = random.choice(theme.numbers), _condition(random, theme)
    said, function = random.choice(
        [("sum", "sum"), ("largest", "max"), ("smallest", "min"), ("average", "avg")]
    )
    words = f"{said} of {column} where {condition}"
    return words, f"select {function}({column}) from {theme.table} where {condition}", False


def _ordered(random: Random, theme: _Theme) -> tuple[str, str, bool]:
    column = random.choice(theme.numbers)
    if random.random() < 0.5:
        said = random.choice(("sum", "max", "min"))
        query = f"select {theme.group},{said}({column}) from {theme.table} group by {theme.group}"
        return f"each {theme.group} with its {said} of {column}", query, False
    count = random.randint(2, 5)
    said, way = random.choice([("most", " desc"), ("least", "")])
    query = f"select name from {theme.table} order by {column}{way} limit {count}"
    return f"the {count} names with {said} {column}, in that order", query, True


def _joined(random: Random, theme: _Theme) -> tuple[str, str, bool]:
    condition = f"{theme.number}{random.choice('<>')}{random.randint(3, 7)}"
    column = random.choice(("name", *theme.numbers))
    table = f"{theme.table} join {theme.other} using({theme.group})"
    query = f"select {column} from {table} where {condition}"
    return f"{column} where {condition}", query, False
