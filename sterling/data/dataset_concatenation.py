"""Concatenate datasets; every episode keeps its source."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from sterling.data.available_memory import memory_budget
from sterling.data.dataset import Dataset
from sterling.data.dataset_metadata import Facts, Source
from sterling.data.episode_columns import Block, Stream, join_blocks
from sterling.data.recorded_actions import ACTION_EXTRAS
from sterling.types import Mistake


def concatenate(datasets: Sequence[Dataset]) -> Dataset:
    """Concatenate datasets in memory; every episode keeps its source.

    The environment with its options, and the reference scores, are kept if all datasets agree;
    log-probabilities of actions if all have them. Raises Mistake if spaces or other columns differ,
    or if memory does not suffice; ``sterling data import A B OUT`` joins files of any size.
    """
    if sum(one.bytes for one in datasets) > memory_budget():
        raise Mistake(
            "The datasets are larger than memory together. Join their files with: sterling data "
            "import A B ... OUT"
        )
    facts, blocks = merge_streams(datasets, [one.columns for one in datasets])
    return Dataset.from_block(
        join_blocks(blocks), datasets[0].obs_space, datasets[0].action_space, facts
    )


def merge_streams(
    parts: Sequence[Dataset | Stream], columns: Sequence[Iterable[str]]
) -> tuple[Facts, Iterator[Block]]:
    """Concatenate datasets: return combined facts, and all blocks in order with renumbered sources.

    ``columns``: the column names of each part. ``log_prob``, ``chosen`` and ``sample`` are dropped
    unless all parts have the same of them, since a density belongs to what was recorded with it; a
    note says so.
    """
    if not parts:
        raise Mistake("There is no dataset to join. Give at least one.")
    had = [set(one).intersection(ACTION_EXTRAS) for one in columns]
    left = sorted(set().union(*had)) if any(one != had[0] for one in had) else []
    first, sources, blocks = parts[0], list[Source](), list[Iterator[Block]]()
    for one in parts:
        if (one.obs_space, one.action_space) != (first.obs_space, first.action_space):
            raise Mistake(
                "The datasets have different spaces and cannot be joined. Join only datasets of "
                "one environment."
            )
        coming = one.blocks() if isinstance(one, Dataset) else one.blocks
        blocks.append(_renumber_sources(coming, len(sources), left))
        sources += one.facts.sources
    worlds = [(one.facts.environment, one.facts.options) for one in parts]
    ends = [one.facts.reference for one in parts]
    environment, options = worlds[0] if _all_equal(worlds) else ("", {})
    reference = ends[0] if _all_equal(ends) else None
    labels = _common_labels([one.facts.labels for one in parts])
    facts = Facts(environment, reference, tuple(sources), options, labels)
    notes = [f"{', '.join(left)} left out: not all joined datasets have it"] if left else []
    return facts.with_notes(*notes), itertools.chain(*blocks)


def _common_labels(each: Sequence[dict[str, list[str]]]) -> dict[str, list[str]]:
    """Return the labels of all parts; {} unless all have the same. Raises Mistake if equal columns
    number their choices differently."""
    for one in each:
        for name, choices in one.items():
            if name.startswith("action=") and each[0].get(name, choices) != choices:
                raise Mistake(
                    f"The datasets number the choices of {name.removeprefix('action=')} "
                    f"differently: {', '.join(each[0][name])}, and {', '.join(choices)}. Import "
                    "their tables together, or fix the order: --discrete COLUMN=CHOICE,CHOICE"
                )
    return each[0] if _all_equal(each) else {}


def _all_equal(values: Sequence[Any]) -> bool:
    return all(value == values[0] for value in values)


def _renumber_sources(blocks: Iterable[Block], by: int, left: Sequence[str]) -> Iterator[Block]:
    for block in blocks:
        kept = {name: array for name, array in block.arrays.items() if name not in left}
        yield dataclasses.replace(block, arrays=kept, sources=block.sources + by)
