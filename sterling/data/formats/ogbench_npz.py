"""Read OGBench's npz files: ``observations, actions, terminals[, masks, rewards, qpos, ...]``.

``terminals`` mark where a trajectory stops, never a termination. Single-task sets have ``masks``,
which are 0 where the task is done; these become the discount, also inside a trajectory. Three
forms are distinguished: as published, the last row of a trajectory is only an observation; loaded
as "compact", ``valids`` are 0 there; loaded as "regular", every row has its ``next_observations``.
In a set without rewards these are set to zero: it is for goal-conditioned learners.
"""

from __future__ import annotations

import zipfile
from pathlib import Path
from typing import Any

import numpy as np

from sterling.data.dataset_metadata import Facts, Source
from sterling.data.episode_columns import Stream
from sterling.data.formats import flat_arrays, npz_archive
from sterling.data.formats.damaged_files import require_entry
from sterling.data.formats.npz import ARRAY_NAMES

FORMAT = "ogbench"
KNOWN_ARRAYS = (
    "observations",
    "actions",
    "terminals",
    "rewards",
    "masks",
    "valids",
    "next_observations",
)
# arrays of other formats that mark the ends of episodes
OTHER_END_ARRAYS = {*ARRAY_NAMES["cut"], *ARRAY_NAMES["done"], *ARRAY_NAMES["ended"]} - {
    "terminals"
}


def recognises(path: Path) -> bool:
    """Whether it is an npz with OGBench's arrays and no others that mark ends of episodes."""
    if not (path.is_file() and zipfile.is_zipfile(path)):
        return False
    names = npz_archive.array_names(path)
    if not {"observations", "actions", "terminals"} <= names or OTHER_END_ARRAYS & names:
        return False
    return bool({"valids", "masks"} & names) or "rewards" not in names


def read(path: Path, limit: int | None = None) -> Stream:
    """Read the file as episodes; it stays open until the last block was read."""
    arrays = npz_archive.open_arrays(path)
    facts = Facts(sources=(Source(path.name, FORMAT),))
    obs = require_entry(arrays, ["observations"])
    last = flat_arrays.read_flags(require_entry(arrays, ["terminals"]))
    if "valids" in arrays:
        last = ~flat_arrays.read_flags(arrays["valids"])
    following = arrays.get("next_observations")
    reward: Any = arrays.get("rewards")
    if reward is None:
        facts = facts.with_notes(flat_arrays.NO_REWARDS_NOTE)
        reward = np.zeros(len(obs), np.float32)
    discount = np.ones(len(obs), np.float32)
    if "masks" in arrays:
        discount = flat_arrays.read_scalars(arrays["masks"]).astype(np.float32)
    if following is None and len(last):
        last[-1] = True
        discount[last] = 1.0  # these rows are only observations, so no episode terminates there
    others = {name: array for name, array in arrays.items() if name not in KNOWN_ARRAYS}
    extras, left = flat_arrays.row_extras(others, len(obs))
    action = require_entry(arrays, ["actions"])
    rows = flat_arrays.FlatArrays(obs, action, reward, discount, last, following, extras)
    return flat_arrays.episode_stream(rows, facts.with_notes(*left), None, limit)
