"""How likely one of k answers is right: pass@k without bias, and its curve over k.

Of n answers to a problem c were right. Of all subsets of k of them, those without a right one are

    C(n - c, k) / C(n, k),     so     pass@k = 1 - C(n - c, k) / C(n, k)

whose expectation is 1 - (1 - p)^k for every k <= n (Chen 2021, arXiv:2107.03374, eq. 1);
1 - (1 - c/n)^k is too low for k > 1. A curve that RL lifts at k = 1 and not at large k sharpened
what the model could do before (Yue 2025, arXiv:2504.13837).
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Bool, Float, Int

from sterling.judging.crossed import crossed
from sterling.statistics import Estimate
from sterling.types import Mistake


def pass_at_k(right: Int[np.ndarray, "*any"], answers: int, k: int) -> Float[np.ndarray, "*any"]:
    """pass@k of each problem, from how many of its ``answers`` were ``right``.

    Raises Mistake for k below 1 or above ``answers``, and for counts that cannot be.
    """
    if not 1 <= k <= answers:
        raise Mistake(f"pass@k of {answers} answers is known for k from 1 to {answers}, not {k}")
    if right.size and not 0 <= right.min() <= right.max() <= answers:
        raise Mistake(f"of {answers} answers between 0 and {answers} are right, not {right.max()}")
    missed = np.ones(right.shape)
    for drawn in range(k):  # the chance that each answer drawn is wrong as well
        missed *= np.maximum(answers - right - drawn, 0) / (answers - drawn)
    return np.asarray(1.0 - missed)


def steps(answers: int) -> tuple[int, ...]:
    """1, 2, 4, ... and ``answers`` itself: where the curve is drawn."""
    powers = [1 << bit for bit in range(answers.bit_length()) if 1 << bit <= answers]
    return tuple(dict.fromkeys([*powers, answers]))


def curve(
    solved: Bool[np.ndarray, "seed problem answer"], level: float = 0.95
) -> dict[int, Estimate]:
    """pass@k over k, averaged over seeds and problems; intervals as in ``judging/crossed.py``."""
    right, answers = solved.sum(2), solved.shape[2]
    return {k: crossed(pass_at_k(right, answers, k), level=level) for k in steps(answers)}
