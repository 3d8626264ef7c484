"""OGBench's npz: ``observations, actions, terminals[, masks, rewards, qpos, qvel...]``.

``terminals`` mark where a trajectory stops, never that the world ended; single-task sets have
``masks``, which are 0 where the task is done, and that is the discount, also in the middle of a
trajectory. Three forms are told apart: as published, the last row of a trajectory is only an
observation; loaded as "compact", ``valids`` are 0 there; loaded as "regular", every row has its
``next_observations``. A set without rewards gets zeros: it is for learners of goals.
"""

from __future__ import annotations

import zipfile
from pathlib import Path
from typing import Any

import numpy as np

from sterling.data.columns import Stream
from sterling.data.facts import Facts, Source
from sterling.data.formats import archive, flat
from sterling.data.formats.npz import NAMES
from sterling.data.formats.opened import needed

FORMAT = "ogbench"
KNOWN = ("observations", "actions", "terminals", "rewards", "masks", "valids", "next_observations")
OTHERS = {*NAMES["cut"], *NAMES["done"], *NAMES["ended"]} - {"terminals"}  # say how episodes end


def recognises(path: Path) -> bool:
    """Whether it is an npz with these names and no others that say how episodes end."""
    if not (path.is_file() and zipfile.is_zipfile(path)):
        return False
    names = archive.names(path)
    if not {"observations", "actions", "terminals"} <= names or OTHERS & names:
        return False
    return bool({"valids", "masks"} & names) or "rewards" not in names


def read(path: Path, limit: int | None = None) -> Stream:
    """The file as episodes; it stays open until the last block was read."""
    arrays = archive.members(path)
    facts = Facts(sources=(Source(path.name, FORMAT),))
    obs = needed(arrays, ["observations"])
    last = flat.truth(needed(arrays, ["terminals"]))
    if "valids" in arrays:
        last = ~flat.truth(arrays["valids"])
    following = arrays.get("next_observations")
    reward: Any = arrays.get("rewards")
    if reward is None:
        facts = facts.noted(flat.UNREWARDED)
        reward = np.zeros(len(obs), np.float32)
    discount = np.ones(len(obs), np.float32)
    if "masks" in arrays:
        discount = flat.scalars(arrays["masks"]).astype(np.float32)
    if following is None and len(last):
        last[-1] = True
        discount[last] = 1.0  # these rows are observations only: nothing ends in them
    others = {name: array for name, array in arrays.items() if name not in KNOWN}
    extras, left = flat.extras(others, len(obs))
    action = needed(arrays, ["actions"])
    rows = flat.Flat(obs, action, reward, discount, last, following, extras)
    return flat.stream(rows, facts.noted(*left), None, limit)
