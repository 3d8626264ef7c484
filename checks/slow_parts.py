"""Divide tests into parts that take about equally long; as a plugin of pytest, run one of them.

``pytest -p checks.slow_parts --part 3/6``.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence

import pytest

from checks import durations


def parse(words: str) -> tuple[int, int]:
    """Return which part ``3/6`` is and of how many. Raises ValueError for anything else."""
    part, slash, count = words.partition("/")
    if not (slash and part.isdecimal() and count.isdecimal() and 1 <= int(part) <= int(count)):
        raise ValueError(f"Unknown part {words!r}. Use for example 3/6.")
    return int(part), int(count)


def divide(tests: Sequence[str], known: Mapping[str, float], count: int) -> list[list[str]]:
    """Return ``count`` parts of tests, each in the order given; every test is in one part.

    Tests of one file with the same case stay together, because they share that case's fixture;
    so do a file's tests without cases. The longest group goes to the shortest part so far.
    """
    groups: dict[tuple[str, str], list[str]] = defaultdict(list)
    for test in sorted(tests):
        file, _, case = durations.split(test)
        groups[file, case or ""].append(test)
    seconds = {
        key: sum(known.get(test, durations.UNKNOWN) for test in group)
        for key, group in groups.items()
    }
    loads, parts = [0.0] * count, [set[str]() for _ in range(count)]
    for key in sorted(groups, key=lambda key: (-seconds[key], key)):
        least = loads.index(min(loads))
        loads[least] += seconds[key]
        parts[least] |= set(groups[key])
    return [[test for test in tests if test in part] for part in parts]


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add ``--part``."""
    parser.addoption("--part", type=parse, help="run one of several equal parts: 3/6")


@pytest.hookimpl(trylast=True)  # after tests were chosen by their marks
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Deselect the tests of other parts."""
    if not config.getoption("part"):
        return
    part, count = config.getoption("part")
    own = set(divide([item.nodeid for item in items], durations.load(), count)[part - 1])
    config.hook.pytest_deselected(items=[item for item in items if item.nodeid not in own])
    items[:] = [item for item in items if item.nodeid in own]


def pytest_sessionfinish(session: pytest.Session) -> None:
    """A part without tests has not failed."""
    if session.exitstatus == pytest.ExitCode.NO_TESTS_COLLECTED:
        session.exitstatus = pytest.ExitCode.OK
