"""The estimate of a run's result over its seeds, and what failed seeds count as."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sterling.statistics import headline
from sterling.statistics.scores.score_bounds import Bounds, worst_score
from sterling.statistics.scores.score_table import FailedRule
from sterling.system.terminal_messages import print_notice


def channel_failed_score(failed: FailedRule, within: Bounds | None, better: int) -> FailedRule:
    """Return what a failed seed counts as for a channel, given what it counts as for returns: a
    number applies to returns only, and a channel's worst value may be unknown."""
    known = failed == "worst" and worst_score(within, better) is not None
    return failed if known or failed == "exclude" else None


def final_estimate(
    scores: Sequence[float | None],
    seeds: Sequence[int],
    failed_seeds: Sequence[int],
    within: Bounds | None = None,
    failed: FailedRule = None,
    *,
    better: int = 1,
) -> dict[str, Any]:
    """Return the scores per seed and their estimate (statistics/scores/headline.py); there is no
    estimate if there are ``failed_seeds`` and ``failed`` does not say what they count as."""
    per_seed = [None if s in failed_seeds else x for s, x in zip(seeds, scores, strict=True)]
    made = headline(per_seed, failed=failed, within=within, better=better)
    for part in made.shown.method.split("; ") if made.shown is not None else []:
        if part.startswith("declared"):
            print_notice(f"returns: {part}")
    return made.to_json()
