"""Compare all pairs of labels on one environment, and decide those that the seeds permit.

The decision is ``statistics.compare`` in one look at all seeds of each label, whose numbers may
differ: about tendency (does a run of one label tend to score higher?) or, where the scores' bounds
are known, about means. The interval of P(first > second) and the verdict agree: it excludes 1/2
exactly where the pair is decided. The difference of means is shown next to it with Welch's interval
of this pair alone, as far as the observed runs tell; it decides nothing.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from jaxtyping import Float

from sterling.report.runs.run_groups import RunGroup, is_lower_better, unique_environments
from sterling.report.text_tables import format_percent, pluralise
from sterling.statistics import Decision, Estimate, Headline, compare, headline
from sterling.statistics.comparisons.comparison_result import critical_z, reflect_estimate
from sterling.statistics.comparisons.tendency import (
    MIN_RUNS,
    min_runs_to_decide,
    probability_estimate,
)
from sterling.statistics.scores.score_bounds import Bounds
from sterling.statistics.scores.score_table import FailedRule
from sterling.types import Mistake

TENDENCY_METHOD = "permuted Brunner-Munzel tests of all pairs"
MEANS_METHOD = "intervals of bounded means"
POWER = 0.8  # power for which the number of needed seeds is computed
LabelPair = tuple[str, str]
ScoresByLabel = dict[str, Float[np.ndarray, "run"]]


@dataclasses.dataclass(frozen=True)
class ComparisonRules:
    """How pairs are to be decided."""

    alpha: float = 0.05
    failed: FailedRule = None  # what a failed seed counts as
    key: int = 0
    about: str = "tendency"  # or "mean", which needs bounds
    within: Bounds | None = None  # bounds of the scores; None: those that the runs declare


@dataclasses.dataclass(frozen=True)
class LabelScore:
    """One label's scores on one environment."""

    label: str
    made: Headline  # no single estimate where seeds failed and no rule says how they count
    seeds: int
    failed: int
    scores: Float[np.ndarray, "run"]  # NaN where failed


@dataclasses.dataclass(frozen=True)
class PairComparison:
    """Two labels compared on one environment."""

    first: str
    second: str
    verdict: str  # first is "larger" or "smaller", "equal" (not distinguished), or "undecided"
    why: str  # for "undecided": the reason
    difference: Estimate | None  # mean of first - mean of second: Welch's, or the deciding interval
    better: Estimate | None  # P(first > second); its interval decides about tendency
    seeds: tuple[int, int]
    need: int | None  # seeds of each that detect a tendency as strong as observed
    about: str = "tendency"  # what the verdict is about, or "mean"
    direction: str = "higher"  # which scores are better, or "lower": then first is "larger" where
    # it has the lower ones, and ``better`` is P(first < second)


@dataclasses.dataclass(frozen=True)
class EnvironmentComparison:
    """All labels compared on one environment."""

    environment: str
    standings: list[LabelScore]
    pairs: list[PairComparison]
    how: str  # the deciding method, or "none"


def compare_on_environments(
    groups: Sequence[RunGroup],
    *,
    alpha: float = 0.05,
    failed: FailedRule = None,
    key: int = 0,
    about: str = "tendency",
    within: Bounds | None = None,
) -> list[EnvironmentComparison]:
    """Compare the labels on each environment; the arguments are those of :class:`ComparisonRules`.

    Without ``failed`` failed seeds are left out of the numbers, and pairs that have any stay
    undecided. Raises Mistake where means are to be decided on an environment whose bounds are not
    known.
    """
    rules = ComparisonRules(alpha, failed, key, about, within)
    return [
        _compare_on_environment(world, [one for one in groups if one.environment == world], rules)
        for world in unique_environments(groups)
    ]


