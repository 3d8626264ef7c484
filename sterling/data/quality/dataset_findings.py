"""A finding about a dataset: what is wrong, where, and how it can be repaired."""

from __future__ import annotations

import dataclasses
from typing import Literal

Severity = Literal["error", "warning"]

DROP_EPISODE = "drop the episode"
CLIP_ACTIONS = "clip to the bounds"
MOVE_INWARD = "move them inside the bounds by a hundred-thousandth of the range"
CAST_COLUMN = "convert to the space's type"
DROP_STEPS = "drop these steps and split the episode there"
SPLIT_EPISODE = "end the episode there and begin another"
MARK_TRUNCATED = "mark them as truncated (discount 1)"
DROP_LAST_STEP = "drop the last step, whose successor is unknown"
COPY_OBSERVATION = "replace it by a copy of the observation before"


@dataclasses.dataclass(frozen=True)
class Finding:
    """One thing that is wrong with a dataset, and where.

    An error makes learning wrong; a warning may be intended. ``kind`` is a keyword to sort by.
    """

    severity: Severity
    kind: str
    message: str
    episode: int | None = None  # None: the whole dataset
    step: int | None = None  # within the episode, from 0
    fix: str = ""  # what ``dataset_repair.repair_dataset`` does; empty: it is not repaired

    def __str__(self) -> str:
        place = "" if self.episode is None else f" episode {self.episode}"
        place += "" if self.step is None else f" step {self.step}"
        remedy = f"; fix: {self.fix}" if self.fix else ""
        return f"{self.severity}: {self.kind}:{place or ' dataset'}: {self.message}{remedy}"
