"""What one more listed algorithm costs ``make test``: the tests that have cases of every algorithm.

Whatever has a case of every algorithm makes each new one dearer for all who run the tests. So such
tests are listed here with the cases that one algorithm adds, ``tests/conftest.py`` refuses others
when they are collected, and ``test_cost_of_an_algorithm.py`` limits their sum. What costs no
compiling is one test that names all offenders.
"""

from __future__ import annotations

import re
import statistics
from collections import Counter, defaultdict
from collections.abc import Iterable
from pathlib import Path
from typing import Any

TESTS = Path(__file__).parent
MOST_CASES, MOST_COMPILING = 12, 2  # that one algorithm adds
MANY = 12  # cases that name so many algorithms grow with their list
COMPILING = {  # test -> cases that one algorithm adds
    "contract/test_update_oracles.py::test_its_updates_equal_their_oracles": 1,
    "algorithms/test_fresh_agents.py::test_a_new_agent": 1,
}
STATIC = {  # shapes are traced, or files are read
    "contract/test_networks.py::test_every_algorithm_uses_the_chosen_encoder_and_layer_sizes": 1,
}
LANGUAGE = {  # in place of the first three
    "contract/test_language_oracles.py::test_language_update_equals_its_numpy_oracle": 1,
}
LISTED = COMPILING | STATIC | LANGUAGE


def grown(items: Iterable[Any]) -> list[str]:
    """Return a line for every test that has more cases of each algorithm than are listed."""
    cases: dict[str, Counter[str]] = defaultdict(Counter)
    for item in items:
        if hasattr(item, "callspec"):
            test = f"{item.path.relative_to(TESTS).as_posix()}::{item.originalname}"
            cases[test].update(named(item.callspec))
    wrong = []
    for test, counts in cases.items():
        each, listed = statistics.median(counts.values() or [0]), LISTED.get(test, 0)
        if len(counts) >= MANY and each > listed:
            found = f"{test} has {each:.0f} cases of each of {len(counts)} algorithms"
            listed_in = f"{listed} are listed in tests/cost_of_an_algorithm.py"
            wrong.append(f"{found}, and {listed_in}: make it one test that names all offenders")
    return wrong


def named(callspec: Any) -> set[str]:
    """Return the algorithms that a case is about, by its name or by its parameters."""
    from sterling.algorithms import ALGORITHMS  # late: annotations may have to be switched on first

    plain = [str(value) for value in callspec.params.values() if isinstance(value, (str, Path))]
    words = re.findall(r"[a-z0-9+-]+", " ".join([callspec.id, *plain]).replace("_", "-"))
    return set(words) & set(ALGORITHMS)
