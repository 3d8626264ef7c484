"""D4RL's HDF5: ``observations, actions, rewards, terminals, timeouts[, next_observations]``.

``infos/NAME`` become extras of the rows (``infos/action_log_probs`` becomes ``log_prob``), and the
weights under ``metadata/policy`` are kept as their hash. ``timeouts`` of the maze2d sets mark
changes of the goal; they are cuts all the same, which is right for the value of either side.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from sterling.data.columns import Stream, has_successors
from sterling.data.facts import Facts, Passport, Source
from sterling.data.formats import flat, hdf5
from sterling.data.formats.opened import needed
from sterling.disk import replacing
from sterling.types import Mistake

PASSPORT = "sterling"  # an attribute of the file
LOG_PROB = "action_log_probs"
LAST = "the last entry of every episode has no place in D4RL and was left out"


def recognises(path: Path) -> bool:
    """Whether it is an HDF5 file; Minari's lie in a folder."""
    return path.is_file() and h5py.is_hdf5(path)


def read(path: Path, limit: int | None = None) -> Stream:
    """The file as episodes; it stays open until the last block was read."""
    file = hdf5.opened(path)
    obs = needed(file, ["observations"])
    if not isinstance(obs, h5py.Dataset):
        raise Mistake("its observations are groups; D4RL's are one array")
    ended = flat.truth(needed(file, ["terminals"]))
    notes = []
    cut = np.zeros(len(ended), bool)
    if "timeouts" in file:
        cut = flat.truth(file["timeouts"])
    elif "next_observations" not in file and not limit:
        notes.append(flat.UNCUT)
    extras, left = flat.extras(_infos(file), len(ended))
    notes += left
    arrays = flat.Flat(
        obs,
        needed(file, ["actions"]),
        needed(file, ["rewards"]),
        (~ended).astype(np.float32),
        ended | cut,
        file.get("next_observations"),
        extras,
    )
    if PASSPORT in file.attrs:
        passport = Passport.from_json(json.loads(file.attrs[PASSPORT]))
        return flat.stream(arrays, passport.facts, passport, limit)
    source = Source(path.name, "d4rl", _text(file, "metadata/algorithm"), policy=_policy(file))
    return flat.stream(arrays, Facts(sources=(source,)).noted(*notes), None, limit)


def write(dataset: Any, path: Path) -> None:
    """Write a dataset of one observation array, ``next_observations`` and all."""
    _refuse(dataset)
    path.parent.mkdir(parents=True, exist_ok=True)
    with replacing(path) as partial, h5py.File(partial, "w") as file:
        passport = dataset.passport
        infos = ", ".join(name for name in dataset.columns if name.startswith("info/"))
        if infos:  # of the numbers that were hashed some are not written
            facts = passport.facts.noted(f"{LAST}: {infos}")
            passport = dataclasses.replace(passport, facts=facts, hash="")
        file.attrs[PASSPORT] = json.dumps(passport.to_json())
        for name, like in _written(next(dataset.blocks(1))).items():
            shape = (dataset.rows, *like.shape[1:])
            file.create_dataset(name, shape, like.dtype)
        at = 0
        for block in dataset.blocks():
            for name, array in _written(block).items():
                file[name][at : at + len(array)] = array
            at += block.rows


def _written(block: Any) -> dict[str, np.ndarray]:
    """The arrays of the file for some episodes."""
    arrays, lengths = block.arrays, block.lengths
    rows = np.arange(block.rows) + np.repeat(np.arange(len(lengths)), lengths)
    last = np.zeros(block.rows, bool)
    last[np.cumsum(lengths) - 1] = True
    ended = arrays["discount"] == 0
    made = {
        "observations": arrays["obs"][rows],
        "actions": arrays["action"],
        "rewards": arrays["reward"],
        "terminals": ended,
        "timeouts": last & ~ended,
        "next_observations": arrays["obs"][rows + 1],
    }
    for name, array in arrays.items():
        if name.startswith(("extra/", "info/")):
            word = name.partition("/")[2]
            word = LOG_PROB if word == "log_prob" else word
            place = f"infos/{word}"
            if place in made:
                raise Mistake(f"two columns are called {place}; D4RL has one place for them")
            made[place] = array[rows] if has_successors(name) else array
    return made


def _refuse(dataset: Any) -> None:
    """Say what the format has no words for."""
    if "obs" not in dataset.columns or "action" not in dataset.columns:
        raise Mistake("D4RL has one array of observations and one of actions; take minari or npz")
    if (dataset.lengths == 0).any():
        number = int(np.argmin(dataset.lengths))
        raise Mistake(f"episode {number} is empty, which D4RL cannot say; check --fix drops it")
    before = 0
    for block in dataset.blocks():
        discount = block.arrays["discount"]
        odd = (discount != 0) & (discount != 1)
        last = np.cumsum(block.lengths) - 1
        inside = discount == 0
        inside[last] = False
        if (odd | inside).any():
            at, step = block.where(np.argmax(odd | inside))
            raise Mistake(
                f"episode {before + int(at)} has discount {discount[odd | inside][0]} at step "
                f"{int(step)}, which D4RL cannot say; take npz"
            )
        before += len(block.lengths)


def _infos(file: h5py.File) -> dict[str, h5py.Dataset]:
    """The arrays under ``infos``."""
    found: dict[str, h5py.Dataset] = {}

    def look(name: str, entry: Any) -> None:
        if isinstance(entry, h5py.Dataset):
            found["log_prob" if name == LOG_PROB else name] = entry

    if "infos" in file:
        file["infos"].visititems(look)
    return found


def _policy(file: h5py.File) -> str:
    """A hash of the behaviour policy's weights, where the file holds them."""
    if "metadata/policy" not in file:
        return ""
    digest = hashlib.sha256()

    def take(name: str, entry: Any) -> None:
        if isinstance(entry, h5py.Dataset):
            digest.update(name.encode() + np.asarray(hdf5.whole(entry)).tobytes())

    file["metadata/policy"].visititems(take)
    return digest.hexdigest()


def _text(file: h5py.File, name: str) -> str:
    entry = file.get(name)
    said = hdf5.whole(entry) if isinstance(entry, h5py.Dataset) else b""
    return said.decode() if isinstance(said, bytes) else str(said)
