"""Minari's HDF5 layout: one group per episode, observations one longer than the rest.

``OUT/data/main_data.hdf5`` and ``OUT/data/metadata.json``, as ``minari.MinariDataset(OUT/data)``
and ``minari.load_dataset`` (with OUT below ``MINARI_DATASETS_PATH``) open them. ``terminations``
are where the discount is 0. What Minari has no place for (provenance, the content's hash) stands
under ``sterling`` in the metadata. Pictures are written as they are, not as JPEG.
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

from sterling.data.columns import BLOCK, Arrays, Block, Stream, joined
from sterling.data.facts import Facts, Passport, Source
from sterling.data.formats import flat, hdf5
from sterling.data.formats.minari_writer import FILE, METADATA, PASSPORT, keys, write
from sterling.data.formats.opened import needed
from sterling.data.spaces import Space, from_json, parts
from sterling.envs.board import leaves
from sterling.types import Mistake

__all__ = ["read", "recognises", "write"]


def recognises(path: Path) -> bool:
    """Whether it is such a folder, or the ``data`` folder within it."""
    return (_data(path) / METADATA).is_file()


def read(path: Path, limit: int | None = None) -> Stream:
    """The file as episodes; it stays open until the last block was read."""
    said = json.loads((_data(path) / METADATA).read_text())
    kind = said.get("data_format", "hdf5")
    if kind != "hdf5":
        raise Mistake(f"Minari's {kind} storage is not read; copy it with minari as hdf5")
    file = hdf5.opened(_data(path) / FILE)
    count = int(needed(said, ["total_episodes"]))
    if len(file) < count:
        raise Mistake(f"{FILE} has {len(file)} episodes where {METADATA} speaks of {count}")
    passport = Passport.from_json(said[PASSPORT]) if PASSPORT in said else None
    if passport is not None and len(passport.sources) != count:
        passport = None  # Minari added episodes to a file of ours
    obs, action = (_space(said, f"{name}_space") for name in ("observation", "action"))
    facts = passport.facts if passport else _facts(path, said)
    reader = _Reader(file, count, obs, action, bool(said.get("jpeg_encoding", True)))
    if reader.left:
        facts = facts.noted(f"infos left out, not arrays alike in all episodes: {reader.left}")
    blocks = reader.blocks(passport.sources if passport else np.zeros(count, np.int32))
    size = reader.bytes(int(said.get("total_steps", 0)))
    return Stream(obs, action, facts, blocks, size, passport.hash if passport else "")


class _Reader:
    """Episodes of an open file."""

    def __init__(self, file: h5py.File, count: int, obs: Space, action: Space, jpeg: bool):
        self._file, self._count, self._jpeg = file, count, jpeg
        self._entries = {  # column -> entry in an episode's group, and its space
            name: ("/".join([word, *keys(path)]), leaf)
            for kind, word, space in (("obs", "observations", obs), ("action", "actions", action))
            for name, (path, leaf) in zip(parts(kind, space), leaves(space), strict=True)
        }
        self._infos, self.left = _infos(file, count)

    def bytes(self, rows: int) -> int:
        """What the columns will take, about."""
        if not self._count:
            return 0
        one = self._episode(0)
        each = sum(x.nbytes for x in one.arrays.values()) / max(int(one.lengths[0]), 1)
        return int(each * rows)

    def blocks(self, sources: np.ndarray) -> Iterator[Block]:
        """All episodes, about ``BLOCK`` rows at a time."""
        waiting: list[Block] = []
        rows = 0
        for number in range(self._count):
            one = self._episode(number)
            waiting.append(Block(one.arrays, one.lengths, sources[number : number + 1]))
            rows += one.rows
            if rows >= BLOCK:
                yield joined(waiting)
                waiting, rows = [], 0
        if waiting:
            yield joined(waiting)

    def _episode(self, number: int) -> Block:
        """One episode; raises Mistake naming it and what does not fit."""
        name = f"episode_{number}"
        group = needed(self._file, [name])
        try:
            ended = flat.truth(_entry(group, "terminations"))
            arrays: Arrays = {
                column: self._read(_entry(group, word), space)
                for column, (word, space) in self._entries.items()
            }
            arrays["reward"] = hdf5.whole(_entry(group, "rewards"))
            arrays["discount"] = (~ended).astype(np.float32)
            for word, column in self._infos.items():
                arrays[column] = hdf5.whole(_entry(group, word))
            lengths, source = np.array([len(ended)], np.int64), np.zeros(1, np.int32)
            return Block(arrays, lengths, source).checked()
        except Mistake as error:
            raise Mistake(f"{name}: {error}") from error

    def _read(self, entry: h5py.Dataset, space: Space) -> np.ndarray:
        if not (self._jpeg and _is_picture(space)):
            return hdf5.whole(entry)
        return np.stack([_picture(frame, space) for frame in hdf5.whole(entry)])


def _data(path: Path) -> Path:
    return path / "data" if (path / "data").is_dir() else path


def _entry(group: h5py.Group, word: str) -> h5py.Dataset:
    if word not in group:
        raise Mistake(f"there is no {word!r}; there are {', '.join(group)}")
    return group[word]


def _infos(file: h5py.File, count: int) -> tuple[dict[str, str], str]:
    """Infos that are numbers of every step or observation, alike in all episodes (entry ->
    column), and the names of the others."""
    if not count or "episode_0/infos" not in file:
        return {}, ""
    first = file["episode_0"]
    steps, found, left = len(first["rewards"]), dict[str, str](), list[str]()

    def look(name: str, entry: Any) -> None:
        if not isinstance(entry, h5py.Dataset):
            return
        extra = len(entry) - steps if entry.ndim and entry.dtype.kind in "fiub" else -1
        if extra in (0, 1) and _is_everywhere(file, count, name, extra):
            found[f"infos/{name}"] = ("extra/", "info/")[extra] + name
        else:
            left.append(name)

    first["infos"].visititems(look)
    return found, ", ".join(left)


def _is_everywhere(file: h5py.File, count: int, name: str, extra: int) -> bool:
    """Whether every episode has this info, ``extra`` entries longer than its rewards."""
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


def _is_picture(space: Space) -> bool:
    """Whether Minari would keep it as JPEG: bytes from 0 to 255, at least 32 x 32."""
    return (
        isinstance(space, spaces.Box)
        and len(space.shape) in (2, 3)
        and min(space.shape[:2]) >= 32
        and space.dtype == np.uint8
        and bool((space.low == 0).all() and (space.high == 255).all())
    )


def _picture(frame: Any, space: Space) -> np.ndarray:
    """A picture of the space's size; Mistake for another, which is not decoded."""
    from PIL import Image

    try:
        picture = Image.open(io.BytesIO(frame))
    except Image.DecompressionBombError as error:
        raise Mistake(f"a picture is too large ({error})") from error
    wanted = (space.shape or ())[:2]
    if picture.size[::-1] != wanted:
        raise Mistake(f"a picture of {picture.size[::-1]} where {wanted} were said")
    return np.asarray(picture)


def _space(said: dict[str, Any], name: str) -> Space:
    """A space of the metadata, or of the environment it names."""
    if name in said:
        return from_json(json.loads(said[name]), name)
    identity = _environment(said)
    if not identity:
        raise Mistake(f"{METADATA} has neither {name} nor env_spec")
    made = gymnasium.make(identity)
    made.close()
    return getattr(made, name)


def _environment(said: dict[str, Any]) -> str:
    return json.loads(said.get("env_spec") or "{}").get("id", "")


def _facts(path: Path, said: dict[str, Any]) -> Facts:
    source = Source(
        name=said.get("dataset_id", path.name),
        format="minari",
        generator=" ".join(filter(None, (said.get("algorithm_name"), said.get("code_permalink")))),
    )
    low, high = said.get("ref_min_score"), said.get("ref_max_score")
    reference = None if low is None or high is None else (float(low), float(high))
    return Facts(_environment(said), reference, (source,))
