"""A plugin of pytest: only the cases that a change can affect run.

The file that :data:`CASES_FILE` names has test file -> test function -> its ``selection.Cases``.
"""

import json
import os
from pathlib import Path

import pytest

from checks.name_tables import ROOT
from checks.selection import Cases

CASES_FILE = "STERLING_CHANGED_CASES"


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Deselect the cases that were not chosen."""
    chosen = json.loads(Path(os.environ[CASES_FILE]).read_text())
    kept = [item for item in items if _runs(item, chosen)]
    config.hook.pytest_deselected(items=[item for item in items if item not in set(kept)])
    items[:] = kept


def _runs(item: pytest.Item, chosen: dict[str, dict[str, dict[str, object]]]) -> bool:
    tests = chosen.get(item.path.relative_to(ROOT).as_posix(), {})
    cases = tests.get("*") or tests.get(getattr(item, "originalname", item.name))
    callspec = getattr(item, "callspec", None)
    return cases is not None and Cases(**cases).keeps(callspec and callspec.id)


def pytest_sessionfinish(session: pytest.Session) -> None:
    """A group of which nothing is left has not failed."""
    if session.exitstatus == pytest.ExitCode.NO_TESTS_COLLECTED:
        session.exitstatus = pytest.ExitCode.OK
