"""What ``statistics.compare`` answers: a verdict for every pair, and who has to train on."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

from sterling.statistics.declared import rule_of
from sterling.statistics.interval import Estimate

NOTABLE = 0.1  # a tendency that lies less than this beyond 1/2, undecided, has no direction


@dataclasses.dataclass(frozen=True)
class Decision:
    """What is known of one pair."""

    first: str
    second: str
    verdict: str  # first is "larger", "smaller", "equal" (not told apart), or yet "undecided"
    interim: int  # when it was decided; for an undecided pair, the last one looked at
    difference: float  # mean of first - mean of second, over the runs that were looked at
    better: Estimate | None = None  # P(first > second), over those runs; None before any look
    means: Estimate | None = None  # the difference with its interval, where about="mean"
    about: str = "tendency"  # what the verdict is about, or "mean"
    direction: str = "higher"  # which scores are better, or "lower": then first is "larger" where
    # it has the lower ones, and ``better`` is P(first < second)

    @property
    def opposed(self) -> bool:
        """Whether tendency and means point in different directions."""
        sign = -1.0 if self.direction == "lower" else 1.0
        return self.better is not None and opposed(self.better, sign * self.difference)

    def __str__(self) -> str:
        if self.about == "mean":
            return self._of_means()
        more, less = self._words
        said = {
            "larger": f"{self.first} tends to score {more} than {self.second}",
            "smaller": f"{self.first} tends to score {less} than {self.second}",
            "equal": f"{self.first} is not told apart from {self.second}",
            "undecided": f"{self.first} is yet undecided against {self.second}",
        }[self.verdict]
        if self.better is None:
            return said
        return f"{said}: {more} in {chance(self.better)} of pairs of runs"

    def _of_means(self) -> str:
        more, less = self._words
        said = {
            "larger": f"{self.first} has a {more} mean than {self.second}",
            "smaller": f"{self.first} has a {less} mean than {self.second}",
            "equal": f"the means of {self.first} and {self.second} are not told apart",
            "undecided": f"the means of {self.first} and {self.second} are yet undecided",
        }[self.verdict]
        return said if self.means is None else f"{said}: difference {self.means}"

    @property
    def _words(self) -> tuple[str, str]:
        """Better, and worse."""
        return ("lower", "higher") if self.direction == "lower" else ("higher", "lower")

    def of_less(self) -> Decision:
        """One that was made of the negatives of scores of which less is better, in their units."""
        means = None if self.means is None else turned(self.means, 0.0)
        return dataclasses.replace(
            self, difference=-self.difference, means=means, direction="lower"
        )


@dataclasses.dataclass(frozen=True)
class Comparison:
    """All pairs, and who has to train on."""

    decisions: tuple[Decision, ...]
    next_runs: dict[str, int]  # fresh runs needed before the next look; empty when finished
    finished: bool
    interim: int  # looks taken
    boundaries: tuple[float, ...]  # |z| at each look, for all pairs then undecided together
    runs: dict[str, int]  # runs of each algorithm that were used
    alpha: float
    interims: int
    per_interim: int | None  # None: one look at all runs of each
    note: str = ""  # what was done about failed runs
    about: str = "tendency"

    def __str__(self) -> str:
        lines = [str(decision) for decision in self.decisions]
        lines += [opposition(one) for one in self.decisions if one.opposed]
        if not self.finished:
            wanted = ", ".join(f"{count} of {name}" for name, count in self.next_runs.items())
            lines.append(f"next runs: {wanted}")
        return "\n".join(lines)

    def to_json(self) -> dict[str, Any]:
        """Plain values under the fields' names; None for the boundary of a look that could decide
        nothing."""
        known = [one if math.isfinite(one) else None for one in self.boundaries]
        return {**dataclasses.asdict(self), "boundaries": known}


def turned(made: Estimate, whole: float) -> Estimate:
    """Return ``whole - made``, its ends exchanged."""
    low = None if made.high is None else whole - made.high
    high = None if made.low is None else whole - made.low
    return Estimate(whole - made.value, low, high, made.n, made.method, made.level)


def opposed(better: Estimate, difference: float) -> bool:
    """Whether P(first > second) and a difference of means point in different directions.

    A probability near 1/2 whose interval holds 1/2 points nowhere.
    """
    away = better.value - 0.5
    clear = abs(away) >= NOTABLE or not holds_half(better)
    return clear and away * difference < 0.0


def holds_half(better: Estimate) -> bool:
    """Whether the interval of a probability holds one half: then nothing is decided."""
    return better.low is None or better.high is None or better.low <= 0.5 <= better.high


def opposition(one: Decision) -> str:
    """Say in which directions tendency and means point; ``one`` must be opposed."""
    assert one.better is not None
    told = directions(one.first, one.second, one.better, one.difference)
    return told.replace("higher", one.direction)


def directions(first: str, second: str, better: Estimate, difference: float) -> str:
    """One sentence on two that tendency and means order differently."""
    often, seldom = (first, second) if better.value > 0.5 else (second, first)
    share = max(better.value, 1.0 - better.value)
    return (
        f"tendency and means point in different directions: a run of {often} scores higher than "
        f"one of {seldom} in {share:.2f} of pairs, but the mean of {seldom} is higher, by "
        f"{abs(difference):.4g}"
    )


def as_far_as_seen(runs: int) -> str:
    """One sentence: what ``runs`` seeds cannot exclude about a mean."""
    return f"means are shown as far as was seen: {rule_of(runs)}"


def chance(made: Estimate) -> str:
    """A probability with its interval, two decimals; an end just beyond 1/2 is no 0.50."""
    if made.low is None or made.high is None:
        return f"{made.value:.2f} (one run, no interval)"
    low = ">0.50" if 0.5 < made.low < 0.505 else f"{made.low:.2f}"
    high = "<0.50" if 0.495 <= made.high < 0.5 else f"{made.high:.2f}"
    return f"{made.value:.2f} [{low}, {high}]"


def half(level: float) -> float:
    """The |z| of a two-sided test at ``level``."""
    from scipy.special import ndtri

    return float(-ndtri(level / 2.0)) if level < 1.0 else math.inf
