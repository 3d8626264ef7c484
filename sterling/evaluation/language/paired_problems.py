"""Compare which problems two models solve: gained and lost, on the same problems.

Of P problems the first model alone solves l (lost), the second alone g (gained). The difference of
their rates is (g - l) / P. Its interval contains every difference d that the counts do not reject,

    sup_q P(T(G, L; d) >= T(g, l; d)) > alpha / 2,     G, L ~ trinomial(P; q + d, q)

with Tango's (1998, Statistics in Medicine 17) score statistic T as the order of outcomes, and the
supremum over the unknown loss rate q: exact, whatever q is (Hsueh, Liu & Chen 2001, Biometrics 57).
Beyond :data:`MAX_EXACT` problems T is taken to be normal, as Tango does.

With several seeds each is asked the same problems: see
``evaluation/language/seed_and_problem_intervals.py``.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
from jaxtyping import Bool, Float

from sterling.evaluation.language.seed_and_problem_intervals import two_way_estimate
from sterling.statistics import Estimate

MAX_EXACT = 256  # problems; up to this number all outcomes are enumerated
RATE_POINTS = 41  # loss rates at which the supremum is evaluated
BISECTIONS = 26


@dataclasses.dataclass(frozen=True)
class PairedChange:
    """Two models on the same problems, with counts over all seeds."""

    first: str
    second: str
    both: int
    gained: int  # solved by the second only
    lost: int  # solved by the first only
    neither: int
    difference: Estimate  # of the shares solved, second minus first

    def to_json(self) -> dict[str, Any]:
        """Return plain values under the fields' names."""
        return dataclasses.asdict(self)


def paired_change(
    names: tuple[str, str],
    first: Bool[np.ndarray, "seed problem"],
    second: Bool[np.ndarray, "seed problem"],
    level: float = 0.95,
) -> PairedChange:
    """Compare what two models solve; row s of both is a pair of seeds."""
    counts = (first & second, ~first & second, first & ~second, ~first & ~second)
    both, gained, lost, neither = (int(each.sum()) for each in counts)
    seeds, problems = first.shape
    if seeds > 1:
        away = second.astype(np.float64) - first.astype(np.float64)
        made = two_way_estimate(away, bounds=(-1.0, 1.0), level=level)
    else:
        low, high = difference_interval(gained, lost, problems, level)
        how = "exact unconditional" if problems <= MAX_EXACT else "Tango's score"
        method = f"{how} over {problems} problems, one seed"
        made = Estimate((gained - lost) / problems, low, high, problems, method, level)
    return PairedChange(*names, both, gained, lost, neither, made)


def difference_interval(
    gained: int, lost: int, problems: int, level: float = 0.95
) -> tuple[float, float]:
    """Return the interval of (gained - lost) / problems."""
    low = _lower_end(gained, lost, problems, (1.0 - level) / 2.0)
    return low, -_lower_end(lost, gained, problems, (1.0 - level) / 2.0)


def _lower_end(gained: int, lost: int, problems: int, tail: float) -> float:
    """Return the smallest difference that is not rejected."""
    from scipy.special import gammaln, ndtr

    low, high = -1.0, (gained - lost) / problems
    total = np.arange(problems + 1)
    wins, losses = (part.ravel() for part in np.meshgrid(total, total))
    possible = wins + losses <= problems
    wins, losses = wins[possible], losses[possible]
    ways = gammaln(problems + 1) - gammaln(wins + 1) - gammaln(losses + 1)
    ways -= gammaln(problems - wins - losses + 1)
    for _ in range(BISECTIONS):
        middle = (low + high) / 2
        seen = float(score_statistic(np.array([gained]), np.array([lost]), problems, middle)[0])
        if problems > MAX_EXACT:
            chance = float(ndtr(-seen))
        else:
            beyond = score_statistic(wins, losses, problems, middle) >= seen - 1e-9
            chance = _largest_probability(
                (wins[beyond], losses[beyond], ways[beyond]), problems, middle
            )
        low, high = (low, middle) if chance > tail else (middle, high)
    return low


def score_statistic(
    wins: np.ndarray, losses: np.ndarray, problems: int, difference: float
) -> Float[np.ndarray, "outcome"]:
    """Return Tango's statistic: how far above ``difference`` these outcomes lie, in standard
    deviations.

    The loss rate q is the maximum-likelihood one under that difference: the larger root of A q^2 +
    B q + C with A = 2 P, B = (2 P - g + l) d - g - l, C = -l d (1 - d).
    """
    linear = (2 * problems - wins + losses) * difference - wins - losses
    rest = -losses * difference * (1.0 - difference)
    root = np.sqrt(np.maximum(linear**2 - 8.0 * problems * rest, 0.0))
    rate = (root - linear) / (4.0 * problems)
    variance = problems * np.maximum(2.0 * rate + difference * (1.0 - difference), 0.0)
    above = wins - losses - problems * difference
    return np.where(np.abs(above) < 1e-9, 0.0, above / np.sqrt(np.maximum(variance, 1e-12)))


def _largest_probability(
    outcomes: tuple[np.ndarray, np.ndarray, np.ndarray], problems: int, difference: float
) -> float:
    """Return the largest probability of these outcomes over all loss rates."""
    from scipy.special import xlogy

    wins, losses, ways = outcomes
    top = (1.0 - difference) / 2.0  # both rates and the rest are at least 0
    found = 0.0
    for rate in np.linspace(max(0.0, -difference), top, RATE_POINTS):
        gain, rest = max(rate + difference, 0.0), max(1.0 - 2.0 * rate - difference, 0.0)
        log_p = ways + xlogy(wins, gain) + xlogy(losses, rate)
        found = max(found, float(np.exp(log_p + xlogy(problems - wins - losses, rest)).sum()))
    return found
