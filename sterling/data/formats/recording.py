"""Read the folder that :class:`sterling.data.Recorder` writes, also while it is being written.

``recording.json`` holds the spaces; ``episodes/FIRST-LAST.npz`` holds whole episodes, in Sterling's
columns. Every file appears complete or not at all. Files are joined to larger ones from time to
time: a file whose episodes another one holds too is ignored. If the folder also holds a dataset in
Sterling's own format, that one's episodes come first: the recording was appended to it.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from sterling.data.dataset_metadata import Facts, Source
from sterling.data.episode_columns import Block, ContentHash, Stream
from sterling.data.formats import npz, sterling_format
from sterling.data.formats.damaged_files import HASH_MISMATCH, report_damage, require_entry
from sterling.data.space_json import Space, space_from_json, space_to_json
from sterling.system.atomic_files import atomic_write
from sterling.types import Mistake

MARK_FILE, EPISODES_FOLDER, VERSION = "recording.json", "episodes", 1


def recognises(path: Path) -> bool:
    """Whether it is a folder with a ``recording.json``."""
    return (path / MARK_FILE).is_file()


def read(path: Path, limit: int | None = None) -> Stream:
    """Read all complete episodes."""
    obs_space, action_space, facts = read_mark(path)
    opened = _open_files(path)
    if sterling_format.recognises(path):
        opened = {path: sterling_format.read(path), **opened}
    streams = list(opened.values())
    sources: dict[Source, int] = {}
    numbers = [[sources.setdefault(x, len(sources)) for x in one.facts.sources] for one in streams]
    facts = dataclasses.replace(facts, sources=tuple(sources) or facts.sources)
    blocks = _read_blocks(streams, numbers, list(opened))
    size = sum(one.bytes for one in streams)
    return Stream(obs_space, action_space, facts, blocks, size)


def _open_files(path: Path) -> dict[Path, Stream]:
    """Open all files of episodes. A Recorder that is at work may join some of them meanwhile: then
    they are listed again."""
    while True:
        files, opened = episode_files(path), dict[Path, Stream]()
        for file in files:
            with report_damage(file, "episodes"), contextlib.suppress(FileNotFoundError):
                opened[file] = npz.read(file)
        if len(opened) == len(files):
            return opened


def _read_blocks(
    streams: Sequence[Stream], numbers: Sequence[Sequence[int]], paths: Sequence[Path]
) -> Iterator[Block]:
    """Yield the blocks of all files, with the sources renumbered; raise Mistake for a file whose
    numbers do not match its hash."""
    for one, renumbered, path in zip(streams, numbers, paths, strict=True):
        digest = ContentHash(one.obs_space, one.action_space)
        for block in digest.add_each(one.blocks):
            sources = np.asarray(renumbered, np.int32)[block.sources]
            yield Block(block.arrays, block.lengths, sources)
        if one.hash and digest.value != one.hash:
            raise Mistake(f"{path} {HASH_MISMATCH}")


def episode_files(path: Path) -> list[Path]:
    """Return the files of episodes in order, without those that a larger one contains."""
    found = sorted((path / EPISODES_FOLDER).glob("*-*.npz"), key=_longest_first)
    kept: list[Path] = []
    for file in found:
        if not kept or episode_range(file)[1] > episode_range(kept[-1])[1]:
            kept.append(file)
    return kept


def _longest_first(file: Path) -> tuple[int, int]:
    first, last = episode_range(file)
    return first, -last


def episode_range(file: Path) -> tuple[int, int]:
    """Return the numbers of a file's first and last episode."""
    first, _, last = file.stem.partition("-")
    return int(first), int(last)


def read_mark(path: Path) -> tuple[Space, Space, Facts]:
    """Return the spaces and the facts of a recording."""
    with report_damage(path / MARK_FILE, "a recording"):
        stored = json.loads((path / MARK_FILE).read_text())
        if stored.get("version") != VERSION:
            raise Mistake(f"{MARK_FILE} is of another version of Sterling. Update Sterling.")
        spaces: dict[str, Any] = require_entry(stored, ["spaces"])
        obs, action = space_from_json(spaces["obs"]), space_from_json(spaces["action"])
        return obs, action, Facts.from_json(require_entry(stored, ["facts"]))


def write_mark(path: Path, obs_space: Space, action_space: Space, facts: Facts) -> None:
    """Write ``recording.json``: the folder is a recording from then on."""
    spaces = {"obs": space_to_json(obs_space), "action": space_to_json(action_space)}
    made = {"version": VERSION, "spaces": spaces, "facts": facts.to_json()}
    with atomic_write(path / MARK_FILE) as partial:
        partial.write_text(json.dumps(made, indent=1) + "\n")
