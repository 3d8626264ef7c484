"""Policy selection by estimated values: how well the estimates rank policies.

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
    """Return Spearman's rank correlation: 1 if the estimates rank policies as their true values do,
    -1 if in reverse.

    Equal values share their rank. Raises Mistake for fewer than two policies, and if all estimates
    or all true values are equal.
    """
    from scipy.stats import spearmanr  # slow to import

    found, true = _as_arrays(estimates, truths)
    if len(found) < 2 or np.ptp(found) == 0.0 or np.ptp(true) == 0.0:
        raise Mistake("rank correlation needs at least two policies with different values")
    return float(spearmanr(found, true).statistic)


def regret(estimates: Values, truths: Values, k: int = 1) -> float:
    """Return regret@k: the best true value minus the best among the ``k`` policies with the largest
    estimates, divided by the true values' range (0: none; 1: the worst was chosen).

    Of equal estimates the earlier is chosen.
    """
    found, true = _as_arrays(estimates, truths)
    if not 1 <= k <= len(found):
        raise Mistake(f"k is {k}; it must lie between 1 and the number of policies, {len(found)}")
    taken = np.argsort(-found, kind="stable")[:k]
    width = float(np.ptp(true))
    return float(true.max() - true[taken].max()) / width if width > 0.0 else 0.0


def _as_arrays(estimates: Values, truths: Values) -> tuple[np.ndarray, np.ndarray]:
    found, true = (
        np.array([x.value if isinstance(x, Estimate) else float(x) for x in side])
        for side in (estimates, truths)
    )
    if found.shape != true.shape or not found.size:
        raise Mistake(
            f"{found.size} estimates do not match {true.size} true values; "
            "give one of each per policy"
        )
    return found, true
