"""Which goals the rows of a log are relabelled with: shares of kinds of goals, for values and for
the policy apart (the sampling of OGBench, Park 2025, arXiv:2410.20092, appendix D)."""

from __future__ import annotations

import dataclasses

from sterling.system.mistake import Mistake

# extras of relabelled rows: goals of the policy; way points, and what is observed there
POLICY_GOAL, WAY_POINT = "policy_goal", "way_point"
POLICY_WAY_POINT, POLICY_WAY_POINT_OBS = "policy_way_point", "policy_way_point_obs"


@dataclasses.dataclass(frozen=True)
class GoalShares:
    """Shares of rows whose goal is what was achieved in the row itself (``current``), or later in
    its episode (``future``); the goal of all others was achieved in a row of the whole log.

    Future goals lie k steps ahead: uniformly up to the episode's end, or with a ``gamma`` above 0
    with probability proportional to gamma^k (those beyond the end are the end).
    """

    current: float
    future: float
    gamma: float = 0.0

    def __post_init__(self) -> None:
        """Raise Mistake unless the shares are probabilities."""
        parts = self.current, self.future
        if min(parts) < 0.0 or sum(parts) > 1.0 + 1e-6:
            raise Mistake(
                f"{self.current:g} of the goals cannot be current ones and {self.future:g} future "
                "ones. The rest are goals of the whole log: give shares whose sum is at most 1."
            )


@dataclasses.dataclass(frozen=True)
class RelabelledGoals:
    """How a log's rows get goals: those for values, and those for the policy; with ``ahead`` also
    way points so many steps ahead (hierarchical policies)."""

    values: GoalShares
    policy: GoalShares
    ahead: int = 0
