"""What may be wrong with a dataset, as a list that a program or a person can read."""

from __future__ import annotations

import dataclasses
from typing import Literal

Severity = Literal["error", "warning"]

DROP = "drop the episode"
CLIP = "clip to the bounds"
INWARD = "move them inside by a hundred-thousandth of the range"
CAST = "convert to the space's type"
LEAVE_OUT = "leave such steps out, which cuts the episode there"
SPLIT = "end the episode there and begin another"
CUTS = "make them cuts (discount 1)"
GIVE_UP = "give up the last step, whose successor is unknown"
COPY = "put a copy of the observation before there"


@dataclasses.dataclass(frozen=True)
class Finding:
    """One thing that is wrong, and where.

    An error makes learning wrong; a warning may be meant so. ``kind`` is a word to sort by.
    """

    severity: Severity
    kind: str
    said: str
    episode: int | None = None  # None: of the whole dataset
    step: int | None = None  # within the episode, from 0
    fix: str = ""  # what :func:`sterling.data.repair.repaired` does; empty: it leaves it alone

    def __str__(self) -> str:
        place = "" if self.episode is None else f" episode {self.episode}"
        place += "" if self.step is None else f" step {self.step}"
        remedy = f"; fix: {self.fix}" if self.fix else ""
        return f"{self.severity}: {self.kind}:{place or ' dataset'}: {self.said}{remedy}"
