"""Goals as rows beside a batch: what a later row achieved, or any row of the store (the sampling of
OGBench, Park 2025, arXiv:2410.20092, appendix D)."""

from __future__ import annotations

from sterling.needs.algorithm_needs import AnyNeeds
from sterling.needs.beside_laws import Later
from sterling.system.mistake import Mistake

# names of rows beside a batch: goals of the values and of the policy, and way points, so many steps
# later in the row's episode and on the way to the policy's goal
GOAL, POLICY_GOAL = "goal", "policy_goal"
WAY_POINT, POLICY_WAY_POINT = "way_point", "policy_way_point"


def drawn_goal(current: float, future: float, gamma: float = 0.0) -> Later:
    """Return the law of goals that are achieved in the row itself (the share ``current``), later in
    its episode (``future``), or in any row.

    Future goals lie k steps later: uniformly up to the episode's end, or with a ``gamma`` above 0
    with probability proportional to gamma^k (those beyond the end are the end). Raise
    :class:`Mistake` unless the shares are probabilities.
    """
    rest = 1.0 - current - future
    if min(current, future) < 0.0 or rest < -1e-6:
        raise Mistake(
            f"{current:g} of the goals cannot be current ones and {future:g} future ones. The rest "
            "are goals of the whole log: give shares whose sum is at most 1."
        )
    return Later(share=(current, future, max(rest, 0.0)), discount=gamma or 1.0)


def draws_goals(needs: AnyNeeds) -> bool:
    """Whether a learner draws later rows, whose achieved goals it learns to reach."""
    laws = [each.law for feed in needs.feeds for each in feed.own_beside]
    return any(isinstance(law, Later) and not law.steps for law in laws)
