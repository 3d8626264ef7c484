"""Read and write D4RL's HDF5 files.

Their arrays are ``observations, actions, rewards, terminals, timeouts[, next_observations]``.
``infos/NAME`` become extras of the rows (``infos/action_log_probs`` becomes ``log_prob``), and of
the weights under ``metadata/policy`` the hash is kept. In the maze2d sets ``timeouts`` mark changes
of the goal. They are read as truncations, which is right for values on either side.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from sterling.data.dataset_metadata import Facts, Metadata, Source
from sterling.data.episode_columns import Stream, is_per_observation
from sterling.data.formats import flat_arrays, hdf5
from sterling.data.formats.damaged_files import require_entry
from sterling.system.atomic_files import atomic_write
from sterling.types import Mistake

METADATA_ATTRIBUTE = "sterling"  # the file's attribute that holds our metadata
LOG_PROB_NAME = "action_log_probs"
READ_ENTRIES = (
    *("observations", "actions", "rewards", "terminals", "timeouts", "next_observations"),
    *("infos", "metadata"),
)
LAST_ENTRY_NOTE = "D4RL cannot store the last entry of every episode; it was left out"


def recognises(path: Path) -> bool:
    """Whether it is an HDF5 file; Minari's files lie in a folder."""
    return path.is_file() and h5py.is_hdf5(path)


def read(path: Path, limit: int | None = None) -> Stream:
    """Read the file as episodes; it stays open until the last block was read."""
    file = hdf5.open_file(path)
    obs = require_entry(file, ["observations"])
    if not isinstance(obs, h5py.Dataset):
        raise Mistake("Its observations are groups, but D4RL's are one array. Use another format.")
    ended = flat_arrays.read_flags(require_entry(file, ["terminals"]))
    notes = []
    cut = np.zeros(len(ended), bool)
    if "timeouts" in file:
        cut = flat_arrays.read_flags(file["timeouts"])
    elif "next_observations" not in file and not limit:
        notes.append(flat_arrays.NO_TIMEOUTS_NOTE)
    extras, left = flat_arrays.row_extras(_info_arrays(file), len(ended))
    notes += left
    if unread := [name for name in file if name not in READ_ENTRIES]:
        notes.append(f"left out, no entries of D4RL: {', '.join(unread)}")
    arrays = flat_arrays.FlatArrays(
        obs,
        require_entry(file, ["actions"]),
        require_entry(file, ["rewards"]),
        (~ended).astype(np.float32),
        ended | cut,
        file.get("next_observations"),
        extras,
    )
    if METADATA_ATTRIBUTE in file.attrs:
        metadata = Metadata.from_json(json.loads(file.attrs[METADATA_ATTRIBUTE]))
        return flat_arrays.episode_stream(arrays, metadata.facts, metadata, limit)
    source = Source(
        path.name, "d4rl", _read_text(file, "metadata/algorithm"), policy=_policy_hash(file)
    )
    return flat_arrays.episode_stream(
        arrays, Facts(sources=(source,)).with_notes(*notes), None, limit
    )


def write(dataset: Any, path: Path) -> None:
    """Write a dataset whose observation is one array, including ``next_observations``."""
    _check_expressible(dataset)
    path.parent.mkdir(parents=True, exist_ok=True)
    with atomic_write(path) as partial, h5py.File(partial, "w") as file:
        metadata = dataset.metadata
        infos = ", ".join(name for name in dataset.columns if name.startswith("info/"))
        if infos:  # some of the hashed numbers are not written, so the hash would not match
            facts = metadata.facts.with_notes(f"{LAST_ENTRY_NOTE}: {infos}")
            metadata = dataclasses.replace(metadata, facts=facts, hash="")
        file.attrs[METADATA_ATTRIBUTE] = json.dumps(metadata.to_json())
        for name, like in _file_arrays(next(dataset.blocks(1))).items():
            shape = (dataset.rows, *like.shape[1:])
            file.create_dataset(name, shape, like.dtype)
        at = 0
        for block in dataset.blocks():
            for name, array in _file_arrays(block).items():
                file[name][at : at + len(array)] = array
            at += block.rows


def _file_arrays(block: Any) -> dict[str, np.ndarray]:
    """Return the arrays to write for a block of episodes."""
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
            word = LOG_PROB_NAME if word == "log_prob" else word
            place = f"infos/{word}"
            if place in made:
                raise Mistake(f"Two columns would be stored as {place} in D4RL. Rename one.")
            made[place] = array[rows] if is_per_observation(name) else array
    return made


def _check_expressible(dataset: Any) -> None:
    """Raise Mistake for content that the format cannot store."""
    if "obs" not in dataset.columns or "action" not in dataset.columns:
        raise Mistake(
            "D4RL stores one array of observations and one of actions; this dataset has several. "
            "Use --format minari or npz."
        )
    if (dataset.lengths == 0).any():
        number = int(np.argmin(dataset.lengths))
        raise Mistake(
            f"Episode {number} is empty, which D4RL cannot store. Drop it with: sterling data "
            "check FILE --fix OUT"
        )
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
                f"Episode {before + int(at)} has discount {discount[odd | inside][0]} at step "
                f"{int(step)}, which D4RL cannot store. Use --format npz."
            )
        before += len(block.lengths)


def _info_arrays(file: h5py.File) -> dict[str, h5py.Dataset]:
    """Return the arrays under ``infos`` by the names of their extras."""
    found: dict[str, h5py.Dataset] = {}

    def look(name: str, entry: Any) -> None:
        if isinstance(entry, h5py.Dataset):
            found["log_prob" if name == LOG_PROB_NAME else name] = entry

    if "infos" in file:
        file["infos"].visititems(look)
    return found


def _policy_hash(file: h5py.File) -> str:
    """Return the hash of the behaviour policy's weights; "" if the file has none."""
    if "metadata/policy" not in file:
        return ""
    digest = hashlib.sha256()

    def take(name: str, entry: Any) -> None:
        if isinstance(entry, h5py.Dataset):
            digest.update(name.encode() + np.asarray(hdf5.read_array(entry)).tobytes())

    file["metadata/policy"].visititems(take)
    return digest.hexdigest()


def _read_text(file: h5py.File, name: str) -> str:
    entry = file.get(name)
    text = hdf5.read_array(entry) if isinstance(entry, h5py.Dataset) else b""
    return text.decode() if isinstance(text, bytes) else str(text)
