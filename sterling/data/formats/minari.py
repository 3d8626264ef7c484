"""Read Minari's HDF5 layout: one group per episode, with one observation more than actions.

The files are ``OUT/data/main_data.hdf5`` and ``OUT/data/metadata.json``, which
``minari.MinariDataset(OUT/data)`` and ``minari.load_dataset`` (with OUT below
``MINARI_DATASETS_PATH``) open. ``terminations`` are where the discount is 0. What Minari cannot
store (provenance, the content's hash) is under ``sterling`` in the metadata. Pictures are written
as raw arrays, not as JPEG.
"""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gymnasium
import h5py
import numpy as np
from gymnasium import spaces

from sterling.data.dataset_metadata import Facts, Metadata, Source
from sterling.data.episode_columns import BLOCK_ROWS, Arrays, Block, Stream, join_blocks
from sterling.data.formats import flat_arrays, hdf5
from sterling.data.formats.damaged_files import require_entry
from sterling.data.formats.minari_writer import (
    DATA_FILE,
    METADATA_FILE,
    METADATA_KEY,
    group_names,
    write,
)
from sterling.data.space_json import Space, column_spaces, space_from_json
from sterling.envs.hosted.shared_memory import space_leaves
from sterling.types import Mistake

__all__ = ["read", "recognises", "write"]


def recognises(path: Path) -> bool:
    """Whether it is such a folder, or the ``data`` folder inside it."""
    return (_data_folder(path) / METADATA_FILE).is_file()


def read(path: Path, limit: int | None = None) -> Stream:
    """Read the file as episodes; it stays open until the last block was read."""
    stored = json.loads((_data_folder(path) / METADATA_FILE).read_text())
    kind = stored.get("data_format", "hdf5")
    if kind != "hdf5":
        raise Mistake(f"Minari's {kind} storage is not supported. Copy it as hdf5 with minari.")
    file = hdf5.open_file(_data_folder(path) / DATA_FILE)
    count = int(require_entry(stored, ["total_episodes"]))
    if len(file) < count:
        raise Mistake(
            f"{DATA_FILE} has {len(file)} episodes, but {METADATA_FILE} states {count}. Download "
            "the dataset again."
        )
    metadata = Metadata.from_json(stored[METADATA_KEY]) if METADATA_KEY in stored else None
    if metadata is not None and len(metadata.sources) != count:
        metadata = None  # Minari added episodes to a file that Sterling wrote
    obs, texts = _read_space_without_texts(stored, "observation_space")
    action = _read_space(stored, "action_space")
    facts = metadata.facts if metadata else _read_facts(path, stored)
    if texts:
        facts = facts.with_notes(f"texts of observations left out: {', '.join(texts)}")
    reader = _EpisodeReader(file, count, obs, action, bool(stored.get("jpeg_encoding", True)))
    if reader.left:
        facts = facts.with_notes(f"infos left out, not equal arrays in all episodes: {reader.left}")
    blocks = reader.blocks(metadata.sources if metadata else np.zeros(count, np.int32))
    size = reader.bytes(int(stored.get("total_steps", 0)))
    return Stream(obs, action, facts, blocks, size, metadata.hash if metadata else "")


class _EpisodeReader:
    """Read the episodes of an open file."""

    def __init__(self, file: h5py.File, count: int, obs: Space, action: Space, jpeg: bool):
        self._file, self._count, self._jpeg = file, count, jpeg
        self._entries = {  # column -> entry in an episode's group, and its space
            name: ("/".join([word, *group_names(path)]), leaf)
            for kind, word, space in (("obs", "observations", obs), ("action", "actions", action))
            for name, (path, leaf) in zip(
                column_spaces(kind, space), space_leaves(space), strict=True
            )
        }
        self._infos, self.left = _info_columns(file, count)

    def bytes(self, rows: int) -> int:
        """Return about how many bytes ``rows`` rows of all columns take."""
        if not self._count:
            return 0
        one = self._episode(0)
        each = sum(x.nbytes for x in one.arrays.values()) / max(int(one.lengths[0]), 1)
        return int(each * rows)

    def blocks(self, sources: np.ndarray) -> Iterator[Block]:
        """Yield all episodes, about ``BLOCK_ROWS`` rows at a time."""
        waiting: list[Block] = []
        rows = 0
        for number in range(self._count):
            one = self._episode(number)
            waiting.append(Block(one.arrays, one.lengths, sources[number : number + 1]))
            rows += one.rows
            if rows >= BLOCK_ROWS:
                yield join_blocks(waiting)
                waiting, rows = [], 0
        if waiting:
            yield join_blocks(waiting)

    def _episode(self, number: int) -> Block:
        """Read one episode; raise Mistake naming the episode and what does not fit."""
        name = f"episode_{number}"
        group = require_entry(self._file, [name])
        try:
            ended = flat_arrays.read_flags(_require_entry(group, "terminations"))
            arrays: Arrays = {
                column: self._read(_require_entry(group, word), space)
                for column, (word, space) in self._entries.items()
            }
            arrays["reward"] = hdf5.read_array(_require_entry(group, "rewards"))
            arrays["discount"] = (~ended).astype(np.float32)
            for word, column in self._infos.items():
                arrays[column] = hdf5.read_array(_require_entry(group, word))
            lengths, source = np.array([len(ended)], np.int64), np.zeros(1, np.int32)
            return Block(arrays, lengths, source).checked()
        except Mistake as error:
            raise Mistake(f"{name}: {error}") from error

    def _read(self, entry: h5py.Dataset, space: Space) -> np.ndarray:
        if not (self._jpeg and _is_jpeg_picture(space)):
            return hdf5.read_array(entry)
        return np.stack([_decode_picture(frame, space) for frame in hdf5.read_array(entry)])


