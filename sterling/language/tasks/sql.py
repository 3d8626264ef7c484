"""Questions about a table, answered by a query that is executed."""

from __future__ import annotations

from random import Random
from typing import Any, NamedTuple

from sterling.language.task import RIGHT, WRONG, Task, Verdict, code_answer
from sterling.language.tasks import database
from sterling.language.tasks.puzzle import Puzzle

TABLES = 3  # hidden databases that a query has to be right on
ROWS = 8
NAMES = ("ada", "bo", "cy", "di", "ed", "flo", "gus", "hal", "ida", "jo", "kim", "lou")


class _Theme(NamedTuple):
    table: str
    group: str  # a column of words
    groups: tuple[str, ...]
    numbers: tuple[str, str]  # columns of numbers
    other: str  # a second table: one row for each word of ``group``, with a number
    number: str


THEMES = (
    _Theme("people", "city", ("rome", "oslo", "lima"), ("age", "size"), "cities", "rank"),
    _Theme("items", "kind", ("tool", "toy", "book"), ("price", "stock"), "kinds", "shelf"),
    _Theme("games", "team", ("red", "blue", "gold"), ("score", "minute"), "teams", "year"),
)


class Sql(Puzzle):
    """A question about a table: ``people(name,city,age,size): name where age>30`` ->
    ``select name from people where age>30``.

    The answer is one SELECT statement for SQLite, in a fenced block or not. It is executed on
    three hidden databases of eight rows each and has to give the asked rows on all of them, so
    a constant never helps; the order of rows only counts where one is asked for. It cannot write
    ("forbidden"), nor run long ("timeout"); an invalid one is an "error".

    Levels: 0 a condition; 1 an aggregate under a condition; 2 the first rows in an order, or
    groups; 3 a join of two tables. Prompt 44-55, 51-67, 57-75, 62-67 characters; answer 35-42,
    40-47, 44-51, 58-60.
    """

    name = "sql"
    levels = range(4)

    def pose(self, random: Random, level: int) -> tuple[str, dict[str, Any]]:
        """A question, its query, and databases on which the query's rows are not all the same."""
        theme = random.choice(THEMES)
        ask = (_filtered, _aggregate, _ordered, _joined)[level]
        words, query, ordered = ask(random, theme)
        while True:
            bases = [_base(random, theme, both=level == 3) for _ in range(TABLES)]
            found = [database.ask(base, query).rows or [] for base in bases]
            if all(found) and any(rows != found[0] for rows in found):
                schema = " ".join(f"{t['name']}({','.join(t['columns'])})" for t in bases[0])
                answer = {"query": query, "ordered": ordered, "bases": bases}
                return f"{schema}: {words}", answer

    def judge(self, task: Task, answer: str) -> Verdict:
        """Execute the query, and the right one beside it."""
        known = task.answer
        for base in known["bases"]:
            truth = database.ask(base, known["query"]).rows or []
            found = database.ask(base, answer, len(truth) + 1)
            if found.rows is None:
                return Verdict(0.0, found.reason)
            if not database.equal(found.rows, truth, known["ordered"]):
                return WRONG
        return RIGHT

    def extract(self, response: str) -> str:
        """The query, out of its fences."""
        return code_answer(response)

    def solve(self, task: Task) -> str:
        """The query that the question was made with."""
        return str(task.answer["query"])


def _base(random: Random, theme: _Theme, both: bool) -> list[database.Table]:
    """Names and numbers are all different, so that an order is never ambiguous."""
    names = random.sample(NAMES, ROWS)
    first, second = (random.sample(range(1, 100), ROWS) for _ in range(2))
    groups = random.choices(theme.groups, k=ROWS)
    rows = [list(row) for row in zip(names, groups, first, second, strict=True)]
    tables = [{"name": theme.table, "columns": ["name", theme.group, *theme.numbers], "rows": rows}]
    if both:
        numbers = random.sample(range(1, 10), len(theme.groups))
        others = [list(row) for row in zip(theme.groups, numbers, strict=True)]
        tables.append({"name": theme.other, "columns": [theme.group, theme.number], "rows": others})
    return tables


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