def _compare_on_environment(
    world: str, groups: Sequence[RunGroup], rules: ComparisonRules
) -> EnvironmentComparison:
    scores = {one.label: one.scores_with(rules.failed) for one in groups}
    standings = [_label_score(one, scores[one.label], rules) for one in groups]
    lower_is_better = is_lower_better(groups)  # then negated scores are compared
    scores = {label: -x for label, x in scores.items()} if lower_is_better else scores
    # the better one comes first
    names = sorted(scores, key=lambda name: -_mean_of_finished(scores[name]))
    couples = [(a, b) for at, a in enumerate(names) for b in names[at + 1 :]]
    obstacles = {pair: _reason_undecidable(pair, scores, rules.failed) for pair in couples}
    obstacles |= _pairs_with_too_few_seeds(
        [p for p, why in obstacles.items() if not why], scores, rules
    )
    decidable = [pair for pair, obstacle in obstacles.items() if not obstacle]
    bounds = _score_bounds(world, groups, rules) if rules.about == "mean" and couples else None
    decided = _decide_pairs(decidable, scores, rules, bounds)
    pairs = [
        _compare_pair(pair, scores, decided.get(pair), obstacles[pair], rules) for pair in couples
    ]
    pairs = [_in_original_units(pair) for pair in pairs] if lower_is_better else pairs
    how = (MEANS_METHOD if rules.about == "mean" else TENDENCY_METHOD) if decidable else "none"
    return EnvironmentComparison(world, standings, pairs, how)


def _score_bounds(
    world: str, groups: Sequence[RunGroup], rules: ComparisonRules
) -> tuple[float, float]:
    """Return the bounds of scores on an environment: as requested, else as all its runs declare."""
    declared = {one.within for one in groups}
    low, high = rules.within or (declared.pop() if len(declared) == 1 else None) or (None, None)
    if low is None or high is None:
        raise Mistake(
            f"--about mean needs a lower and an upper bound of the scores on {world}, and its runs "
            "do not declare both: add --within LOW,HIGH, or leave out --about mean"
        )
    return (-high, -low) if groups[0].better < 0 else (low, high)


def _in_original_units(pair: PairComparison) -> PairComparison:
    """Return a pair that was decided on negated scores in the scores' own units."""
    difference = None if pair.difference is None else reflect_estimate(pair.difference, 0.0)
    return dataclasses.replace(pair, difference=difference, direction="lower")


def _label_score(
    group: RunGroup, scores: Float[np.ndarray, "run"], rules: ComparisonRules
) -> LabelScore:
    how: dict[str, Any] = {"failed": rules.failed, "within": group.within, "level": 1 - rules.alpha}
    made = headline([float(x) for x in group.scores], key=rules.key, better=group.better, **how)
    return LabelScore(group.label, made, scores.size, group.failed, scores)


def _reason_undecidable(pair: LabelPair, scores: ScoresByLabel, failed: FailedRule) -> str:
    """Return why a pair cannot be decided; "" if it can."""
    for label in pair:
        if not np.isfinite(scores[label]).any():
            return f"{label} has no finished run"
    for label in pair:
        failed_count = int(np.isnan(scores[label]).sum())
        if failed_count and failed is None:
            lost_seeds = pluralise(failed_count, "failed seed")
            return f"{label} has {lost_seeds}, and --failed does not say what one counts as"
    for label in pair:
        if np.isfinite(scores[label]).sum() < 2:
            return f"{label} has one seed, which shows no spread"
    return ""


def _pairs_with_too_few_seeds(
    pairs: list[LabelPair], scores: ScoresByLabel, rules: ComparisonRules
) -> dict[LabelPair, str]:
    """Return the pairs with too few seeds to be decided among so many labels, and the reasons."""
    obstacles: dict[LabelPair, str] = {}
    while True:
        left = [pair for pair in pairs if pair not in obstacles]
        labels = sorted({label for pair in left for label in pair})
        if not labels:
            return obstacles
        least = (
            MIN_RUNS if rules.about == "mean" else min_runs_to_decide(rules.alpha, len(labels) - 1)
        )
        short = [label for label in labels if _finite(scores[label]).size < least]
        if not short:
            return obstacles
        for pair in left:
            label = next((label for label in pair if label in short), None)
            if label is not None:
                has = pluralise(_finite(scores[label]).size, "seed")
                obstacles[pair] = (
                    f"{label} has {has}, and between {len(labels)} labels nothing is decided "
                    f"with fewer than {least} at {format_percent(rules.alpha)}"
                )