def _data_folder(path: Path) -> Path:
    return path / "data" if (path / "data").is_dir() else path


def _require_entry(group: h5py.Group, word: str) -> h5py.Dataset:
    if word not in group:
        raise Mistake(f"The entry {word!r} is missing. The group has: {', '.join(group)}.")
    return group[word]


def _info_columns(file: h5py.File, count: int) -> tuple[dict[str, str], str]:
    """Return the infos that have numbers for every step or observation, with one type and shape in
    all episodes, as entry -> column; and the names of the other infos."""
    if not count or "episode_0/infos" not in file:
        return {}, ""
    first = file["episode_0"]
    steps, found, left = len(first["rewards"]), dict[str, str](), list[str]()

    def look(name: str, entry: Any) -> None:
        if not isinstance(entry, h5py.Dataset):
            return
        extra = len(entry) - steps if entry.ndim and entry.dtype.kind in "fiub" else -1
        if extra in (0, 1) and _is_in_all_episodes(file, count, name, extra):
            found[f"infos/{name}"] = ("extra/", "info/")[extra] + name
        else:
            left.append(name)

    first["infos"].visititems(look)
    return found, ", ".join(left)


def _is_in_all_episodes(file: h5py.File, count: int, name: str, extra: int) -> bool:
    """Whether every episode has this info, with ``extra`` more entries than rewards."""
    like = file[f"episode_0/infos/{name}"]
    for number in range(count):
        group = file.get(f"episode_{number}")
        entry = group.get(f"infos/{name}") if group is not None else None
        if not isinstance(entry, h5py.Dataset) or "rewards" not in group:
            return False
        if (entry.dtype, entry.shape[1:]) != (like.dtype, like.shape[1:]):
            return False
        if len(entry) - len(group["rewards"]) != extra:
            return False
    return True


def _is_jpeg_picture(space: Space) -> bool:
    """Whether Minari would store the space as JPEG: bytes from 0 to 255, at least 32 x 32."""
    return (
        isinstance(space, spaces.Box)
        and len(space.shape) in (2, 3)
        and min(space.shape[:2]) >= 32
        and space.dtype == np.uint8
        and bool((space.low == 0).all() and (space.high == 255).all())
    )


def _decode_picture(frame: Any, space: Space) -> np.ndarray:
    """Decode a picture; raise Mistake, before decoding, if its size is not the space's."""
    from PIL import Image

    try:
        picture = Image.open(io.BytesIO(frame))
    except Image.DecompressionBombError as error:
        raise Mistake(f"A picture is too large ({error}). Download the dataset again.") from error
    wanted = (space.shape or ())[:2]
    if picture.size[::-1] != wanted:
        raise Mistake(
            f"A picture has size {picture.size[::-1]}, but the space states {wanted}. Download the "
            "dataset again."
        )
    return np.asarray(picture)


def _read_space(stored: dict[str, Any], name: str) -> Space:
    """Return a space from the metadata, or from the environment that the metadata names."""
    if name in stored:
        return space_from_json(json.loads(stored[name]), name)
    identity = _environment_id(stored)
    if not identity:
        raise Mistake(f"{METADATA_FILE} has neither {name} nor env_spec. Add one of them.")
    made = gymnasium.make(identity)
    made.close()
    return getattr(made, name)


def _read_space_without_texts(stored: dict[str, Any], name: str) -> tuple[Space, list[str]]:
    """Return a space without the texts among its Dict entries, such as MiniGrid's mission, and the
    names of these."""
    if name not in stored:
        return _read_space(stored, name), []
    left: list[str] = []
    kept = _without_texts(json.loads(stored[name]), "", left)
    return space_from_json(kept, name), left


def _without_texts(space: dict[str, Any], name: str, left: list[str]) -> dict[str, Any]:
    """Return a space's JSON without the texts in Dicts that have other entries too, and append
    their names to ``left``."""
    parts = space.get("subspaces")
    if space.get("type") == "Tuple" and isinstance(parts, list):
        made = [_without_texts(part, f"{name}{at}/", left) for at, part in enumerate(parts)]
        return {**space, "subspaces": made}
    if space.get("type") != "Dict" or not isinstance(parts, dict):
        return space
    texts = [key for key, part in parts.items() if part.get("type") == "Text"]
    texts = texts if len(texts) < len(parts) else []  # an observation of texts alone is refused
    left += [name + key for key in texts]
    kept = {
        key: _without_texts(part, f"{name}{key}/", left)
        for key, part in parts.items()
        if key not in texts
    }
    return {**space, "subspaces": kept}


def _environment_id(stored: dict[str, Any]) -> str:
    return json.loads(stored.get("env_spec") or "{}").get("id", "")


def _read_facts(path: Path, stored: dict[str, Any]) -> Facts:
    source = Source(
        name=stored.get("dataset_id", path.name),
        format="minari",
        generator=" ".join(
            filter(None, (stored.get("algorithm_name"), stored.get("code_permalink")))
        ),
    )
    low, high = stored.get("ref_min_score"), stored.get("ref_max_score")
    reference = None if low is None or high is None else (float(low), float(high))
    return Facts(_environment_id(stored), reference, (source,))
