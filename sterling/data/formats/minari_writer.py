"""Minari's HDF5 layout, written; see ``minari.py``."""

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

from sterling.data.columns import Block
from sterling.data.spaces import parts, to_json
from sterling.disk import sync
from sterling.envs.board import leaves
from sterling.types import Mistake

FILE, METADATA, PASSPORT = "main_data.hdf5", "metadata.json", "sterling"
VERSION = "0.5.4"  # whose layout is written
IDENTITY = re.compile(r"[-_\w]+-v\d+")


def write(dataset: Any, path: Path) -> None:
    """Write a dataset as a new folder; one that exists is refused, as Minari does."""
    if path.exists():
        raise Mistake(f"{path} exists; choose another name or remove it")
    partial = path.with_name(f".{path.name}.partial-{os.getpid()}")
    (partial / "data").mkdir(parents=True)
    try:
        with h5py.File(partial / "data" / FILE, "w", track_order=True) as file:
            for number, episode in enumerate(_each(dataset.blocks())):
                _write_episode(file, number, episode, dataset)
        said = json.dumps(_metadata(dataset, path, partial / "data" / FILE))
        (partial / "data" / METADATA).write_text(said)
        sync(partial / "data" / FILE)
        sync(partial / "data" / METADATA)
        partial.replace(path)
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def keys(path: tuple[Any, ...]) -> list[str]:
    """The groups on the way to a part of a space."""
    return [f"_index_{key}" if isinstance(key, int) else key for key in path]


def _each(blocks: Iterable[Block]) -> Iterator[Block]:
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
            f"episode {number} has discount {discount[at]} at step {at}, which Minari cannot say; "
            "take npz"
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
        for name, (path, _) in zip(parts(kind, space), leaves(space), strict=True):
            written["/".join([word, *keys(path)])] = episode.arrays[name]
    group.create_group("infos")
    for name, array in episode.arrays.items():
        if name.startswith(("extra/", "info/")):
            word = f"infos/{name.partition('/')[2]}"
            if word in written:
                raise Mistake(f"two columns are called {word}; Minari has one place for them")
            written[word] = array
    for word, array in written.items():
        group.create_dataset(word, data=array)


def _metadata(dataset: Any, path: Path, file: Path) -> dict[str, Any]:
    facts = dataset.facts
    identity = path.name if IDENTITY.fullmatch(path.name) else f"{_word(path.name)}-v0"
    said = {
        "total_episodes": len(dataset),
        "total_steps": dataset.rows,
        "data_format": "hdf5",
        "jpeg_encoding": False,
        "observation_space": json.dumps(to_json(dataset.obs_space)),
        "action_space": json.dumps(to_json(dataset.action_space)),
        "dataset_id": identity,
        "minari_version": VERSION,
        "dataset_size": round(file.stat().st_size / 1e6, 1),
        PASSPORT: dataset.passport.to_json(),
    }
    if facts.reference:
        said["ref_min_score"], said["ref_max_score"] = facts.reference
    generators = [one.generator for one in facts.sources if one.generator]
    if generators:
        said["algorithm_name"] = ", ".join(dict.fromkeys(generators))
    if facts.environment in gymnasium.registry:
        said["env_spec"] = gymnasium.spec(facts.environment).to_json()
    return said


def _word(name: str) -> str:
    return re.sub(r"[^-_\w]+", "-", name) or "dataset"
