"""Decide which of several algorithms are better, with as few runs as possible.

``compare`` is a sequential test after AdaStop (Mathieu et al. 2024, TMLR, arXiv:2306.10882): every
algorithm is trained with ``per_interim`` fresh seeds per look; pairs that differ clearly are
decided, the others train more seeds, for at most ``interims`` looks. A verdict is about one of two
questions:

* ``about="tendency"``, the default: does a run of one algorithm tend to score higher than a run of
  the other, P(first > second) > 1/2? Decided by closed testing of studentised statistics under
  exchanged runs (``closed_testing.py``, ``tendency.py``). The error is exactly controlled where the
  two distributions are equal, and approximately where only the tendencies are; the measured error
  rates, shape by shape, are in ``docs/statistics.md``.
* ``about="mean"``, where the bounds of the scores are known: does one algorithm have the higher
  mean? Decided by intervals that hold for every distribution within the bounds
  (``means_within_bounds.py``).

Exchanging runs says nothing about the *means* of different distributions: a steady learner and one
that collapses in three of ten runs may have equal means, and their tendencies still differ. Where
tendency and means point in different directions, the answer says so.

"equal" means not distinguished; it does not mean proved equal. Do not run this repeatedly with
other settings on overlapping runs until the verdict pleases you: the error rate no longer holds.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from sterling.statistics.comparisons import closed_testing, means_within_bounds
from sterling.statistics.comparisons.comparison_plan import ABOUT, make_plan
from sterling.statistics.comparisons.comparison_result import Comparison
from sterling.statistics.scores.score_bounds import Bounds
from sterling.statistics.scores.score_table import FailedRule, ScoresLike
from sterling.types import Mistake


def compare(
    scores_by_name: Mapping[str, ScoresLike],
    *,
    about: str = "tendency",
    within: Bounds | None = None,
    alpha: float = 0.05,
    interims: int = 5,
    per_interim: int | None = 5,
    pairs: Sequence[tuple[str, str]] | None = None,
    key: int = 0,
    failed: FailedRule = None,
    draws: int = 10_000,
) -> Comparison:
    """Compare algorithms by all runs so far, oldest first; higher scores are better.

    A pure function: called again with more runs it first makes the same decisions as before.
    ``scores_by_name``: ``(run,)`` scores, or ``(run, task)`` scores, whose means over tasks are
    compared. ``about``: "tendency" or "mean" (see above); "mean" needs ``within``, the bounds of
    the scores. ``interims``: the largest number of looks. ``per_interim``: fresh runs of each
    algorithm per look, or None for one look at all runs, whose numbers may differ. ``pairs``: the
    comparisons wanted; all by default. Runs beyond the last look are ignored. ``failed``: the score
    that NaN counts as; "exclude" is refused, because luck would then choose the runs. ``draws``:
    number of random exchanges, drawn from ``key``.

    Raises Mistake where so few runs could never decide anything at ``alpha``.
    """
    if about not in ABOUT:
        raise Mistake(f"unknown about={about!r}; use 'tendency' or 'mean'")
    if about == "mean" and within is None:
        raise Mistake(
            "about='mean' needs the bounds of the scores, within=(low, high); without them no "
            "number of runs decides between means. Leave out about to compare by tendency"
        )
    plan = make_plan(
        scores_by_name,
        pairs,
        failed,
        alpha=alpha,
        interims=interims,
        per_interim=per_interim,
        key=key,
        draws=draws,
        within=within if about == "mean" else None,
    )
    return (means_within_bounds if about == "mean" else closed_testing).decide(plan)
