"""Who is better on an environment: every pair of labels, decided where the seeds permit.

The decision is ``statistics.compare`` in one look at all seeds of each label, whose numbers may
differ: about tendency (does a run of the one tend to score higher?) or, where the scores' bounds
are known, about means. The interval of P(first > second) and the verdict are one: it excludes 1/2
exactly where the pair is decided. The difference of means stands beside it with Welch's interval
of this pair alone, *as far as was seen*; it decides nothing.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence

import numpy as np
from jaxtyping import Float

from sterling.report.groups import Group, environments, less_is_better
from sterling.report.text import count, percent
from sterling.statistics import Decision, Estimate, Headline, compare, headline
from sterling.statistics.comparison import half, turned
from sterling.statistics.declared import Bounds
from sterling.statistics.scores import Failed
from sterling.statistics.tendency import FEWEST, least_runs, probability
from sterling.types import Mistake

TENDENCY = "permuted Brunner-Munzel tests of all pairs"
MEANS = "intervals of bounded means"
POWER = 0.8  # with which the seeds that are needed show a tendency


@dataclasses.dataclass(frozen=True)
class Asked:
    """How contests are to be decided."""

    alpha: float = 0.05
    failed: Failed = None  # what a failed seed counts as
    key: int = 0
    about: str = "tendency"  # or "mean", which needs bounds
    within: Bounds | None = None  # bounds of the scores; None: as the runs say


@dataclasses.dataclass(frozen=True)
class Standing:
    """One label on one environment."""

    label: str
    made: Headline  # without a single estimate where seeds failed and nothing says how they count
    seeds: int
    failed: int
    scores: Float[np.ndarray, "run"]  # NaN where failed


@dataclasses.dataclass(frozen=True)
class Pair:
    """Two labels on one environment."""

    first: str
    second: str
    verdict: str  # first is "larger" or "smaller", "equal" (not told apart), or "undecided"
    why: str  # for "undecided": what stands in the way
    difference: Estimate | None  # mean of first - mean of second: Welch's, or what decided
    better: Estimate | None  # P(first > second); where tendency decides, its interval is the rule
    seeds: tuple[int, int]
    need: int | None  # seeds of each that would show a tendency as strong as it looks
    about: str = "tendency"  # what the verdict is about, or "mean"
    direction: str = "higher"  # which scores are better, or "lower": then first is "larger" where
    # it has the lower ones, and ``better`` is P(first < second)


@dataclasses.dataclass(frozen=True)
class Contest:
    """All labels on one environment."""

    environment: str
    standings: list[Standing]
    pairs: list[Pair]
    how: str  # what decided; "none"


def contests(
    groups: Sequence[Group],
    *,
    alpha: float = 0.05,
    failed: Failed = None,
    key: int = 0,
    about: str = "tendency",
    within: Bounds | None = None,
) -> list[Contest]:
    """One contest per environment; see :class:`Asked`.

    Without ``failed`` failed seeds are left out of the numbers, and pairs that have any stay
    undecided. Raises Mistake where means are to be decided on an environment whose bounds are not
    known.
    """
    asked = Asked(alpha, failed, key, about, within)
    return [
        _contest(world, [one for one in groups if one.environment == world], asked)
        for world in environments(groups)
    ]


def _contest(world: str, groups: Sequence[Group], asked: Asked) -> Contest:
    scores = {one.label: one.scores_with(asked.failed) for one in groups}
    standings = [_standing(one, scores[one.label], asked) for one in groups]
    less = less_is_better(groups)  # then they are decided by the scores' negatives
    scores = {label: -x for label, x in scores.items()} if less else scores
    names = sorted(scores, key=lambda name: -_middle(scores[name]))  # the better one comes first
    couples = [(a, b) for at, a in enumerate(names) for b in names[at + 1 :]]
    obstacles = {pair: _obstacle(pair, scores, asked.failed) for pair in couples}
    obstacles |= _too_few([p for p, why in obstacles.items() if not why], scores, asked)
    fit = [pair for pair, obstacle in obstacles.items() if not obstacle]
    bounds = _bounds(world, groups, asked) if asked.about == "mean" and couples else None
    decided = _decided(fit, scores, asked, bounds)
    pairs = [_pair(pair, scores, decided.get(pair), obstacles[pair], asked) for pair in couples]
    pairs = [_of_less(pair) for pair in pairs] if less else pairs
    how = (MEANS if asked.about == "mean" else TENDENCY) if fit else "none"
    return Contest(world, standings, pairs, how)


def _bounds(world: str, groups: Sequence[Group], asked: Asked) -> tuple[float, float]:
    """What scores on an environment cannot leave: as asked, else as all its runs say."""
    said = {one.within for one in groups}
    low, high = asked.within or (said.pop() if len(said) == 1 else None) or (None, None)
    if low is None or high is None:
        raise Mistake(
            f"means on {world} are decided only between two bounds of the scores, and its runs do "
            "not declare both: add --within LOW,HIGH, or leave out --about mean"
        )
    return (-high, -low) if groups[0].better < 0 else (low, high)


def _of_less(pair: Pair) -> Pair:
    """A pair that was decided by the negatives of its scores, in the scores' own units."""
    difference = None if pair.difference is None else turned(pair.difference, 0.0)
    return dataclasses.replace(pair, difference=difference, direction="lower")


