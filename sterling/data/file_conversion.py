"""Convert dataset files of any format to Sterling's format, piece by piece."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from sterling.data.dataset import Dataset
from sterling.data.dataset_concatenation import merge_streams
from sterling.data.dataset_metadata import check_reference_scores
from sterling.data.episode_columns import Block, ContentHash, Stream
from sterling.data.formats import check_destination, flat_arrays, open_stream, sterling_format
from sterling.data.formats.damaged_files import HASH_MISMATCH, report_damage
from sterling.data.formats.env_spaces import (
    SpacePair,
    check_spaces_fit,
    convert_blocks,
    environment_spaces,
    has_guessed_spaces,
)
from sterling.data.space_json import smallest_common_space
from sterling.system.atomic_files import check_free_space, explain_write_errors
from sterling.types import Mistake

UNVERIFIED_NOTE = "imported although its numbers do not match its hash (import --changed)"


def convert_files(
    sources: Sequence[Path],
    out: Path,
    *,
    format: str = "",
    environment: str = "",
    reference: tuple[float, float] | None = None,
    limit: int | None = None,
    changed: bool = False,
) -> Dataset:
    """Read files piece by piece and write them, concatenated, in Sterling's format.

    ``environment``: an id known to Gymnasium, whose spaces replace the files'; raises Mistake if
    the columns do not fit them. ``reference``: the returns that count as 0 and as 1. ``limit``: see
    :func:`~sterling.data.formats.open_stream`. A file that states a hash but holds other numbers is
    refused unless ``changed`` is true; then a note says so.
    """
    check_reference_scores(reference)
    check_destination(out)
    found = [_with_hash_check(open_stream(path, format, limit), path, changed) for path in sources]
    if environment:
        given = environment_spaces(environment)
        found = [with_environment_spaces(one, given) for one in found]
    elif len(found) > 1:
        found = _with_common_action_space(found)
    several = sources if len(sources) > 1 else ()
    facts, blocks = merge_streams(found, [_column_names(path, format, limit) for path in several])
    if environment and environment != facts.environment:
        facts = dataclasses.replace(facts, environment=environment, options={})
    facts = dataclasses.replace(facts, reference=reference or facts.reference)
    named = sources[0] if len(sources) == 1 else out
    check_free_space(out, sum(one.bytes for one in found))
    # report_damage is inside _read_blocks too: errors of reading must not be taken for writing's
    with report_damage(named, "a dataset"), explain_write_errors(out):
        sterling_format.write_blocks(
            found[0].obs_space, found[0].action_space, facts, _read_blocks(blocks, named), out
        )
    return Dataset(out)


def _read_blocks(blocks: Iterable[Block], path: Path) -> Iterator[Block]:
    with report_damage(path, "a dataset"):
        yield from blocks


def _with_hash_check(found: Stream, path: Path, changed: bool) -> Stream:
    """Return a stream that raises Mistake at its end if its content does not match its hash."""
    if not found.hash:
        return found
    if changed:
        return dataclasses.replace(found, facts=found.facts.with_notes(UNVERIFIED_NOTE))
    digest = ContentHash(found.obs_space, found.action_space)

    def blocks() -> Iterator[Block]:
        yield from digest.add_each(found.blocks)
        if digest.value != found.hash:
            raise Mistake(f"{path} {HASH_MISMATCH}")

    return dataclasses.replace(found, blocks=blocks())


def _column_names(path: Path, format: str, limit: int | None) -> list[str]:
    """Return the names of a file's columns, found by reading its first block; [] if it is empty."""
    with report_damage(path, "a dataset"):
        first = next(open_stream(path, format, limit).blocks, None)
    return [] if first is None else [*first.arrays]


def with_environment_spaces(found: Stream, given: SpacePair) -> Stream:
    """Return a stream whose spaces are replaced by an environment's."""
    check_spaces_fit((found.obs_space, found.action_space), given)
    facts = found.facts.without(flat_arrays.GUESSED_SPACES_NOTE).without(
        flat_arrays.GUESSED_BOUNDS_NOTE
    )
    blocks = convert_blocks(found.blocks, given)
    return Stream(*given, facts, blocks, found.bytes)


def _with_common_action_space(found: list[Stream]) -> list[Stream]:
    """Give streams whose spaces were guessed the smallest action space that fits all of them."""
    whole = smallest_common_space([one.action_space for one in found])
    if whole is None or not all(has_guessed_spaces(one.facts) for one in found):
        return found
    return [
        dataclasses.replace(
            one, action_space=whole, facts=flat_arrays.note_guessed_spaces(one.facts, whole)
        )
        for one in found
    ]
