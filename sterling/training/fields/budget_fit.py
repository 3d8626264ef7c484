"""Fit the defaults of replay learners to a budget that they are too large for.

The defaults are those of papers that train for millions of steps. Where the default warm-up would
take more than half of a run's steps, it becomes a tenth of them (``WARMUP_SHARE``), and a target
network that is copied every so many updates is copied ``TARGET_CHANGES`` times. What the user or a
preset sets stays as it is, and so does every run whose warm-up fits.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection
from typing import Any

from sterling.system.terminal_messages import print_notice

WARMUP_SHARE = 10  # the warm-up takes the budget divided by this
TARGET_CHANGES = 50  # of the target network during a run, at least


def fit_to_budget(
    module: Any, algorithm: str, config: Any, steps: int, given: Collection[str]
) -> Any:
    """Return the Config with a warm-up and a target period that fit into ``steps``, and print a
    notice of what was changed; the same Config if the warm-up fits. Fields in ``given`` stay."""
    needs = module.needs(config)
    if not steps or "warmup" in given or not hasattr(config, "warmup") or not needs.replays:
        return config
    if 2 * config.warmup <= steps:
        return config
    fitted = {"warmup": steps // WARMUP_SHARE}
    period = getattr(config, "target_period", 0)
    if period and "target_period" not in given:
        updates = (steps - fitted["warmup"]) * needs.updates // max(needs.collect, 1)
        fitted["target_period"] = max(1, min(period, updates // TARGET_CHANGES))
    changed = {name: value for name, value in fitted.items() if value != getattr(config, name)}
    words = [f"{name}={value:,} (default {getattr(config, name):,})"
             for name, value in changed.items()]  # fmt: skip
    taken = " and ".join(words)
    print_notice(f"{algorithm}: {taken}, to fit {steps:,} steps; --no-preset keeps the defaults")
    return dataclasses.replace(config, **changed)
