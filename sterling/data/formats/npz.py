"""Arrays in one ``.npz``: Sterling's columns, which lose nothing, or anybody's flat arrays.

Flat arrays are looked for under the names below; ``timeouts`` (or ``truncated``) say where an
episode was cut and ``terminals`` where the world ended. Files that only have ``done`` cannot tell
the two apart: every end counts as real, and ``sterling data check`` looks whether that is likely.
Files without rewards get zeros: they are demonstrations, or wait for labels.
"""

from __future__ import annotations

import json
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Bool, Int

from sterling.data.columns import BLOCK, Block, Stream, check_length, has_successors
from sterling.data.facts import Facts, Passport, Source
from sterling.data.formats import archive, flat
from sterling.data.formats.opened import needed
from sterling.disk import replacing

PASSPORT = "sterling.json"  # an array of text
NAMES = {
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
    """Whether it is an archive of arrays."""
    return path.is_file() and zipfile.is_zipfile(path) and bool(archive.names(path))


def read(path: Path, limit: int | None = None) -> Stream:
    """The file as episodes; it stays open until the last block was read."""
    arrays = archive.members(path)
    if PASSPORT in arrays:
        return _columns(arrays)
    source = Source(path.name, "npz")
    return _flat(arrays, Facts(sources=(source,)), limit)


def write(dataset: Any, path: Path) -> None:
    """Write all columns and what is known of them; equal datasets give equal files."""
    first = next(dataset.blocks(1)).arrays
    said = np.array(json.dumps(dataset.passport.to_json()))
    path.parent.mkdir(parents=True, exist_ok=True)
    with replacing(path) as partial, zipfile.ZipFile(partial, "w") as made:
        for name, array in {PASSPORT: said, "lengths": dataset.lengths}.items():
            with made.open(_member(name), "w", force_zip64=True) as file:
                np.lib.format.write_array(file, array, allow_pickle=False)
        for name, like in first.items():
            count = dataset.rows + len(dataset) * has_successors(name)
            descr = np.lib.format.dtype_to_descr(like.dtype)
            shape = (count, *like.shape[1:])
            header = {"descr": descr, "fortran_order": False, "shape": shape}
            with made.open(_member(name), "w", force_zip64=True) as file:
                np.lib.format.write_array_header_2_0(file, header)
                for block in dataset.blocks():
                    file.write(np.ascontiguousarray(block.arrays[name]).tobytes())


def _member(name: str) -> zipfile.ZipInfo:
    return zipfile.ZipInfo(f"{name}.npy")  # without the time of writing


def _columns(arrays: dict[str, archive.Member]) -> Stream:
    passport = Passport.from_json(json.loads(str(arrays.pop(PASSPORT).whole())))
    lengths = needed(arrays, ["lengths"]).whole().astype(np.int64)
    del arrays["lengths"]
    for name, array in arrays.items():
        check_length(name, len(array), lengths)
    size = sum(array.nbytes for array in arrays.values())
    known = (passport.obs_space, passport.action_space, passport.facts)
    sources = passport.sources_of(0, len(lengths))
    return Stream(*known, _blocks(arrays, lengths, sources), size, passport.hash)


def _blocks(
    arrays: dict[str, archive.Member],
    lengths: Int[np.ndarray, "episode"],
    sources: Int[np.ndarray, "episode"],
) -> Iterator[Block]:
    """Whole episodes, about ``BLOCK`` rows at a time."""
    ends, at = np.cumsum(lengths), 0
    while at < len(lengths):
        low = int(ends[at] - lengths[at])
        stop = max(int(np.searchsorted(ends, low + BLOCK, "right")), at + 1)
        high = int(ends[stop - 1])
        some = {
            name: array[low + at : high + stop] if has_successors(name) else array[low:high]
            for name, array in arrays.items()
        }
        yield Block(some, lengths[at:stop], sources[at:stop])
        at = stop


def _flat(arrays: dict[str, archive.Member], facts: Facts, limit: int | None) -> Stream:
    def has(part: str) -> archive.Member | None:
        return next((arrays[name] for name in NAMES[part] if name in arrays), None)

    obs = needed(arrays, NAMES["obs"])
    real, done, cut = has("ended"), has("done"), has("cut")
    if real is None and done is None:
        needed(arrays, (*NAMES["ended"], *NAMES["done"]))
    flags = [flat.truth(each) for each in (real, done, cut) if each is not None]
    last: Bool[np.ndarray, "row"] = np.logical_or.reduce(flags)
    ended = last if cut is None else last & ~flat.truth(cut)
    following, notes = has("next_obs"), []
    if real is not None:
        ended = flat.truth(real)
    elif cut is None:
        notes.append("'done' does not tell ends from cuts; all count as ends")
    if done is None and cut is None and following is None and not limit:
        notes.append(flat.UNCUT)
    reward: Any = has("reward")
    if reward is None:
        notes.append(flat.UNREWARDED)
        reward = np.zeros(len(obs), np.float32)
    action, discount = needed(arrays, NAMES["action"]), (~ended).astype(np.float32)
    taken = {name for names in NAMES.values() for name in names}
    others = {name: array for name, array in arrays.items() if name not in taken}
    log_prob = has("log_prob")
    if log_prob is not None:
        others["log_prob"] = log_prob
    extras, left = flat.extras(others, len(obs))
    rows = flat.Flat(obs, action, reward, discount, last, following, extras)
    return flat.stream(rows, facts.noted(*notes, *left), None, limit)
