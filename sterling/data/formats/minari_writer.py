"""Write Minari's HDF5 layout; ``minari.py`` describes it."""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import gymnasium
import h5py
import numpy as np

from sterling.data.episode_columns import Block
from sterling.data.space_json import column_spaces, space_to_json
from sterling.envs.hosted.shared_memory import space_leaves
from sterling.system.atomic_files import flush_to_disk
from sterling.types import Mistake

DATA_FILE, METADATA_FILE, METADATA_KEY = "main_data.hdf5", "metadata.json", "sterling"
MINARI_VERSION = "0.5.4"  # Minari's version whose layout is written
DATASET_ID = re.compile(r"[-_\w]+-v\d+")


def write(dataset: Any, path: Path) -> None:
    """Write a dataset as a new folder; an existing folder is refused, as Minari does."""
    if path.exists():
        raise Mistake(f"{path} exists already. Choose another name, or remove it.")
    partial = path.with_name(f".{path.name}.partial-{os.getpid()}")
    (partial / "data").mkdir(parents=True)
    try:
        with h5py.File(partial / "data" / DATA_FILE, "w", track_order=True) as file:
            for number, episode in enumerate(_single_episodes(dataset.blocks())):
                _write_episode(file, number, episode, dataset)
        content = json.dumps(_metadata(dataset, path, partial / "data" / DATA_FILE))
        (partial / "data" / METADATA_FILE).write_text(content)
        flush_to_disk(partial / "data" / DATA_FILE)
        flush_to_disk(partial / "data" / METADATA_FILE)
        partial.replace(path)
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def group_names(path: tuple[Any, ...]) -> list[str]:
    """Return the names of the HDF5 groups on the path to a part of a space."""
    return [f"_index_{key}" if isinstance(key, int) else key for key in path]


def _single_episodes(blocks: Iterable[Block]) -> Iterator[Block]:
    for block in blocks:
        for at in range(len(block.lengths)):
            yield block.cut(at, at + 1)


def _write_episode(file: h5py.File, number: int, episode: Block, dataset: Any) -> None:
    group = file.create_group(f"episode_{number}")
    steps = int(episode.lengths[0])
    group.attrs["id"], group.attrs["total_steps"] = number, steps
    discount = episode.arrays["discount"]
    odd = (discount != 0) & (discount != 1)
    if odd.any():
        at = int(np.argmax(odd))
        raise Mistake(
            f"Episode {number} has discount {discount[at]} at step {at}, which Minari cannot "
            "store. Use --format npz."
        )
    truncations = np.zeros(steps, bool)
    truncations[-1:] = discount[-1:] != 0
    written = {
        "rewards": episode.arrays["reward"],
        "terminations": discount == 0,
        "truncations": truncations,
    }
    for kind, word, space in (
        ("obs", "observations", dataset.obs_space),
        ("action", "actions", dataset.action_space),
    ):
        for name, (path, _) in zip(column_spaces(kind, space), space_leaves(space), strict=True):
            place = "/".join([word, *group_names(path)])  # h5py has no name for a slash in a name
            if place in written:
                raise Mistake(
                    f"Two columns would be stored as {place} in Minari. Use --format npz."
                )
            written[place] = episode.arrays[name]
    group.create_group("infos")
    for name, array in episode.arrays.items():
        if name.startswith(("extra/", "info/")):
            word = f"infos/{name.partition('/')[2]}"
            if word in written:
                raise Mistake(f"Two columns would be stored as {word} in Minari. Rename one.")
            written[word] = array
    for word, array in written.items():
        group.create_dataset(word, data=array)


def _metadata(dataset: Any, path: Path, file: Path) -> dict[str, Any]:
    facts = dataset.facts
    identity = path.name if DATASET_ID.fullmatch(path.name) else f"{_safe_name(path.name)}-v0"
    content = {
        "total_episodes": len(dataset),
        "total_steps": dataset.rows,
        "data_format": "hdf5",
        "jpeg_encoding": False,
        "observation_space": json.dumps(space_to_json(dataset.obs_space)),
        "action_space": json.dumps(space_to_json(dataset.action_space)),
        "dataset_id": identity,
        "minari_version": MINARI_VERSION,
        "dataset_size": round(file.stat().st_size / 1e6, 1),
        METADATA_KEY: dataset.metadata.to_json(),
    }
    if facts.reference:
        content["ref_min_score"], content["ref_max_score"] = facts.reference
    generators = [one.generator for one in facts.sources if one.generator]
    if generators:
        content["algorithm_name"] = ", ".join(dict.fromkeys(generators))
    if facts.environment in gymnasium.registry:
        content["env_spec"] = gymnasium.spec(facts.environment).to_json()
    return content


def _safe_name(name: str) -> str:
    return re.sub(r"[^-_\w]+", "-", name) or "dataset"
