"""Metrics sinks, progress, result reading, comparisons in words, pictures, report pages, films.

The room itself can be called: ``sterling.report(...)`` writes a report, like ``sterling report``.
"""

import sys
from types import ModuleType
from typing import Any


class _CallableRoom(ModuleType):
    """A module that can be called: ``sterling.report`` names this room and the function alike."""

    def __call__(self, *runs: Any, **options: Any) -> Any:
        """Write a report about ``runs``; see ``report.build_report.report_on``."""
        from sterling.report.build_report import report_on

        return report_on(*runs, **options)


sys.modules[__name__].__class__ = _CallableRoom
