"""Read and write ``.npz`` files: Sterling's columns without loss, or foreign flat arrays.

Flat arrays are found under the names below. ``timeouts`` (or ``truncated``) mark where an episode
was truncated, ``terminals`` where it terminated. Files with only ``done`` do not distinguish the
two: every end is read as a termination, and ``sterling data check`` examines whether that is
likely. In files without rewards these are set to zero: such files are demonstrations, or are to be
labelled.
"""

from __future__ import annotations

import json
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Bool, Int

from sterling.data.dataset_metadata import Facts, Metadata, Source
from sterling.data.episode_columns import (
    BLOCK_ROWS,
    Block,
    Stream,
    block_ranges,
    check_column_length,
    is_per_observation,
)
from sterling.data.formats import flat_arrays, npz_archive
from sterling.data.formats.damaged_files import require_entry
from sterling.system.atomic_files import atomic_write

METADATA_ENTRY = "sterling.json"  # the name of an array that holds the metadata as text
ARRAY_NAMES = {
    "obs": ("observations", "observation", "obs", "states"),
    "next_obs": ("next_observations", "next_observation", "next_obs", "next_states"),
    "action": ("actions", "action"),
    "reward": ("rewards", "reward"),
    "ended": ("terminals", "terminated", "terminations", "terminal"),
    "done": ("done", "dones"),
    "cut": ("timeouts", "truncated", "truncations", "truncateds", "timeout"),
    "log_prob": ("log_prob", "log_probs", "action_log_probs"),
}


def recognises(path: Path) -> bool:
    """Whether it is a zip file with at least one NumPy array."""
    return path.is_file() and zipfile.is_zipfile(path) and bool(npz_archive.array_names(path))


def read(path: Path, limit: int | None = None) -> Stream:
    """Read the file as episodes; it stays open until the last block was read."""
    arrays = npz_archive.open_arrays(path)
    if METADATA_ENTRY in arrays:
        return _read_columns(arrays)
    source = Source(path.name, "npz")
    return _read_flat(arrays, Facts(sources=(source,)), limit)


def write(dataset: Any, path: Path) -> None:
    """Write all columns and the metadata; equal datasets give equal files."""
    first = next(dataset.blocks(1)).arrays
    text = np.array(json.dumps(dataset.metadata.to_json()))
    path.parent.mkdir(parents=True, exist_ok=True)
    with atomic_write(path) as partial, zipfile.ZipFile(partial, "w") as made:
        for name, array in {METADATA_ENTRY: text, "lengths": dataset.lengths}.items():
            with made.open(_zip_entry(name), "w", force_zip64=True) as file:
                np.lib.format.write_array(file, array, allow_pickle=False)
        for name, like in first.items():
            count = dataset.rows + len(dataset) * is_per_observation(name)
            descr = np.lib.format.dtype_to_descr(like.dtype)
            shape = (count, *like.shape[1:])
            header = {"descr": descr, "fortran_order": False, "shape": shape}
            with made.open(_zip_entry(name), "w", force_zip64=True) as file:
                np.lib.format.write_array_header_2_0(file, header)
                for block in dataset.blocks():
                    file.write(np.ascontiguousarray(block.arrays[name]).tobytes())


def _zip_entry(name: str) -> zipfile.ZipInfo:
    return zipfile.ZipInfo(f"{name}.npy")  # with a constant time stamp


def _read_columns(arrays: dict[str, npz_archive.ArrayMember]) -> Stream:
    metadata = Metadata.from_json(json.loads(str(arrays.pop(METADATA_ENTRY).whole())))
    lengths = require_entry(arrays, ["lengths"]).whole().astype(np.int64)
    del arrays["lengths"]
    for name, array in arrays.items():
        check_column_length(name, len(array), lengths)
    size = sum(array.nbytes for array in arrays.values())
    known = (metadata.obs_space, metadata.action_space, metadata.facts)
    sources = metadata.sources_of(0, len(lengths))
    return Stream(*known, _read_blocks(arrays, lengths, sources), size, metadata.hash)


def _read_blocks(
    arrays: dict[str, npz_archive.ArrayMember],
    lengths: Int[np.ndarray, "episode"],
    sources: Int[np.ndarray, "episode"],
) -> Iterator[Block]:
    """Yield whole episodes, about ``BLOCK_ROWS`` rows at a time."""
    ends = np.cumsum(lengths)
    for first, stop in block_ranges(lengths, BLOCK_ROWS):
        low, high = int(ends[first] - lengths[first]), int(ends[stop - 1])
        columns = {
            name: array[low + first : high + stop] if is_per_observation(name) else array[low:high]
            for name, array in arrays.items()
        }
        yield Block(columns, lengths[first:stop], sources[first:stop])


def _read_flat(
    arrays: dict[str, npz_archive.ArrayMember], facts: Facts, limit: int | None
) -> Stream:
    def has(part: str) -> npz_archive.ArrayMember | None:
        return next((arrays[name] for name in ARRAY_NAMES[part] if name in arrays), None)

    obs = require_entry(arrays, ARRAY_NAMES["obs"])
    real, done, cut = has("ended"), has("done"), has("cut")
    if real is None and done is None:
        require_entry(arrays, (*ARRAY_NAMES["ended"], *ARRAY_NAMES["done"]))
    flags = [flat_arrays.read_flags(each) for each in (real, done, cut) if each is not None]
    last: Bool[np.ndarray, "row"] = np.logical_or.reduce(flags)
    ended = last if cut is None else last & ~flat_arrays.read_flags(cut)
    following, notes = has("next_obs"), []
    if real is not None:
        ended = flat_arrays.read_flags(real)
    elif cut is None:
        notes.append(
            "'done' does not distinguish termination from truncation; all are read as terminations"
        )
    if done is None and cut is None and following is None and not limit:
        notes.append(flat_arrays.NO_TIMEOUTS_NOTE)
    reward: Any = has("reward")
    if reward is None:
        notes.append(flat_arrays.NO_REWARDS_NOTE)
        reward = np.zeros(len(obs), np.float32)
    action, discount = require_entry(arrays, ARRAY_NAMES["action"]), (~ended).astype(np.float32)
    taken = {name for names in ARRAY_NAMES.values() for name in names}
    others = {name: array for name, array in arrays.items() if name not in taken}
    log_prob = has("log_prob")
    if log_prob is not None:
        others["log_prob"] = log_prob
    extras, left = flat_arrays.row_extras(others, len(obs))
    notes += _second_arrays(arrays)
    rows = flat_arrays.FlatArrays(obs, action, reward, discount, last, following, extras)
    return flat_arrays.episode_stream(rows, facts.with_notes(*notes, *left), None, limit)


def _second_arrays(arrays: dict[str, Any]) -> Iterator[str]:
    """Yield a note for every part of a step that a file has under several names."""
    for names in ARRAY_NAMES.values():
        read, *others = [name for name in names if name in arrays] or [""]
        if others:
            yield f"left out, because {read} is read in its place: {', '.join(others)}"
