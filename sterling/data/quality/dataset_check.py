"""Check a dataset for what silently ruins learning; each finding names its episode and step.

All checks run in one pass over blocks of episodes, so a memory-mapped dataset can be checked too.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from sterling.data import space_json
from sterling.data.dataset import Dataset
from sterling.data.dataset_metadata import Facts
from sterling.data.quality import block_checks
from sterling.data.quality.dataset_findings import (
    CAST_COLUMN,
    DROP_EPISODE,
    MARK_TRUNCATED,
    Finding,
)
from sterling.data.quality.logged_masks import find_mask_faults
from sterling.data.quality.wrong_successors import ResetFinder
from sterling.types import Mistake


def check(dataset: Dataset, environment: str = "", limit: int | None = None) -> list[Finding]:
    """Return all findings about a dataset, errors first.

    ``environment``: an id whose spaces the dataset's spaces must equal (default: not compared).
    ``limit``: the time limit at which episodes were truncated. By default it is the
    ``max_episode_steps`` that the dataset's environment was made with, or else that
    environment's time limit in Gymnasium.
    """
    if limit is not None and limit < 1:
        raise Mistake(f"The time limit must be at least 1 step; got limit={limit}.")
    limit = limit or _time_limit(dataset.facts, environment)
    found = [*_dataset_findings(dataset, environment), *_length_findings(dataset, limit)]
    resets, before = ResetFinder(dataset), 0
    checks = (
        block_checks.find_non_finite,
        block_checks.find_outside_actions,
        block_checks.find_outside_observations,
        block_checks.find_bad_discounts,
        find_mask_faults,
        resets.examine,
    )
    edges, seen, constant = (
        block_checks.EdgeActions(dataset),
        dict[bytes, int](),
        block_checks.ConstantReward(dataset),
    )
    for block in dataset.blocks() if dataset.rows else ():
        for run_check in checks:
            found += run_check(dataset, block, before)
        found += block_checks.find_duplicates(block, before, seen)
        edges.add(block, before)
        constant.add(block.arrays["reward"])
        before += len(block.lengths)
    found += [*resets.findings(dataset), *edges.findings(), *constant.findings()]
    place = [(one.severity, -1 if one.episode is None else one.episode) for one in found]
    return [found[at] for at in sorted(range(len(found)), key=lambda at: place[at])]


def require_valid(dataset: Dataset) -> Dataset:
    """Return the dataset unchanged; raise Mistake if :func:`check` finds errors, so that training
    does not start on a broken file."""
    errors = [one for one in check(dataset) if one.severity == "error"]
    if errors:
        name = dataset.path or "FILE"
        more = f" (and {len(errors) - 1} more)" if len(errors) > 1 else ""
        raise Mistake(
            f"{errors[0]}{more}. See all with: sterling data check {name}. To train on the file "
            "anyway, add --unchecked."
        )
    return dataset


def _time_limit(facts: Facts, environment: str) -> int | None:
    if environment not in ("", facts.environment):
        facts = Facts(environment)
    return facts.limit


def _dataset_findings(dataset: Dataset, environment: str) -> Iterator[Finding]:
    """Find wrong spaces, shapes and types, and list what was assumed when the file was read."""
    if environment:
        from sterling.data.formats.env_spaces import environment_spaces

        for name, own, its in zip(
            ("observation", "action"),
            (dataset.obs_space, dataset.action_space),
            environment_spaces(environment),
            strict=True,
        ):
            if own != its:
                message = f"the {name} space is {own}, but {environment} has {its}"
                yield Finding("error", "space", message)
    first = next(dataset.blocks(1), None)
    for number, source in enumerate(dataset.facts.sources):
        for note in source.notes:
            yield Finding("warning", "assumed", f"source {number} ({source.name}): {note}")
    if first is None or not dataset.rows:
        message = "there are no episodes" if first is None else "no episode has any step"
        yield Finding("error", "empty", message)
        return
    for kind, space in (("obs", dataset.obs_space), ("action", dataset.action_space)):
        for name, part in space_json.column_spaces(kind, space).items():
            yield from _type_findings(name, part, first.arrays[name])
    for name in ("reward", "discount"):
        array = first.arrays[name]
        if array.ndim != 1 or array.dtype.kind not in "fiub":
            yield Finding(
                "error", "type", f"{name} is {array.dtype} {array.shape[1:]}; it must be scalars"
            )


def _type_findings(name: str, space: space_json.Space, array: np.ndarray) -> Iterator[Finding]:
    shape = tuple(space.shape or ())
    if array.shape[1:] != shape:
        yield Finding("error", "shape", f"{name} has shape {array.shape[1:]}, its space {shape}")
    if array.dtype.kind not in "fiub":
        yield Finding("error", "type", f"{name} has type {array.dtype}; it must hold numbers")
    elif (array.dtype.kind == "f") != (np.dtype(space.dtype).kind == "f"):
        yield Finding(
            "error",
            "type",
            f"{name} is {array.dtype}, but its space {space.dtype}",
            fix=CAST_COLUMN,
        )


def _length_findings(dataset: Dataset, limit: int | None) -> Iterator[Finding]:
    for number in np.flatnonzero(dataset.lengths == 0).tolist():
        yield Finding("warning", "empty", "the episode has no steps", number, fix=DROP_EPISODE)
    if limit is not None:
        for number in np.flatnonzero(dataset.lengths > limit).tolist():
            message = f"{dataset.lengths[number]} steps, but the time limit is {limit}"
            yield Finding("error", "length", f"{message}: truncations are missing", number)
    longest = int(dataset.lengths.max(initial=0))
    at_most = dataset.lengths == (limit or longest)
    ends = int((at_most & dataset.ended).sum())
    if ends < 2 or ends < at_most.sum() or longest < 2:
        return
    message = f"{ends} episodes of exactly {limit or longest} steps are marked as terminated"
    first = int(np.argmax(at_most & dataset.ended))
    if limit is not None:
        message = f"{message}, none as truncated, but the time limit is {limit}"
        yield Finding("error", "terminal", message, first, fix=MARK_TRUNCATED)
    elif ends > 0.5 * len(dataset) or (not dataset.ended.all() and ends > 10):
        # the environment may end so by its rules, so it is an error only where the limit is known
        message = (
            f"{message}; if a time limit cut them off, say so with --limit {longest}: then it is "
            f"an error, whose fix is to {MARK_TRUNCATED}"
        )
        yield Finding("warning", "terminal", message, first)
