"""Datasets end to end, every episode keeping its source."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from sterling.data.chosen import OF_ACTIONS
from sterling.data.columns import Block, Stream, joined
from sterling.data.dataset import Dataset
from sterling.data.facts import Facts, Source
from sterling.data.memory import room
from sterling.types import Mistake


def concatenate(datasets: Sequence[Dataset]) -> Dataset:
    """Datasets end to end, in memory; every episode keeps its source.

    Environment, its options and reference scores are kept where all agree, log-probabilities of
    actions where all have them. Raises Mistake where spaces or other columns differ, or memory does
    not suffice: ``sterling data import A B OUT`` joins files.
    """
    if sum(one.bytes for one in datasets) > room():
        raise Mistake("together they are larger than memory; use sterling data import A B ... OUT")
    facts, blocks = merged(datasets, [one.columns for one in datasets])
    return Dataset.of(joined(blocks), datasets[0].obs_space, datasets[0].action_space, facts)


def merged(
    parts: Sequence[Dataset | Stream], columns: Sequence[Iterable[str]]
) -> tuple[Facts, Iterator[Block]]:
    """What is known of several together, and their blocks end to end, sources renumbered.

    ``columns``: the names of each part's. What is known of how actions were chosen is left out
    where not all know the same, as a density is of what else was recorded; a note says so.
    """
    if not parts:
        raise Mistake("there is nothing to join; give at least one dataset")
    had = [set(one).intersection(OF_ACTIONS) for one in columns]
    left = sorted(set().union(*had)) if any(one != had[0] for one in had) else []
    first, sources, blocks = parts[0], list[Source](), list[Iterator[Block]]()
    for one in parts:
        if (one.obs_space, one.action_space) != (first.obs_space, first.action_space):
            raise Mistake("the spaces of the datasets differ; they cannot be joined")
        coming = one.blocks() if isinstance(one, Dataset) else one.blocks
        blocks.append(_shifted(coming, len(sources), left))
        sources += one.facts.sources
    worlds = [(one.facts.environment, one.facts.options) for one in parts]
    ends = [one.facts.reference for one in parts]
    environment, options = worlds[0] if _alike(worlds) else ("", {})
    reference = ends[0] if _alike(ends) else None
    facts = Facts(environment, reference, tuple(sources), options)
    notes = [f"{', '.join(left)} left out: not all that was joined has that"] if left else []
    return facts.noted(*notes), itertools.chain(*blocks)


def _alike(values: Sequence[Any]) -> bool:
    return all(value == values[0] for value in values)


def _shifted(blocks: Iterable[Block], by: int, left: Sequence[str]) -> Iterator[Block]:
    for block in blocks:
        kept = {name: array for name, array in block.arrays.items() if name not in left}
        yield dataclasses.replace(block, arrays=kept, sources=block.sources + by)
