"""What the world declares of the number that runs are scored by: the return, or a channel."""

from __future__ import annotations

from collections.abc import Sequence

from sterling.channels import Channel, columns
from sterling.statistics.declared import Bounds
from sterling.training.settings import Settings
from sterling.training.start import make_world
from sterling.training.trained import bounds
from sterling.types import Mistake


def declared(metric: str, settings: Sequence[Settings]) -> tuple[Bounds | None, int]:
    """The bounds of an episode's ``metric``, None where the ``settings`` differ in them, and which
    scores are better: 1 the higher, -1 the lower ones. Raises Mistake for what the world does not
    report, or reports without saying which is better."""
    if metric == "return":
        said = {bounds(each) for each in settings}
        return (said.pop() if len(said) == 1 else None), 1
    channel = _channel(metric, settings[0])
    return channel.within, channel.better


def _channel(metric: str, settings: Settings) -> Channel:
    world = make_world(settings, "evaluate", 1)
    try:
        known = columns(world.spec.channels)
    finally:
        world.close()
    if metric not in known:
        reports = ", ".join(known) or "nothing beside the reward"
        raise Mistake(
            f"{settings.name} reports {reports}; the metric is return or one of these, not "
            f"{metric!r}"
        )
    if not known[metric].better:
        raise Mistake(
            f"{settings.name} does not say whether more or less {metric} is better; declare it "
            "(docs/channels.md)"
        )
    return known[metric]
