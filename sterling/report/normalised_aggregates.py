"""Aggregates of normalised scores over several environments, for a comparison in a terminal."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

from sterling.report.compare_text import wrap_text
from sterling.report.normalised_groups import (
    aggregate_estimates,
    left_out_text,
    normalise_groups,
)
from sterling.report.runs.run_groups import RunGroup
from sterling.report.text_tables import text_table


@dataclasses.dataclass(frozen=True)
class NormalisedAggregates:
    """The estimate of every aggregate, by aggregate and label; or why there is none."""

    missing: str = ""
    table: str = ""
    environments: Sequence[str] = ()
    aggregates: dict[str, dict[str, Any]] = dataclasses.field(default_factory=dict)
    left_out: str = ""

    def __str__(self) -> str:
        if self.missing:
            return wrap_text(f"No normalised scores. {self.missing}")
        labels = next(iter(self.aggregates.values()))
        rows = [
            ["  " + label, *(str(each[label]) for each in self.aggregates.values())]
            for label in labels
        ]
        head = f"Normalised by {self.table} over {', '.join(self.environments)}"
        header = ["  ", *self.aggregates]
        lines = [wrap_text(head), text_table(header, rows, "l" + "r" * len(self.aggregates))]
        return "\n".join([*lines, *([wrap_text(self.left_out)] if self.left_out else [])])

    def to_json(self) -> dict[str, Any]:
        """Return what there is, as plain values and dataclasses."""
        if self.missing:
            return {"missing": self.missing}
        named = ("table", "environments", "aggregates", "left_out")
        return {name: getattr(self, name) for name in named}


def normalised_aggregates(
    groups: list[RunGroup], table: str, scoring: dict[str, Any]
) -> NormalisedAggregates:
    """Normalise the scores of ``groups`` by a table's name or file, and aggregate them over the
    environments; ``scoring`` has metric, failed, alpha and key."""
    found = normalise_groups(groups, table, scoring["metric"], scoring["failed"])
    if isinstance(found, str):
        return NormalisedAggregates(missing=found)
    made = aggregate_estimates(found, level=1 - scoring["alpha"], key=scoring["key"])
    left_out = left_out_text(found)
    return NormalisedAggregates("", found.table.identity, found.environments, made, left_out or "")
