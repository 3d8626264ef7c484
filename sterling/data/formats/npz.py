"""Arrays in one ``.npz``: Sterling's columns, which lose nothing, or anybody's flat arrays.

Flat arrays are looked for under the names below; ``timeouts`` (or ``truncated``) say where an
episode was cut and ``terminals`` where the world ended. Files that only have ``done`` cannot tell
the two apart: every end counts as real, and ``sterling data check`` looks whether that is likely.
"""

from __future__ import annotations

import json
import zipfile
from pathlib import Path
from typing import Any

import numpy as np

from sterling.data.columns import Block, Stream, has_successors
from sterling.data.facts import Facts, Passport, Source
from sterling.data.formats import flat
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
    return path.is_file() and zipfile.is_zipfile(path)


def read(path: Path, limit: int | None = None) -> Stream:
    """The file as episodes; it is read whole."""
    with np.load(path, allow_pickle=False) as file:
        arrays = {name: file[name] for name in file.files}
    if PASSPORT in arrays:
        return _columns(arrays)
    source = Source(path.name, "npz")
    return _flat(arrays, Facts(sources=(source,)), limit)


def write(dataset: Any, path: Path) -> None:
    """Write all columns and what is known of them; equal datasets give equal files."""
    first = next(dataset.blocks(1)).arrays
    said = np.array(json.dumps(dataset.passport.to_json()))
    path.parent.mkdir(parents=True, exist_ok=True)
    with replacing(path) as partial, zipfile.ZipFile(partial, "w") as archive:
        for name, array in {PASSPORT: said, "lengths": dataset.lengths}.items():
            with archive.open(_member(name), "w", force_zip64=True) as file:
                np.lib.format.write_array(file, array, allow_pickle=False)
        for name, like in first.items():
            count = dataset.rows + len(dataset) * has_successors(name)
            descr = np.lib.format.dtype_to_descr(like.dtype)
            shape = (count, *like.shape[1:])
            header = {"descr": descr, "fortran_order": False, "shape": shape}
            with archive.open(_member(name), "w", force_zip64=True) as file:
                np.lib.format.write_array_header_2_0(file, header)
                for block in dataset.blocks():
                    file.write(np.ascontiguousarray(block.arrays[name]).tobytes())


def _member(name: str) -> zipfile.ZipInfo:
    return zipfile.ZipInfo(f"{name}.npy")  # without the time of writing


def _columns(arrays: dict[str, np.ndarray]) -> Stream:
    passport = Passport.from_json(json.loads(str(arrays.pop(PASSPORT))))
    lengths = needed(arrays, ["lengths"]).astype(np.int64)
    del arrays["lengths"]
    block = Block(arrays, lengths, passport.sources_of(0, len(lengths))).checked()
    size = sum(array.nbytes for array in arrays.values())
    known = (passport.obs_space, passport.action_space, passport.facts)
    return Stream(*known, iter([block]), size, passport.hash)


def _flat(arrays: dict[str, np.ndarray], facts: Facts, limit: int | None) -> Stream:
    def has(part: str) -> np.ndarray | None:
        return next((arrays[name] for name in NAMES[part] if name in arrays), None)

    obs = needed(arrays, NAMES["obs"])
    real, done, cut = has("ended"), has("done"), has("cut")
    ended = np.zeros(len(obs), bool)
    if real is not None:
        ended = flat.truth(real)
    elif done is not None:
        ended = flat.truth(done) & (~flat.truth(cut) if cut is not None else True)
        if cut is None:
            facts = facts.noted("'done' does not tell ends from cuts; all count as ends")
    else:
        needed(arrays, (*NAMES["ended"], *NAMES["done"]))
    last = ended | flat.truth(cut) if cut is not None else ended
    log_prob = has("log_prob")
    extras = {"log_prob": log_prob} if log_prob is not None else {}
    taken = {name for names in NAMES.values() for name in names}
    for name, array in arrays.items():
        if name not in taken and array.ndim and len(array) == len(obs):
            extras[name] = array
    discount = (~ended).astype(np.float32)
    action, reward = needed(arrays, NAMES["action"]), needed(arrays, NAMES["reward"])
    rows = flat.Flat(obs, action, reward, discount, last, has("next_obs"), extras)
    return flat.stream(rows, facts, None, limit)
