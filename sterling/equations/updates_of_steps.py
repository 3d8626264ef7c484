"""Where steps of a run with a replay buffer lie among its updates."""

from __future__ import annotations

from sterling.needs.algorithm_needs import Transitions


def updates_before(step: int, needs: Transitions, envs: int) -> int:
    """Return the number of updates before the first one that follows so many steps of all ``envs``,
    the warm-up included; 0 for steps of the warm-up and of the first iteration."""
    warmup, each = -(-needs.warmup // envs) * envs, needs.collect * envs
    return max(-((warmup - step) // each) - 1, 0) * needs.updates
