"""Summaries: one number of a seed's evaluation episodes together, such as the worst return.

A channel gives each episode a number, of which results state the mean. A summary is any other
function of a seed's episodes: the volume that their objectives dominate, their worst case, the gain
after adaptation. Ready-made ones: ``sterling/envs/summaries.py``.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any, ClassVar

import numpy as np

from sterling.problem.channels import NAME_PATTERN, RESERVED_COLUMNS, Channel
from sterling.system.mistake import Mistake
from sterling.system.shown_values import shown_value

TAKEN = (*RESERVED_COLUMNS, "ended", "unended")  # names of results and columns of every evaluation


@dataclasses.dataclass(frozen=True)
class Summary:
    """One number of a seed's evaluation episodes.

    ``of`` gets the seed's columns by name, each an array ``(episode,)``: ``return``, ``length``,
    ``ended``, those of the channels such as ``cost`` or ``objectives.gain``, and of an agent that
    adapts ``return.before``; in a world with levels also each leaf of the episode's level, such as
    ``level/size``, ``(episode, ...)``. It returns a finite number.
    """

    of: Callable[[dict[str, np.ndarray]], float]
    better: int  # 1: more is better, -1: less is better, 0: neither
    within: ClassVar[None] = None  # bounds, as a channel's: none are declared

    def __post_init__(self) -> None:
        """Raise Mistake for fields of another type."""
        if not callable(self.of):
            raise Mistake(f"a summary's of={shown_value(self.of)} is no function. Give a function.")
        if self.better not in (-1, 0, 1):
            raise Mistake(f"a summary's better={self.better!r} is not valid. Use -1, 0 or 1.")


def check_summaries(
    declared: Any, channels: Mapping[str, Channel], others: Mapping[str, Summary] | None = None
) -> dict[str, Summary]:
    """Return the ``declared`` summaries beside the ``others``. Raise Mistake for what is no dict of
    summaries, and for names that columns, channels or the others have."""
    if not isinstance(declared, dict):
        raise Mistake(
            f"summaries are {shown_value(declared)}. Make them a dict, as "
            "{'worst': worst_case()} (docs/channels.md)."
        )
    others = others or {}
    taken = {*TAKEN, *channels, *others}
    for name, summary in declared.items():
        if not isinstance(name, str) or not NAME_PATTERN.fullmatch(name):
            raise Mistake(f"{name!r} is not a valid summary name. Use letters, digits and _.")
        if not isinstance(summary, Summary):
            raise Mistake(
                f"summary {name!r} is {shown_value(summary)}. Make it a Summary, as "
                "Summary(of=function, better=1)."
            )
        if name in taken:
            raise Mistake(f"summary {name!r}: results have another number of this name. Rename it.")
    return {**others, **declared}
