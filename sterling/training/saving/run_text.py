"""The one line about a run that Python shows for it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from sterling.statistics.scores.headline import HEADLINE_METRICS, Headline
from sterling.training.config.run_options import BUDGETS
from sterling.training.config.settings import Settings


def run_text(settings: Settings, result: dict[str, Any], path: Path | None) -> str:
    """Return a run's algorithm, environment, budget, return with its interval, and folder."""
    final = result.get("final", {})
    name = next((each for each in HEADLINE_METRICS if each in final), None)
    score = "not evaluated" if name is None else f"{name} {Headline.from_json(final[name])}"
    spent = [f"{result[unit]:,} {unit}" for unit in BUDGETS if result.get(unit)]
    where = "in no folder" if path is None else f"in {path}"
    parts = [settings.title, settings.name, *spent, score, where]
    return f"TrainedRun({', '.join(filter(None, parts))})"
