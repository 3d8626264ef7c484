"""The result of ``statistics.compare``: a verdict for every pair, and who needs more runs."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

from sterling.statistics.intervals.estimates import Estimate
from sterling.statistics.scores.score_bounds import unseen_collapse_text

NOTABLE_TENDENCY = 0.1  # an undecided tendency closer to 1/2 than this has no direction


@dataclasses.dataclass(frozen=True)
class Decision:
    """The verdict on one pair, with the evidence for it."""

    first: str
    second: str
    verdict: str  # first is "larger", "smaller", "equal" (not distinguished), or "undecided"
    interim: int  # the look that decided it; for an undecided pair, the latest look
    difference: float  # mean of first - mean of second, over the runs used
    better: Estimate | None = None  # P(first > second), over those runs; None before any look
    means: Estimate | None = None  # the difference with its interval, where about="mean"
    about: str = "tendency"  # what the verdict is about, or "mean"
    direction: str = "higher"  # which scores are better, or "lower": then first is "larger" where
    # it has the lower ones, and ``better`` is P(first < second)

    @property
    def directions_disagree(self) -> bool:
        """Whether tendency and means point in different directions."""
        sign = -1.0 if self.direction == "lower" else 1.0
        return self.better is not None and directions_disagree(self.better, sign * self.difference)

    def __str__(self) -> str:
        if self.about == "mean":
            return self._of_means()
        more, less = self._words
        text = {
            "larger": f"{self.first} tends to score {more} than {self.second}",
            "smaller": f"{self.first} tends to score {less} than {self.second}",
            "equal": f"{self.first} is not distinguished from {self.second}",
            "undecided": f"{self.first} against {self.second} is not decided yet",
        }[self.verdict]
        if self.better is None:
            return text
        return f"{text}: {more} in {format_probability(self.better)} of pairs of runs"

    def _of_means(self) -> str:
        more, less = self._words
        text = {
            "larger": f"{self.first} has a {more} mean than {self.second}",
            "smaller": f"{self.first} has a {less} mean than {self.second}",
            "equal": f"the means of {self.first} and {self.second} are not distinguished",
            "undecided": f"the means of {self.first} and {self.second} are not decided yet",
        }[self.verdict]
        return text if self.means is None else f"{text}: difference {self.means}"

    @property
    def _words(self) -> tuple[str, str]:
        """Return the words for better and worse scores."""
        return ("lower", "higher") if self.direction == "lower" else ("higher", "lower")

    def in_original_units(self) -> Decision:
        """Return a decision that was made on negated scores in the scores' own units."""
        means = None if self.means is None else reflect_estimate(self.means, 0.0)
        return dataclasses.replace(
            self, difference=-self.difference, means=means, direction="lower"
        )


@dataclasses.dataclass(frozen=True)
class Comparison:
    """The verdicts on all pairs, and which algorithms need more runs."""

    decisions: tuple[Decision, ...]
    next_runs: dict[str, int]  # fresh runs needed before the next look; empty when finished
    finished: bool
    interim: int  # looks taken
    boundaries: tuple[float, ...]  # |z| at each look, for all pairs then undecided together
    runs: dict[str, int]  # runs of each algorithm that were used
    alpha: float
    interims: int
    per_interim: int | None  # None: one look at all runs of each
    note: str = ""  # how failed runs were counted
    about: str = "tendency"

    def __str__(self) -> str:
        lines = [str(decision) for decision in self.decisions]
        lines += [disagreement_text(one) for one in self.decisions if one.directions_disagree]
        if not self.finished:
            wanted = ", ".join(f"{count} of {name}" for name, count in self.next_runs.items())
            lines.append(f"next runs: {wanted}")
        return "\n".join(lines)

    def to_json(self) -> dict[str, Any]:
        """Return plain values under the fields' names.

        A look that could decide nothing has the boundary None.
        """
        known = [one if math.isfinite(one) else None for one in self.boundaries]
        return {**dataclasses.asdict(self), "boundaries": known}


def reflect_estimate(made: Estimate, whole: float) -> Estimate:
    """Return ``whole - made``, with the interval's ends exchanged."""
    low = None if made.high is None else whole - made.high
    high = None if made.low is None else whole - made.low
    return Estimate(whole - made.value, low, high, made.n, made.method, made.level)


def directions_disagree(better: Estimate, difference: float) -> bool:
    """Whether P(first > second) and a difference of means point in different directions.

    A probability near 1/2 whose interval includes 1/2 has no direction.
    """
    away = better.value - 0.5
    clear = abs(away) >= NOTABLE_TENDENCY or not includes_half(better)
    return clear and away * difference < 0.0


def includes_half(better: Estimate) -> bool:
    """Whether the interval of a probability includes one half, so that nothing is decided."""
    return better.low is None or better.high is None or better.low <= 0.5 <= better.high


def disagreement_text(one: Decision) -> str:
    """Return the sentence about tendency and means; they must disagree in ``one``."""
    assert one.better is not None
    text = describe_disagreement(one.first, one.second, one.better, one.difference)
    return text.replace("higher", one.direction)


def describe_disagreement(first: str, second: str, better: Estimate, difference: float) -> str:
    """Return one sentence on a pair that tendency and means order differently."""
    often, seldom = (first, second) if better.value > 0.5 else (second, first)
    share = max(better.value, 1.0 - better.value)
    return (
        f"tendency and means point in different directions: a run of {often} scores higher than "
        f"one of {seldom} in {share:.2f} of pairs, but the mean of {seldom} is higher, by "
        f"{abs(difference):.4g}"
    )


def unseen_means_text(runs: int) -> str:
    """Return one sentence: what ``runs`` seeds cannot exclude about a mean."""
    return f"means describe only the runs seen: {unseen_collapse_text(runs)}"


def format_probability(made: Estimate) -> str:
    """Format a probability with its interval; an end just beyond 1/2 is not written 0.50."""
    if made.low is None or made.high is None:
        return f"{made.value:.2f} (one run, no interval)"
    low = ">0.50" if 0.5 < made.low < 0.505 else f"{made.low:.2f}"
    high = "<0.50" if 0.495 <= made.high < 0.5 else f"{made.high:.2f}"
    return f"{made.value:.2f} [{low}, {high}]"


def critical_z(level: float) -> float:
    """Return the |z| of a two-sided test at ``level``."""
    from scipy.special import ndtri

    return float(-ndtri(level / 2.0)) if level < 1.0 else math.inf
