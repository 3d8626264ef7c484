"""Datasets end to end, every episode keeping its source."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from sterling.data.columns import Block, Stream, joined
from sterling.data.dataset import Dataset
from sterling.data.facts import Facts, Source
from sterling.data.memory import room
from sterling.types import Mistake


def concatenate(datasets: Sequence[Dataset]) -> Dataset:
    """Datasets end to end, in memory; every episode keeps its source.

    Environment, its options and reference scores are kept where all agree. Raises Mistake where
    spaces or columns differ, or memory does not suffice: ``sterling data import A B OUT`` joins
    files.
    """
    if sum(one.bytes for one in datasets) > room():
        raise Mistake("together they are larger than memory; use sterling data import A B ... OUT")
    facts, blocks = merged(datasets)
    return Dataset.of(joined(blocks), datasets[0].obs_space, datasets[0].action_space, facts)


def merged(parts: Sequence[Dataset | Stream]) -> tuple[Facts, Iterator[Block]]:
    """What is known of several together, and their blocks end to end, sources renumbered."""
    first, sources, blocks = parts[0], list[Source](), list[Iterator[Block]]()
    for one in parts:
        if (one.obs_space, one.action_space) != (first.obs_space, first.action_space):
            raise Mistake("the spaces of the datasets differ; they cannot be joined")
        coming = one.blocks() if isinstance(one, Dataset) else one.blocks
        blocks.append(_shifted(coming, len(sources)))
        sources += one.facts.sources
    worlds = [(one.facts.environment, one.facts.options) for one in parts]
    ends = [one.facts.reference for one in parts]
    environment, options = worlds[0] if _alike(worlds) else ("", {})
    reference = ends[0] if _alike(ends) else None
    return Facts(environment, reference, tuple(sources), options), itertools.chain(*blocks)


def _alike(values: Sequence[Any]) -> bool:
    return all(value == values[0] for value in values)


def _shifted(blocks: Iterable[Block], by: int) -> Iterator[Block]:
    for block in blocks:
        yield dataclasses.replace(block, sources=block.sources + by)