def _standing(group: Group, scores: Float[np.ndarray, "run"], asked: Asked) -> Standing:
    made = headline(
        [float(x) for x in group.scores],
        failed=asked.failed,
        within=group.within,
        level=1 - asked.alpha,
        key=asked.key,
        better=group.better,
    )
    return Standing(group.label, made, scores.size, group.failed, scores)


def _obstacle(
    pair: tuple[str, str], scores: dict[str, Float[np.ndarray, "run"]], failed: Failed
) -> str:
    """Why a pair cannot be decided; "" if it can."""
    for label in pair:
        if not np.isfinite(scores[label]).any():
            return f"{label} has no finished run"
    for label in pair:
        lost = int(np.isnan(scores[label]).sum())
        if lost and failed is None:
            lost_seeds = count(lost, "failed seed")
            return f"{label} has {lost_seeds}, and --failed does not say what one counts as"
    for label in pair:
        if np.isfinite(scores[label]).sum() < 2:
            return f"{label} has one seed, which shows no spread"
    return ""


def _too_few(
    pairs: list[tuple[str, str]], scores: dict[str, Float[np.ndarray, "run"]], asked: Asked
) -> dict[tuple[str, str], str]:
    """Pairs that have too few seeds to be decided among so many labels, and the words for it."""
    obstacles: dict[tuple[str, str], str] = {}
    while True:
        left = [pair for pair in pairs if pair not in obstacles]
        labels = sorted({label for pair in left for label in pair})
        if not labels:
            return obstacles
        least = FEWEST if asked.about == "mean" else least_runs(asked.alpha, len(labels) - 1)
        short = [label for label in labels if _known(scores[label]).size < least]
        if not short:
            return obstacles
        for pair in left:
            label = next((label for label in pair if label in short), None)
            if label is not None:
                has = count(_known(scores[label]).size, "seed")
                obstacles[pair] = (
                    f"{label} has {has}, and between {len(labels)} labels nothing is decided "
                    f"with fewer than {least} at {percent(asked.alpha)}"
                )


def _decided(
    pairs: list[tuple[str, str]],
    scores: dict[str, Float[np.ndarray, "run"]],
    asked: Asked,
    bounds: tuple[float, float] | None,
) -> dict[tuple[str, str], Decision]:
    """What is known of each pair that can be decided."""
    if not pairs:
        return {}
    known = {name: _known(scores[name]) for pair in pairs for name in pair}
    made = compare(
        known,
        about=asked.about,
        within=bounds,
        alpha=asked.alpha,
        interims=1,
        per_interim=None,
        pairs=pairs,
        key=asked.key,
    )
    return {(one.first, one.second): one for one in made.decisions}


def _pair(
    pair: tuple[str, str],
    scores: dict[str, Float[np.ndarray, "run"]],
    made: Decision | None,
    why: str,
    asked: Asked,
) -> Pair:
    first, second = (_known(scores[name]) for name in pair)
    seeds = (first.size, second.size)
    if not first.size or not second.size:
        return Pair(*pair, "undecided", why, None, None, seeds, None, asked.about)
    level, verdict = 1 - asked.alpha, "undecided" if made is None else made.verdict
    better = None if made is None else made.better
    if better is None:
        reach = half(asked.alpha)
        better = probability(first, second, boundary=reach, verdict="undecided", level=level)
    difference = welch(first, second, level)
    if made is not None and made.means is not None:
        difference = made.means
    need = _need(better, asked) if verdict == "equal" and asked.about == "tendency" else None
    return Pair(*pair, verdict, why, difference, better, seeds, need, asked.about)


def welch(
    first: Float[np.ndarray, "run"], second: Float[np.ndarray, "other"], level: float = 0.95
) -> Estimate:
    """Difference of two means with Welch's interval (1947); none where either has one run."""
    value, n = float(first.mean() - second.mean()), min(first.size, second.size)
    if n < 2:
        return Estimate(value, None, None, n, "none (one run)", level)
    from scipy.special import stdtrit

    error, freedom = _welch(first, second)
    half = float(stdtrit(freedom, 0.5 + level / 2)) * error if error else 0.0
    return Estimate(value, value - half, value + half, n, "Welch", level)


def _welch(
    first: Float[np.ndarray, "run"], second: Float[np.ndarray, "other"]
) -> tuple[float, float]:
    """Standard error of the difference, and Satterthwaite's degrees of freedom."""
    parts = [
        (0.0 if np.ptp(x) == 0.0 else float(x.var(ddof=1)) / x.size, x.size - 1)
        for x in (first, second)
    ]
    total = sum(part for part, _ in parts)
    below = sum(part**2 / freedom for part, freedom in parts)
    return math.sqrt(total), total**2 / below if below else 1.0


def _need(better: Estimate, asked: Asked) -> int | None:
    """Seeds of each that show the tendency at ``alpha`` with a power of 80 %, were it what it
    looks like; None if it looks like nothing, or like more than a million seeds."""
    from sterling.statistics.power import need_of_tendency

    if better.value == 0.5:
        return None
    try:
        return need_of_tendency(better.value, POWER, alpha=asked.alpha)
    except Mistake:
        return None


def _middle(scores: Float[np.ndarray, "run"]) -> float:
    """The mean of the runs that did not fail; the lowest of all numbers where there is none."""
    known = _known(scores)
    return float(known.mean()) if known.size else -math.inf


def _known(scores: Float[np.ndarray, "run"]) -> Float[np.ndarray, "known"]:
    return scores[np.isfinite(scores)]
