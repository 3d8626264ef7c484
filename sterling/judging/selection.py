"""Choosing among policies by their estimated values: how well the estimates order them.

Measures of Fu 2021 (arXiv:2103.16596, section 4).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from jaxtyping import Float

from sterling.statistics import Estimate
from sterling.types import Mistake

Values = Sequence[float | Estimate] | Float[np.ndarray, "policy"]


def rank_correlation(estimates: Values, truths: Values) -> float:
    """Spearman's: 1 where estimates order policies as their true values do, -1 the other way
    round; equal values share their rank. Raises Mistake for fewer than two policies, and where
    either side does not differ at all."""
    from scipy.stats import spearmanr  # slow to import

    found, true = _pair(estimates, truths)
    if len(found) < 2 or np.ptp(found) == 0.0 or np.ptp(true) == 0.0:
        raise Mistake("an order needs at least two policies whose values differ")
    return float(spearmanr(found, true).statistic)


def regret(estimates: Values, truths: Values, k: int = 1) -> float:
    """Regret@k: what the best of the ``k`` policies with the largest estimates lacks to the best
    of all, in units of the true values' range (0: nothing; 1: the worst was taken). Of equal
    estimates the earlier is taken."""
    found, true = _pair(estimates, truths)
    if not 1 <= k <= len(found):
        raise Mistake(f"k lies between 1 and the number of policies, {len(found)}; got {k}")
    taken = np.argsort(-found, kind="stable")[:k]
    width = float(np.ptp(true))
    return float(true.max() - true[taken].max()) / width if width > 0.0 else 0.0


def _pair(estimates: Values, truths: Values) -> tuple[np.ndarray, np.ndarray]:
    found, true = (
        np.array([x.value if isinstance(x, Estimate) else float(x) for x in side])
        for side in (estimates, truths)
    )
    if found.shape != true.shape or not found.size:
        raise Mistake(f"{found.size} estimates do not go with {true.size} true values")
    return found, true
