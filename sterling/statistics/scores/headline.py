"""The result of a run's seeds: a single number only where one can honestly be given.

Leaving failed seeds out of a mean makes an algorithm look better the more it fails: of the scores
900, 950, failed, failed, failed the mean of those that did not fail is 925. So by default
(``failed=None``) there is no single estimate where a seed failed: the survivors' mean is stated as
theirs, with the count of failures, and where the worst possible score is declared, so is an
estimate in which failures count as that. ``failed`` (a number, "worst", "exclude") chooses
otherwise.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Sequence
from typing import Any

from sterling.statistics.intervals.estimates import Estimate, estimate
from sterling.statistics.scores import score_bounds
from sterling.statistics.scores.score_table import FailedRule

# what a run is known by: the first that it has; the second of runs on texts alone
HELD_OUT_LOSS = "held_out/loss"
HEADLINE_METRICS = ("return", HELD_OUT_LOSS)
NAMED_REWARD = "reward/"  # before the name of a named reward of answers, in the names of metrics
MAX_LISTED_SEEDS = 5  # up to so many seeds, each seed's score is shown next to the interval


@dataclasses.dataclass(frozen=True)
class Headline:
    """The scores of one run's seeds, and the estimates they permit."""

    per_seed: tuple[float | None, ...]  # None: failed
    made: Estimate | None  # None: no seed, or seeds failed and no rule says what they count as
    survivors: Estimate | None = None  # of the seeds that did not fail, where ``made`` is None
    at_worst: Estimate | None = None  # counts failures at the worst possible score, if declared
    within: score_bounds.Bounds = (None, None)
    better: int = 1  # -1: lower is better, 0: neither

    @property
    def lost(self) -> int:
        """Return how many seeds failed."""
        return sum(score is None for score in self.per_seed)

    @property
    def worst(self) -> float | None:
        """Return the worst possible score, where it is declared; else None."""
        return score_bounds.worst_score(self.within, self.better)

    @property
    def shown(self) -> Estimate | None:
        """Return the estimate to draw: the single one, or else the survivors'."""
        return self.made or self.survivors

    def __str__(self) -> str:
        if self.made is not None:
            return str(self.made)
        text = f"{self.lost} of {len(self.per_seed)} seeds failed"
        if self.survivors is not None:
            text += f"; mean of the other {self.survivors.n}: {self.survivors}"
        if self.at_worst is not None:
            text += f"; with failures at the worst, {self.worst:g}: {self.at_worst}"
        return text

    @property
    def seeds(self) -> str:
        """Return each seed's score as text, for two to five seeds; else ""."""
        if not 1 < len(self.per_seed) <= MAX_LISTED_SEEDS:
            return ""
        return ", ".join("failed" if x is None else f"{x:.4g}" for x in self.per_seed)

    @property
    def caution(self) -> str:
        """Return the sentence on what so many seeds cannot exclude; "" if the interval does."""
        return self.shown.caution if self.shown is not None else ""

    def full_text(self) -> str:
        """Return the text with the scores of few seeds and the method of the interval; for one that
        is wide because of failures that no seed showed, also that. What the seeds cannot exclude
        otherwise is ``caution``, which a page or summary says once (:func:`cautions_of`)."""
        text = str(self)
        if self.seeds:
            text += f", seeds {self.seeds}"
        made = self.shown
        if made is not None and made.low is not None:
            wide = made.n > 1 and made.covers_unseen
            why = f": {score_bounds.unseen_collapse_text(made.n)}" if wide else ""
            text += f" ({made.level:.0%} {made.method} interval over {made.n} seeds{why})"
        return text

    def to_json(self) -> dict[str, Any]:
        """Return plain values, as under ``final.return`` of ``result.json``."""
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
        """Rebuild a headline; older files, which hold only an estimate, are read too."""
        parts = {name: plain.get(name) for name in ("survivors", "at_worst")}
        value = plain.get("estimate", plain.get("value"))
        return cls(
            tuple(plain.get("per_seed", ())),
            None if value is None else Estimate.from_json(plain),
            **{name: None if x is None else Estimate.from_json(x) for name, x in parts.items()},
            within=score_bounds.parse_bounds(plain.get("within")),
            better=plain.get("better", 1),
        )

    def _why(self) -> str:
        return f"none ({self.lost} of {len(self.per_seed)} seeds failed)"

    def _level(self) -> float:
        return self.survivors.level if self.survivors is not None else 0.95


def cautions_of(found: Iterable[Headline | Estimate]) -> list[str]:
    """Return what the seeds of several numbers cannot exclude, each sentence once."""
    return list(dict.fromkeys(each.caution for each in found if each.caution))


def headline(
    scores: Sequence[float | None],
    *,
    failed: FailedRule = None,
    within: score_bounds.BoundsLike = None,
    level: float = 0.95,
    key: int = 0,
    better: int = 1,
) -> Headline:
    """Summarise the scores of a run's seeds; None or NaN marks a failed seed.

    ``better``: -1 where lower scores are better, 0 where neither direction is.

    Raises Mistake for ``failed="worst"`` where the worst possible score is not declared.
    """
    per_seed = tuple(None if x is None or math.isnan(x) else float(x) for x in scores)
    bounds = score_bounds.parse_bounds(within)
    known = [x for x in per_seed if x is not None]
    rule = score_bounds.resolve_failed_score(failed, within, better)
    how: dict[str, Any] = {"within": bounds, "level": level, "key": key}
    if not per_seed or (not known and rule in (None, "exclude")):
        return Headline(per_seed, None, within=bounds, better=better)
    table = [math.nan if x is None else x for x in per_seed]
    if len(known) == len(per_seed) or rule is not None:
        return Headline(per_seed, estimate(table, failed=rule, **how), within=bounds, better=better)
    worst = score_bounds.worst_score(bounds, better)
    at_worst = None if worst is None else estimate(table, failed=worst, **how)
    return Headline(per_seed, None, estimate(known, **how), at_worst, bounds, better)
