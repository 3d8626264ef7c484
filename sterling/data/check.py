"""What silently ruins learning from a file, with episode and step; one line each.

Everything is looked for in one pass over blocks, so a mapped dataset is checked as well.
"""

from __future__ import annotations

from collections.abc import Iterator

import gymnasium
import numpy as np

from sterling.data import looks, spaces
from sterling.data.dataset import Dataset
from sterling.data.facts import Facts
from sterling.data.findings import CAST, CUTS, DROP, Finding
from sterling.data.resets import Resets
from sterling.types import Mistake


def check(dataset: Dataset, environment: str = "", limit: int | None = None) -> list[Finding]:
    """Everything that is wrong with a dataset, errors first.

    ``environment``: an id whose spaces the dataset's must equal (by default not compared).
    ``limit``: length at which episodes were cut, if known; by default the dataset's own, which its
    environment was given, or else that environment's in Gymnasium.
    """
    if limit is not None and limit < 1:
        raise Mistake(f"episodes are cut after at least 1 step; got limit={limit}")
    limit = limit or _limit_of(dataset.facts, environment)
    found = [*_of_whole(dataset, environment), *_lengths(dataset, limit)]
    resets, before = Resets(dataset), 0
    each = (looks.values, looks.actions, looks.observations, looks.discounts, resets.look)
    edges, seen, constant = looks.Edges(dataset), dict[bytes, int](), looks.Constant(dataset)
    for block in dataset.blocks() if dataset.rows else ():
        for look in each:
            found += look(dataset, block, before)
        found += looks.duplicates(block, before, seen)
        edges.add(block, before)
        constant.add(block.arrays["reward"])
        before += len(block.lengths)
    found += [*resets.findings(dataset), *edges.findings(), *constant.findings()]
    place = [(one.severity, -1 if one.episode is None else one.episode) for one in found]
    return [found[at] for at in sorted(range(len(found)), key=lambda at: place[at])]


def sound(dataset: Dataset) -> Dataset:
    """The dataset itself; raises Mistake where :func:`check` finds errors, so that training does
    not start on a broken file."""
    errors = [one for one in check(dataset) if one.severity == "error"]
    if errors:
        name = dataset.path or "FILE"
        more = f" (and {len(errors) - 1} more)" if len(errors) > 1 else ""
        raise Mistake(f"{errors[0]}{more}; see sterling data check {name}, or use it unchecked")
    return dataset


def _limit_of(facts: Facts, environment: str) -> int | None:
    given = facts.options.get("max_episode_steps")
    if given is not None and environment in ("", facts.environment):
        return int(given) if given > 0 else None  # 0 and -1: never
    known = gymnasium.registry.get(environment or facts.environment)
    return known.max_episode_steps if known is not None else None


def _of_whole(dataset: Dataset, environment: str) -> Iterator[Finding]:
    """Spaces, shapes, types, and what was assumed when the file was read."""
    if environment:
        from sterling.data.formats import spaces_of

        for name, own, its in zip(
            ("observation", "action"),
            (dataset.obs_space, dataset.action_space),
            spaces_of(environment),
            strict=True,
        ):
            if own != its:
                yield Finding("error", "space", f"the {name} space is {own}, {environment}'s {its}")
    first = next(dataset.blocks(1), None)
    for number, source in enumerate(dataset.facts.sources):
        for note in source.notes:
            yield Finding("warning", "assumed", f"source {number} ({source.name}): {note}")
    if first is None or not dataset.rows:
        said = "there are no episodes" if first is None else "no episode has a step"
        yield Finding("error", "empty", said)
        return
    for kind, space in (("obs", dataset.obs_space), ("action", dataset.action_space)):
        for name, part in spaces.parts(kind, space).items():
            yield from _type(name, part, first.arrays[name])
    for name in ("reward", "discount"):
        array = first.arrays[name]
        if array.ndim != 1 or array.dtype.kind not in "fiub":
            yield Finding(
                "error", "type", f"{name} is {array.dtype} {array.shape[1:]}, not scalars"
            )


def _type(name: str, space: spaces.Space, array: np.ndarray) -> Iterator[Finding]:
    shape = tuple(space.shape or ())
    if array.shape[1:] != shape:
        yield Finding("error", "shape", f"{name} is {array.shape[1:]}, its space {shape}")
    if array.dtype.kind not in "fiub":
        yield Finding("error", "type", f"{name} is of type {array.dtype}; numbers are needed")
    elif (array.dtype.kind == "f") != (np.dtype(space.dtype).kind == "f"):
        yield Finding(
            "error", "type", f"{name} is {array.dtype}, its space {space.dtype}", fix=CAST
        )


def _lengths(dataset: Dataset, limit: int | None) -> Iterator[Finding]:
    for number in np.flatnonzero(dataset.lengths == 0).tolist():
        yield Finding("warning", "empty", "it has no steps", number, fix=DROP)
    if limit is not None:
        for number in np.flatnonzero(dataset.lengths > limit).tolist():
            said = f"{dataset.lengths[number]} steps where the time limit is {limit}"
            yield Finding("error", "length", f"{said}: cuts are missing", number)
    longest = int(dataset.lengths.max(initial=0))
    at_most = dataset.lengths == (limit or longest)
    ends = int((at_most & dataset.ended).sum())
    if ends < 2 or ends < at_most.sum() or longest < 2:
        return
    said = f"{ends} episodes of exactly {limit or longest} steps count as ended"
    first = int(np.argmax(at_most & dataset.ended))
    if limit is not None:
        said = f"{said}, none as cut, where the time limit is {limit}"
        yield Finding("error", "terminal", said, first, fix=CUTS)
    elif ends > 0.5 * len(dataset) or (not dataset.ended.all() and ends > 10):
        said = f"{said}: cuts taken for ends? say --limit {longest} if so"
        yield Finding("warning", "terminal", said, first)
