"""Bounds and direction of the score of runs: the return, or a channel or summary of their world."""

from __future__ import annotations

from collections.abc import Sequence

from sterling.problem.channels import Channel, channel_columns
from sterling.problem.episode_summaries import Summary
from sterling.statistics.scores.score_bounds import Bounds
from sterling.training.assembly.build_run import make_world
from sterling.training.config.settings import Settings
from sterling.training.trained_run import run_return_bounds
from sterling.types import Mistake


def bounds_and_direction(metric: str, settings: Sequence[Settings]) -> tuple[Bounds | None, int]:
    """Return the bounds of an episode's ``metric`` (None if the ``settings`` differ in them), and
    which scores are better: 1 for higher, -1 for lower. Raise Mistake for a metric that the world
    does not report, or whose direction it does not declare."""
    if metric == "return":
        said = {run_return_bounds(each) for each in settings}
        return (said.pop() if len(said) == 1 else None), 1
    channel = _declared_metric(metric, settings[0])
    return channel.within, channel.better


def is_summary(metric: str, settings: Settings) -> bool:
    """Whether a metric is a summary: of evaluation episodes, not of those of training."""
    return metric != "return" and isinstance(_world_channels(settings).get(metric), Summary)


def _world_channels(settings: Settings) -> dict[str, Channel | Summary]:
    """Return the declared channels, by column, and the summaries of the settings' world."""
    world = make_world(settings, "evaluate", 1)
    try:
        return {**channel_columns(world.spec.channels), **world.spec.summaries}
    finally:
        world.close()


def _declared_metric(metric: str, settings: Settings) -> Channel | Summary:
    known = _world_channels(settings)
    if metric not in known:
        reports = ", ".join(known) or "nothing beside the reward"
        raise Mistake(
            f"Unknown metric {metric!r}: {settings.name} reports {reports}. Use return or one of "
            "these."
        )
    if not known[metric].better:
        raise Mistake(
            f"{settings.name} does not declare whether more or less {metric} is better. Declare it "
            "(docs/channels.md)."
        )
    return known[metric]
