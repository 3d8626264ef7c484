"""Tasks about lists of numbers: largest, sum, order, counts, indices."""

from __future__ import annotations

import re
from random import Random

from sterling.language.task import Task, Verdict
from sterling.language.tasks.task_checks import Puzzle, compare_values, parse_whole_number

SIZES = ((3, 9), (4, 9), (6, 20), (8, 99), (12, 999))  # how many numbers, and the largest, by level
OPERATIONS = (
    ("max", "min", "reverse", "first"),
    ("max", "min", "reverse", "sort", "count"),
    ("max", "min", "sum", "sort", "unique", "count", "index"),
    ("range", "sum", "sort", "unique", "count", "index", "evens"),
    ("range", "sum", "sort", "unique", "count", "index", "evens", "median"),
)
SEPARATOR = re.compile(r"[ ,]+")


class ListOperations(Puzzle):
    """An operation on a list: ``sort 3 9 4`` -> ``3 4 9``, ``count 3 in 3 9 3`` -> ``2``.

    Operations: ``max``, ``min``, ``sum``, ``range`` (max - min), ``median`` (of an odd count),
    ``first``, ``count X in`` and ``index X in`` (first place, from 0); ``sort``, ``reverse``,
    ``unique`` (first occurrences, in their order) and ``evens`` answer with a list: numbers
    between blanks or commas, with or without brackets. Levels 0 to 4: 3, 4, 6, 8 and 12 numbers
    (13 for a median) up to 9, 9, 20, 99 and 999, and more operations. Prompt 9-13, 11-18, 15-29,
    22-35, 45-60 characters; answer 1-5, 1-7, 1-17, 1-23, 1-47.
    """

    name = "list-operations"
    levels = range(len(SIZES))

    def pose(self, random: Random, level: int) -> tuple[str, list[int]]:
        """Return an operation with its list, and the numbers to answer."""
        count, largest = SIZES[level]
        operation = random.choice(OPERATIONS[level])
        numbers = [random.randint(0, largest) for _ in range(count + (operation == "median"))]
        if operation in ("unique", "count"):  # something must be there twice
            numbers[random.randrange(1, count)] = numbers[0]
        chosen = random.choice(numbers)
        numbers[0] -= numbers[0] % 2 if operation == "evens" else 0  # one is always even
        what = f"{operation} {chosen} in" if operation in ("count", "index") else operation
        return f"{what} {' '.join(map(str, numbers))}", _apply_operation(operation, numbers, chosen)

    def judge(self, task: Task, answer: str) -> Verdict:
        """Compare the answer with the right one number by number."""
        return compare_values(_parse_numbers(answer), task.answer)

    def solve(self, task: Task) -> str:
        """Return the numbers with blanks between them."""
        return " ".join(map(str, task.answer))


def _apply_operation(operation: str, numbers: list[int], chosen: int) -> list[int]:
    lists = {
        "sort": sorted(numbers),
        "reverse": numbers[::-1],
        "unique": list(dict.fromkeys(numbers)),
        "evens": [each for each in numbers if each % 2 == 0],
    }
    if operation in lists:
        return lists[operation]
    single = {
        "max": max(numbers),
        "min": min(numbers),
        "sum": sum(numbers),
        "range": max(numbers) - min(numbers),
        "median": sorted(numbers)[len(numbers) // 2],
        "first": numbers[0],
    }
    if operation in single:
        return [single[operation]]
    return [numbers.count(chosen) if operation == "count" else numbers.index(chosen)]


def _parse_numbers(text: str) -> list[int] | None:
    if text.startswith("[") and text.endswith("]"):
        text = text[1:-1].strip()
    found = [parse_whole_number(part) for part in SEPARATOR.split(text)]
    return None if None in found else [each for each in found if each is not None]
