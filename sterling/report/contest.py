"""Who is better on an environment: every pair of labels, decided where the seeds permit.

With equally many seeds (4 or more) the decision is ``statistics.compare`` in one look: an exact
permutation test of all pairs at once, whose probability of any wrong "better" is at most alpha.
Otherwise it is Welch's t test with Holm's correction over the pairs, which takes scores to be
normal; two labels whose runs do not differ among themselves have no spread for it, and are
decided by exchanging their runs. The interval of a difference is always Welch's, and of this
pair alone.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Sequence

import numpy as np
from jaxtyping import Float

from sterling.report.groups import Group, environments
from sterling.report.text import count
from sterling.statistics import Estimate, Headline, headline
from sterling.statistics.scores import Failed
from sterling.types import Mistake

PERMUTATION = "permutation test of all pairs (AdaStop, one look)"
WELCH = "Welch's t test with Holm's correction"
POWER = 0.8  # with which the seeds that are needed show a difference
LEAST = 4  # seeds each, below which a permutation test can decide nothing at 5 %


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
    difference: Estimate | None  # mean of first - mean of second, Welch's interval
    better: Estimate | None  # probability that a run of first is above one of second
    seeds: tuple[int, int]
    need: int | None  # seeds of each that would show the difference as large as it looks


@dataclasses.dataclass(frozen=True)
class Contest:
    """All labels on one environment."""

    environment: str
    standings: list[Standing]
    pairs: list[Pair]
    how: str  # the test that decided


def contests(
    groups: Sequence[Group], *, alpha: float = 0.05, failed: Failed = None, key: int = 0
) -> list[Contest]:
    """One contest per environment. ``failed``: what a failed seed counts as; without it failed
    seeds are left out of the numbers, and pairs that have any stay undecided."""
    return [
        _contest(world, [one for one in groups if one.environment == world], alpha, failed, key)
        for world in environments(groups)
    ]


def _contest(
    world: str, groups: Sequence[Group], alpha: float, failed: Failed, key: int
) -> Contest:
    scores = {one.label: one.scores_with(failed) for one in groups}
    standings = [_standing(one, scores[one.label], alpha, failed, key) for one in groups]
    names = sorted(scores, key=lambda name: -_middle(scores[name]))  # the better one comes first
    couples = [(a, b) for at, a in enumerate(names) for b in names[at + 1 :]]
    obstacles = {pair: _obstacle(pair, scores, failed) for pair in couples}
    fit = [pair for pair, obstacle in obstacles.items() if not obstacle]
    verdicts, how = _decided(fit, scores, alpha, key)
    pairs = [
        _pair(pair, scores, verdicts.get(pair, "undecided"), obstacles[pair], alpha=alpha, key=key)
        for pair in couples
    ]
    return Contest(world, standings, pairs, how)


def _standing(
    group: Group, scores: Float[np.ndarray, "run"], alpha: float, failed: Failed, key: int
) -> Standing:
    made = headline(
        [float(x) for x in group.scores],
        failed=failed,
        within=group.within,
        level=1 - alpha,
        key=key,
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


def _decided(
    pairs: list[tuple[str, str]],
    scores: dict[str, Float[np.ndarray, "run"]],
    alpha: float,
    key: int,
) -> tuple[dict[tuple[str, str], str], str]:
    """The verdict of each pair that can be decided, and by which test."""
    if not pairs:
        return {}, "none"
    known = {name: _known(scores[name]) for pair in pairs for name in pair}
    counts = {values.size for values in known.values()}
    if len(counts) == 1 and min(counts) >= LEAST:
        from sterling.statistics import compare

        try:
            made = compare(
                known, alpha=alpha, interims=1, per_interim=min(counts), pairs=pairs, key=key
            )
        except Mistake:  # a level that so few seeds cannot reach: the t test below still can
            return _welch_holm(pairs, known, alpha), WELCH
        return {(one.first, one.second): one.verdict for one in made.decisions}, PERMUTATION
    return _welch_holm(pairs, known, alpha), WELCH


def _welch_holm(
    pairs: list[tuple[str, str]], known: dict[str, Float[np.ndarray, "run"]], alpha: float
) -> dict[tuple[str, str], str]:
    """Holm 1979: the smallest p against alpha / m, the next against alpha / (m - 1), ..."""
    chances = {pair: _chance(known[pair[0]], known[pair[1]]) for pair in pairs}
    verdicts = dict.fromkeys(pairs, "equal")
    for rank, pair in enumerate(sorted(pairs, key=lambda one: chances[one])):
        if chances[pair] > alpha / (len(pairs) - rank):
            break
        above = known[pair[0]].mean() > known[pair[1]].mean()
        verdicts[pair] = "larger" if above else "smaller"
    return verdicts


def _pair(
    pair: tuple[str, str],
    scores: dict[str, Float[np.ndarray, "run"]],
    verdict: str,
    why: str,
    *,
    alpha: float,
    key: int,
) -> Pair:
    from sterling.statistics import improve

    first, second = (_known(scores[name]) for name in pair)
    seeds = (first.size, second.size)
    if not first.size or not second.size:
        return Pair(*pair, verdict, why, None, None, seeds, None)
    better = improve(first, second, level=1 - alpha, key=key)
    need = _need(first, second, alpha) if verdict == "equal" else None
    return Pair(*pair, verdict, why, welch(first, second, 1 - alpha), better, seeds, need)


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


def _chance(first: Float[np.ndarray, "run"], second: Float[np.ndarray, "other"]) -> float:
    """Welch's two-sided p; where neither shows any spread, the exact one of exchanged runs."""
    from scipy.special import stdtr

    value = abs(float(first.mean() - second.mean()))
    error, freedom = _welch(first, second)
    if error == 0.0:
        return _exchanged(first.size, second.size) if value else 1.0
    return 2.0 * float(stdtr(freedom, -value / error))


def _exchanged(first: int, second: int) -> float:
    """The share of all ways to deal out the runs of two constants that differ by as much."""
    return (2 if first == second else 1) / math.comb(first + second, first)


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


def _need(
    first: Float[np.ndarray, "run"], second: Float[np.ndarray, "other"], alpha: float
) -> int | None:
    """Seeds of each that show the difference at ``alpha`` with a power of 80 %, were it what it
    looks like; None if it looks like nothing, or like more than a million seeds."""
    from sterling.statistics import need

    spread = math.sqrt((float(first.var(ddof=1)) + float(second.var(ddof=1))) / 2)
    gap = abs(float(first.mean() - second.mean()))
    if gap == 0.0:
        return None
    if _welch(first, second)[0] == 0.0:
        return next(n for n in itertools.count(2) if _exchanged(n, n) <= alpha)
    try:
        return need(gap / spread, POWER, alpha=alpha)
    except Mistake:
        return None


def _middle(scores: Float[np.ndarray, "run"]) -> float:
    """The mean of the runs that did not fail; the lowest of all numbers where there is none."""
    known = _known(scores)
    return float(known.mean()) if known.size else -math.inf


def _known(scores: Float[np.ndarray, "run"]) -> Float[np.ndarray, "known"]:
    return scores[np.isfinite(scores)]
