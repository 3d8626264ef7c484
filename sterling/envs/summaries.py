"""Ready-made summaries of a seed's evaluation episodes, and those that a user declares for any
environment.

A column is ``return``, ``length``, or that of a channel, such as ``cost`` or ``objectives.gain``.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from sterling.equations import pareto
from sterling.lookup import user_imports
from sterling.problem.episode_summaries import Summary, check_summaries
from sterling.types import Mistake, World

OPTION = "summaries"  # of every environment: a reference to a dict of summaries


def worst_case(column: str = "return", better: int = 1) -> Summary:
    """Return the summary of the worst episode: the smallest value of a column, or with ``better``
    -1 the largest."""
    return Summary(lambda episodes: better * (better * episodes[column]).min(), better)


def cvar(share: float, column: str = "return", better: int = 1) -> Summary:
    """Return the summary of the worst ``share`` of the episodes: their mean, the conditional value
    at risk. Where the share is not a whole number of episodes, the last one counts in part (Acerbi
    & Tasche 2002, "On the coherence of expected shortfall"). Raise Mistake for a share outside
    (0, 1]."""
    if not 0.0 < share <= 1.0:
        raise Mistake(f"the share of cvar must lie in (0, 1]; got {share}")

    def mean_of_worst(episodes: dict[str, np.ndarray]) -> float:
        worst_first = better * np.sort(better * episodes[column])
        wanted = share * len(worst_first)
        weights = np.clip(wanted - np.arange(len(worst_first)), 0.0, 1.0)
        return float(weights @ worst_first / wanted)

    return Summary(mean_of_worst, better)


def hypervolume(objectives: Sequence[str], reference: Sequence[float]) -> Summary:
    """Return the summary of the volume that the episodes' ``objectives`` dominate above the
    ``reference`` (equations/pareto.py).

    More of an objective is better; a minus before a column's name, as in ``-cost``, turns it round:
    its value is then minus the column's, and so is its part of the reference.
    """
    names = [name.removeprefix("-") for name in objectives]
    signs = np.array([-1.0 if name.startswith("-") else 1.0 for name in objectives])
    if len(names) != len(reference):
        raise Mistake(
            f"hypervolume got {len(names)} objectives and a reference of {len(reference)} numbers. "
            "Give one number for each."
        )

    def volume(episodes: dict[str, np.ndarray]) -> float:
        points = np.stack([episodes[name] for name in names], 1) * signs
        return pareto.hypervolume(points, np.asarray(reference))

    return Summary(volume, better=1)


def with_summaries(world: World, reference: Any) -> World:
    """Return the world, declaring also the summaries of the dict that ``reference`` names. Raise
    Mistake for another reference, and for names that are taken."""
    if not isinstance(reference, str) or not user_imports.is_reference(reference):
        raise Mistake(
            f"summaries={reference!r} names no summaries. Write FILE.py:NAME or "
            "package.module:NAME, the name of a dict."
        )
    spec = world.spec
    made = check_summaries(user_imports.load(reference), spec.channels, spec.summaries)
    world.spec = dataclasses.replace(spec, summaries=made)
    return world


def absolute_options(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return an environment's options, with the file of its summaries as an absolute path, so that
    a run resumes from every folder."""
    given = options.get(OPTION)
    own = {OPTION: user_imports.absolute_reference(given)} if isinstance(given, str) else {}
    return {**options, **own}
