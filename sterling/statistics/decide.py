"""Which of several algorithms are better, in as few runs as it takes.

``compare`` is a sequential test after AdaStop (Mathieu et al. 2024, TMLR, arXiv:2306.10882): every
algorithm is trained with ``per_interim`` fresh seeds; pairs that differ clearly are decided, the
others train on, at most ``interims`` times. A verdict is about one of two things:

* ``about="tendency"``, the default: does a run of the one tend to score higher than a run of the
  other, P(first > second) > 1/2? Decided by closed testing of studentised statistics under
  exchanged runs (``closed_testing.py``, ``tendency.py``). Exchanging runs controls the error
  exactly where the distributions are equal; where only the tendencies are, it does about, and how
  well is measured, shape by shape, in ``docs/statistics.md``.
* ``about="mean"``, where the scores' bounds are known: has the one the higher mean? Decided by
  intervals that hold for every distribution within the bounds (``means_within_bounds.py``).

An exchange of runs says nothing about *means* of different distributions: a steady learner and one
that collapses in three of ten runs may have equal means and are told apart, rightly, by their
tendency. Where the two point in different directions the answer says so.

"equal" means not told apart, not proved the same. It is not valid to run this repeatedly on
overlapping runs with other settings until it answers as wished.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from sterling.statistics import closed_testing, means_within_bounds
from sterling.statistics.comparison import Comparison
from sterling.statistics.declared import Bounds
from sterling.statistics.plan import ABOUT, planned
from sterling.statistics.scores import Failed, Given
from sterling.types import Mistake


def compare(
    scores_by_name: Mapping[str, Given],
    *,
    about: str = "tendency",
    within: Bounds | None = None,
    alpha: float = 0.05,
    interims: int = 5,
    per_interim: int | None = 5,
    pairs: Sequence[tuple[str, str]] | None = None,
    key: int = 0,
    failed: Failed = None,
    draws: int = 10_000,
) -> Comparison:
    """Decide between algorithms from all runs so far, oldest first; higher scores are better.

    A pure function: called again with more runs it first comes to the same decisions as before.
    ``scores_by_name``: ``(run,)`` scores, or ``(run, task)`` whose means over tasks are compared.
    ``about``: "tendency" or "mean" (see above); "mean" needs ``within``, the bounds of the scores.
    ``interims``: looks at most; ``per_interim``: fresh runs of each algorithm for each look, or
    None for one look at all runs, whose numbers may differ; ``pairs``: the comparisons wanted, by
    default all. Runs beyond the last look are passed over. ``failed``: NaN as a number; "exclude"
    would let luck choose the runs and is refused. ``draws``: exchanges, made from ``key``.

    Raises Mistake where so few runs could never decide anything at ``alpha``.
    """
    if about not in ABOUT:
        raise Mistake(f"compare knows no about={about!r}; take 'tendency' or 'mean'")
    if about == "mean" and within is None:
        raise Mistake(
            "about='mean' needs the bounds of the scores, within=(low, high): without them no "
            "number of runs decides between means; leave it out to compare by tendency"
        )
    plan = planned(
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