def _decide_pairs(
    pairs: list[LabelPair],
    scores: ScoresByLabel,
    rules: ComparisonRules,
    bounds: tuple[float, float] | None,
) -> dict[LabelPair, Decision]:
    """Return the decision on each pair that can be decided."""
    if not pairs:
        return {}
    known = {name: _finite(scores[name]) for pair in pairs for name in pair}
    made = compare(
        known, about=rules.about, within=bounds, alpha=rules.alpha, interims=1, per_interim=None,
        pairs=pairs, key=rules.key,
    )  # fmt: skip
    return {(one.first, one.second): one for one in made.decisions}


def _compare_pair(
    pair: LabelPair, scores: ScoresByLabel, made: Decision | None, why: str, rules: ComparisonRules
) -> PairComparison:
    first, second = (_finite(scores[name]) for name in pair)
    seeds = (first.size, second.size)
    if not first.size or not second.size:
        return PairComparison(*pair, "undecided", why, None, None, seeds, None, rules.about)
    level, verdict = 1 - rules.alpha, "undecided" if made is None else made.verdict
    better = None if made is None else made.better
    if better is None:
        reach = critical_z(rules.alpha)
        better = probability_estimate(
            first, second, boundary=reach, verdict="undecided", level=level
        )
    difference = welch_interval(first, second, level)
    if made is not None and made.means is not None:
        difference = made.means
    need = (
        _seeds_needed(better, rules) if verdict == "equal" and rules.about == "tendency" else None
    )
    return PairComparison(*pair, verdict, why, difference, better, seeds, need, rules.about)


def welch_interval(
    first: Float[np.ndarray, "run"], second: Float[np.ndarray, "other"], level: float = 0.95
) -> Estimate:
    """Return the difference of two means with Welch's interval (1947); for one run without it."""
    value, n = float(first.mean() - second.mean()), min(first.size, second.size)
    if n < 2:
        return Estimate(value, None, None, n, "none (one run)", level)
    from scipy.special import stdtrit

    error, freedom = _welch_error_and_freedom(first, second)
    half = float(stdtrit(freedom, 0.5 + level / 2)) * error if error else 0.0
    return Estimate(value, value - half, value + half, n, "Welch", level)


def _welch_error_and_freedom(
    first: Float[np.ndarray, "run"], second: Float[np.ndarray, "other"]
) -> tuple[float, float]:
    """Return the standard error of the difference, and Satterthwaite's degrees of freedom."""
    parts = [
        (0.0 if np.ptp(x) == 0.0 else float(x.var(ddof=1)) / x.size, x.size - 1)
        for x in (first, second)
    ]
    total = sum(part for part, _ in parts)
    below = sum(part**2 / freedom for part, freedom in parts)
    return math.sqrt(total), total**2 / below if below else 1.0


def _seeds_needed(better: Estimate, rules: ComparisonRules) -> int | None:
    """Return the seeds of each that detect the tendency at ``alpha`` with a power of 80 %.

    The true tendency is assumed to be the observed one. None where that is exactly 1/2, or where it
    takes more than a million seeds.
    """
    from sterling.statistics.comparisons.seed_power import runs_to_show_tendency

    if better.value == 0.5:
        return None
    try:
        return runs_to_show_tendency(better.value, POWER, alpha=rules.alpha)
    except Mistake:
        return None


def _mean_of_finished(scores: Float[np.ndarray, "run"]) -> float:
    """Return the mean of the runs that did not fail; -inf where there is none."""
    known = _finite(scores)
    return float(known.mean()) if known.size else -math.inf


def _finite(scores: Float[np.ndarray, "run"]) -> Float[np.ndarray, "known"]:
    return scores[np.isfinite(scores)]
