"""The probability that one of k answers is right: unbiased pass@k, and its curve over k.

Of n answers to a problem c were right. Of all subsets of k answers the share without a right one is

    C(n - c, k) / C(n, k),     so     pass@k = 1 - C(n - c, k) / C(n, k)

whose expectation is 1 - (1 - p)^k for every k <= n (Chen 2021, arXiv:2107.03374, eq. 1); 1 - (1 -
c/n)^k is too low for k > 1. If RL raises a curve at k = 1 but not at large k, it has sharpened what
the model could do before (Yue 2025, arXiv:2504.13837).
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Bool, Float, Int

from sterling.evaluation.language.seed_and_problem_intervals import two_way_estimate
from sterling.statistics import Estimate
from sterling.types import Mistake


def pass_at_k(right: Int[np.ndarray, "*any"], answers: int, k: int) -> Float[np.ndarray, "*any"]:
    """Return pass@k of each problem, from how many of its ``answers`` were ``right``.

    Raises Mistake for k below 1 or above ``answers``, and for impossible counts.
    """
    if not 1 <= k <= answers:
        raise Mistake(
            f"pass@k with k={k} is undefined for {answers} answers; use k from 1 to {answers}"
        )
    if right.size and not 0 <= right.min() <= right.max() <= answers:
        wrong = right.min() if right.min() < 0 else right.max()
        raise Mistake(
            f"pass@k: {wrong} right of {answers} answers; the count of right answers must lie "
            f"between 0 and {answers}"
        )
    missed = np.ones(right.shape)
    for drawn in range(k):  # times the probability that the next answer drawn is wrong too
        missed *= np.maximum(answers - right - drawn, 0) / (answers - drawn)
    return np.asarray(1.0 - missed)


def plotted_ks(answers: int) -> tuple[int, ...]:
    """Return the k at which the curve is drawn: 1, 2, 4, ... and ``answers``."""
    powers = [1 << bit for bit in range(answers.bit_length()) if 1 << bit <= answers]
    return tuple(dict.fromkeys([*powers, answers]))


def pass_at_k_curve(
    solved: Bool[np.ndarray, "seed problem answer"], level: float = 0.95
) -> dict[int, Estimate]:
    """Return pass@k over k, averaged over seeds and problems; intervals as in
    ``evaluation/language/seed_and_problem_intervals.py``."""
    right, answers = solved.sum(2), solved.shape[2]
    return {
        k: two_way_estimate(pass_at_k(right, answers, k), level=level) for k in plotted_ks(answers)
    }
