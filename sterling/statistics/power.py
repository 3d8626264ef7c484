"""How many runs does it take to see a difference?

``effect`` is the true difference of means in standard deviations of a run, of normal scores. For
Welch's and Student's test with equally many runs, the statistic is noncentral t with 2 n - 2
degrees of freedom and noncentrality effect sqrt(n / 2) (Cohen 1988; for reinforcement learning
Colas et al. 2018, arXiv:1806.08295). For ``compare``, which is about tendency, power is simulated,
and the runs of each that show P(first > second) = p are Noether's (1987, JASA 82),

    n = (z_alpha/2 + z_power)^2 / (6 (p - 1/2)^2),

but never fewer than can decide at all (``tendency.least_runs``).
"""

from __future__ import annotations

import math

import numpy as np

from sterling.statistics.resample import generator
from sterling.statistics.tendency import least_runs
from sterling.types import Mistake

MOST = 1_000_000  # runs; beyond, the effect is none


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
    """The probability that ``n`` runs of each of two algorithms show a difference of ``effect``.

    ``test``: "t", two-sided, or "compare", the sequential test of tendency: ``n`` runs in all,
    spread over ``interims`` looks, simulated ``draws`` times with normal scores from ``key``.
    Raises Mistake where ``compare`` could decide nothing with so few runs.
    """
    if not 0.0 < alpha < 1.0:
        raise Mistake(f"alpha lies between 0 and 1; got {alpha}")
    if n < 2:
        raise Mistake(f"a comparison needs at least 2 runs of each; got n={n}")
    if test == "t":
        return _of_t(effect, n, alpha)
    if test != "compare":
        raise Mistake(f"power knows no test {test!r}; take 't' or 'compare'")
    return _of_compare(effect, n, alpha, interims=interims, key=key, draws=draws)


def need(effect: float | int, power: float = 0.8, *, alpha: float = 0.05, test: str = "t") -> int:
    """Runs of each of two algorithms to see ``effect`` with ``power``.

    ``test``: "t", two-sided, or "compare", in one look.
    """
    if effect == 0.0:
        raise Mistake("no number of runs shows a difference of nothing; give an effect")
    if test == "compare":
        from scipy.special import ndtr

        return need_of_tendency(float(ndtr(effect / math.sqrt(2.0))), power, alpha=alpha)
    if test != "t":
        raise Mistake(f"need knows no test {test!r}; take 't' or 'compare'")
    _checked(power, alpha)
    low, high = 1, 2
    while _of_t(effect, high, alpha) < power:
        low, high = high, high * 2
        if high > MOST:
            raise Mistake(f"an effect of {effect} needs over {MOST:,} runs; it is as good as none")
    while high - low > 1:
        middle = (low + high) // 2
        if _of_t(effect, middle, alpha) < power:
            low = middle
        else:
            high = middle
    return high


def need_of_tendency(probability: float, power: float = 0.8, *, alpha: float = 0.05) -> int:
    """Runs of each of two algorithms for ``compare``, in one look, to see with ``power`` that a run
    of the one scores above a run of the other with ``probability``."""
    from scipy.special import ndtri

    _checked(power, alpha)
    away = abs(probability - 0.5)
    if away == 0.0:
        raise Mistake("no number of runs shows a probability of one half; give another")
    wanted = (ndtri(1.0 - alpha / 2.0) + ndtri(power)) ** 2 / (6.0 * away**2)
    if wanted > MOST:
        raise Mistake(f"a probability of {probability} needs over {MOST:,} runs; it is one half")
    return max(math.ceil(wanted), least_runs(alpha))


def _checked(power: float, alpha: float) -> None:
    if not alpha < power < 1.0:
        raise Mistake(f"the power wanted lies between alpha={alpha} and 1; got {power}")


def _of_t(effect: float | int, n: int, alpha: float) -> float:
    from scipy.special import nctdtr, stdtrit

    freedom, shift = 2 * n - 2, abs(effect) * math.sqrt(n / 2.0)
    edge = float(stdtrit(freedom, 1.0 - alpha / 2.0))
    return float(1.0 - nctdtr(freedom, shift, edge) + nctdtr(freedom, shift, -edge))


def _of_compare(
    effect: float | int, n: int, alpha: float, *, interims: int, key: int, draws: int
) -> float:
    from sterling.statistics.decide import compare

    if n % interims:
        raise Mistake(f"{n} runs do not divide into {interims} interims")
    rng, seen = generator(key, "power"), 0
    for draw in range(draws):
        first, second = rng.standard_normal((2, n))
        made = compare(
            {"first": first + effect, "second": second},
            alpha=alpha, interims=interims, per_interim=n // interims, key=key + draw,
        )  # fmt: skip
        seen += made.decisions[0].verdict in ("larger", "smaller")
    return float(np.float64(seen) / draws)
