"""Power: how many runs it takes to detect a difference.

``effect`` is the true difference of means in standard deviations of a run, for normal scores. For
Welch's and Student's test with equally many runs, the statistic is noncentral t with 2 n - 2
degrees of freedom and noncentrality effect sqrt(n / 2) (Cohen 1988; for reinforcement learning
Colas et al. 2018, arXiv:1806.08295). For ``compare``, which is about tendency, power is simulated,
and the number of runs that detects P(first > second) = p is Noether's (1987, JASA 82),

    n = (z_alpha/2 + z_power)^2 / (6 (p - 1/2)^2),

but never fewer than can decide at all (``tendency.min_runs_to_decide``).
"""

from __future__ import annotations

import math

import numpy as np

from sterling.statistics.comparisons.tendency import min_runs_to_decide
from sterling.statistics.intervals.stratified_resampling import random_generator
from sterling.types import Mistake

MAX_RUNS = 1_000_000  # runs; an effect that needs more is reported as zero


def power(
    effect: float | int,
    n: int,
    *,
    alpha: float = 0.05,
    test: str = "t",
    interims: int = 1,
    key: int = 0,
    draws: int = 400,
) -> float:
    """Return the probability of detecting a difference of ``effect`` with ``n`` runs of each
    algorithm.

    ``test``: "t", two-sided, or "compare", the sequential test of tendency: ``n`` runs in all,
    spread over ``interims`` looks, simulated ``draws`` times with normal scores from ``key``.
    Raises Mistake where ``compare`` could decide nothing with so few runs.
    """
    if not 0.0 < alpha < 1.0:
        raise Mistake(f"alpha must lie between 0 and 1; got {alpha}")
    if n < 2:
        raise Mistake(f"a comparison needs at least 2 runs of each; got n={n}")
    if test == "t":
        return _t_test_power(effect, n, alpha)
    if test != "compare":
        raise Mistake(f"unknown test {test!r}; use 't' or 'compare'")
    return _simulated_power(effect, n, alpha, interims=interims, key=key, draws=draws)


def need(effect: float | int, power: float = 0.8, *, alpha: float = 0.05, test: str = "t") -> int:
    """Return the runs of each of two algorithms that detect ``effect`` with ``power``.

    ``test``: "t", two-sided, or "compare", in one look.
    """
    if effect == 0.0:
        raise Mistake("no number of runs detects an effect of 0; give another effect")
    if test == "compare":
        from scipy.special import ndtr

        return runs_to_show_tendency(float(ndtr(effect / math.sqrt(2.0))), power, alpha=alpha)
    if test != "t":
        raise Mistake(f"unknown test {test!r}; use 't' or 'compare'")
    _check_power(power, alpha)
    low, high = 1, 2
    while _t_test_power(effect, high, alpha) < power:
        low, high = high, high * 2
        if high > MAX_RUNS:
            raise Mistake(
                f"an effect of {effect} needs over {MAX_RUNS:,} runs; it is practically zero"
            )
    while high - low > 1:
        middle = (low + high) // 2
        if _t_test_power(effect, middle, alpha) < power:
            low = middle
        else:
            high = middle
    return high


def runs_to_show_tendency(probability: float, power: float = 0.8, *, alpha: float = 0.05) -> int:
    """Return the runs of each of two algorithms with which ``compare`` detects a tendency.

    In one look, with ``power``; ``probability`` is that of a run of one scoring above a run of the
    other.
    """
    from scipy.special import ndtri

    _check_power(power, alpha)
    away = abs(probability - 0.5)
    if away == 0.0:
        raise Mistake("no number of runs detects a probability of one half; give another")
    wanted = (ndtri(1.0 - alpha / 2.0) + ndtri(power)) ** 2 / (6.0 * away**2)
    if wanted > MAX_RUNS:
        raise Mistake(
            f"a probability of {probability} needs over {MAX_RUNS:,} runs; it is practically 1/2"
        )
    return max(math.ceil(wanted), min_runs_to_decide(alpha))


def _check_power(power: float, alpha: float) -> None:
    """Raise Mistake unless the power lies between alpha and 1."""
    if not alpha < power < 1.0:
        raise Mistake(f"power must lie between alpha={alpha} and 1; got {power}")


def _t_test_power(effect: float | int, n: int, alpha: float) -> float:
    """Return the power of the two-sided t test."""
    from scipy.special import nctdtr, stdtrit

    freedom, shift = 2 * n - 2, abs(effect) * math.sqrt(n / 2.0)
    edge = float(stdtrit(freedom, 1.0 - alpha / 2.0))
    return float(1.0 - nctdtr(freedom, shift, edge) + nctdtr(freedom, shift, -edge))


def _simulated_power(
    effect: float | int, n: int, alpha: float, *, interims: int, key: int, draws: int
) -> float:
    """Return the share of simulated comparisons that ``compare`` decides."""
    from sterling.statistics.comparisons.decide_comparison import compare

    if n % interims:
        raise Mistake(f"{n} runs do not divide evenly into {interims} interims")
    rng, seen = random_generator(key, "power"), 0
    for draw in range(draws):
        first, second = rng.standard_normal((2, n))
        made = compare(
            {"first": first + effect, "second": second},
            alpha=alpha, interims=interims, per_interim=n // interims, key=key + draw,
        )  # fmt: skip
        seen += made.decisions[0].verdict in ("larger", "smaller")
    return float(np.float64(seen) / draws)
