"""What a run of several seeds came to, in one place: a number only where there is one to be given.

Leaving failed seeds out of a mean makes an algorithm look better the more it fails: of the scores
900, 950, failed, failed, failed the mean of those that did not fail is 925. So by default
(``failed=None``) there is no single estimate where a seed failed: the survivors' mean is stated as
theirs, with the count of failures, and where the worst possible score is declared an estimate that
counts failures at it. ``failed`` (a number, "worst", "exclude") chooses otherwise.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import Any

from sterling.statistics import declared
from sterling.statistics.interval import Estimate, estimate
from sterling.statistics.scores import Failed

FEW = 5  # seeds, up to which each one's score stands beside the interval


@dataclasses.dataclass(frozen=True)
class Headline:
    """The scores of one run's seeds, and what may be said of them."""

    per_seed: tuple[float | None, ...]  # None: failed
    made: Estimate | None  # None: seeds failed and nothing says what they count as, or no seed
    survivors: Estimate | None = None  # of the seeds that did not fail, where ``made`` is None
    at_worst: Estimate | None = None  # counts failures at the worst possible score, if declared
    within: declared.Bounds = (None, None)
    better: int = 1  # -1: less is better, 0: neither

    @property
    def lost(self) -> int:
        """How many seeds failed."""
        return sum(score is None for score in self.per_seed)

    @property
    def worst(self) -> float | None:
        """The worst possible score, where it is declared."""
        return declared.worst(self.within, self.better)

    @property
    def shown(self) -> Estimate | None:
        """What a picture can show: the estimate, or else the survivors'."""
        return self.made or self.survivors

    def __str__(self) -> str:
        if self.made is not None:
            return str(self.made)
        told = f"{self.lost} of {len(self.per_seed)} seeds failed"
        if self.survivors is not None:
            told += f"; mean of the other {self.survivors.n}: {self.survivors}"
        if self.at_worst is not None:
            told += f"; with failures at the worst, {self.worst:g}: {self.at_worst}"
        return told

    @property
    def seeds(self) -> str:
        """Each seed's score, where there are at most five and more than one; else nothing."""
        if not 1 < len(self.per_seed) <= FEW:
            return ""
        return ", ".join("failed" if x is None else f"{x:.4g}" for x in self.per_seed)

    @property
    def caution(self) -> str:
        """What so many seeds cannot exclude; "" where the interval allows for it."""
        return self.shown.caution if self.shown is not None else ""

    def explained(self) -> str:
        """The text, the scores of few seeds, and how the interval was made."""
        told = str(self)
        if self.seeds:
            told += f", seeds {self.seeds}"
        made = self.shown
        if made is not None and made.low is not None:
            told += f" ({made.level:.0%} {made.method} interval over {made.n} seeds)"
        return f"{told}; {self.caution}" if self.caution else told

    def to_json(self) -> dict[str, Any]:
        """Plain values, as under ``final.return`` of ``result.json``."""
        made = self.made or Estimate(
            math.nan, None, None, len(self.per_seed) - self.lost, self._why(), self._level()
        )
        plain = made.to_json()
        value = plain.pop("value")
        plain = {"per_seed": list(self.per_seed), "estimate": None if self.made is None else value}
        plain |= {name: x for name, x in made.to_json().items() if name != "value"}
        if self.lost:
            plain["failed"] = self.lost
        for name in ("survivors", "at_worst"):
            part = getattr(self, name)
            if part is not None:
                plain[name] = part.to_json()
        if self.within != (None, None):
            plain["within"] = list(self.within)
        if self.better != 1:
            plain["better"] = self.better
        return plain | ({"caution": self.caution} if self.caution else {})

    @classmethod
    def from_json(cls, plain: dict[str, Any]) -> Headline:
        """The inverse; older files, which hold no more than an estimate, are read too."""
        parts = {name: plain.get(name) for name in ("survivors", "at_worst")}
        value = plain.get("estimate", plain.get("value"))
        return cls(
            tuple(plain.get("per_seed", ())),
            None if value is None else Estimate.from_json(plain),
            **{name: None if x is None else Estimate.from_json(x) for name, x in parts.items()},
            within=declared.checked(plain.get("within")),
            better=plain.get("better", 1),
        )

    def _why(self) -> str:
        return f"none ({self.lost} of {len(self.per_seed)} seeds failed)"

    def _level(self) -> float:
        return self.survivors.level if self.survivors is not None else 0.95


def headline(
    scores: Sequence[float | None],
    *,
    failed: Failed = None,
    within: declared.Within = None,
    level: float = 0.95,
    key: int = 0,
    better: int = 1,
) -> Headline:
    """Return what may be said of each seed's score, None or NaN where it failed. ``better``: -1
    where less is better, 0 where neither is.

    Raises Mistake for ``failed="worst"`` where the worst possible score is not declared.
    """
    per_seed = tuple(None if x is None or math.isnan(x) else float(x) for x in scores)
    bounds = declared.checked(within)
    known = [x for x in per_seed if x is not None]
    rule = declared.counted_as(failed, within, better)
    how: dict[str, Any] = {"within": bounds, "level": level, "key": key}
    if not per_seed or (not known and rule in (None, "exclude")):
        return Headline(per_seed, None, within=bounds, better=better)
    table = [math.nan if x is None else x for x in per_seed]
    if len(known) == len(per_seed) or rule is not None:
        return Headline(per_seed, estimate(table, failed=rule, **how), within=bounds, better=better)
    worst = declared.worst(bounds, better)
    at_worst = None if worst is None else estimate(table, failed=worst, **how)
    return Headline(per_seed, None, estimate(known, **how), at_worst, bounds, better)
