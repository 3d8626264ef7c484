"""Read and write dataset files; the format is detected from the content.

| format | what it is | read | written |
|---|---|---|---|
| sterling | a folder of ``.npy`` columns; memory-mapped if larger than memory | x | x |
| minari | a folder with ``data/main_data.hdf5`` (Minari 0.4 to 0.5) | x | x |
| d4rl | an HDF5 file of flat arrays | x | x |
| npz | flat arrays, or Sterling's columns in one file | x | x |
| ogbench | an npz in which every trajectory ends with an extra observation | x | |
| lerobot | a folder with ``meta/info.json`` and Parquet files (LeRobot 2 and 3) | x | |
| rlds | the folder of one version of a TensorFlow dataset of episodes | x | |
| recording | the folder that ``sterling.data.Recorder`` writes | x | |

A format's module has ``recognises(path)``, ``read(path, limit)`` and, if it can be written,
``write(dataset, path)``.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from sterling.data.dataset_metadata import Metadata
from sterling.data.episode_columns import ContentHash, Stream, join_blocks
from sterling.data.formats import (
    d4rl,
    lerobot,
    minari,
    npz,
    ogbench_npz,
    recording,
    rlds,
    sterling_format,
)
from sterling.data.formats.damaged_files import HASH_MISMATCH, LoadedFile, report_damage
from sterling.lookup.name_suggestions import did_you_mean
from sterling.system.atomic_files import (
    check_writable,
    explain_write_errors,
    is_empty,
)
from sterling.types import Mistake

FORMATS: dict[str, Any] = {  # in the order in which they are tried
    "sterling": sterling_format,
    "minari": minari,
    "lerobot": lerobot,
    "rlds": rlds,
    "d4rl": d4rl,
    "ogbench": ogbench_npz,
    "npz": npz,
    "recording": recording,
}
WRITABLE_FORMATS = [name for name, module in FORMATS.items() if hasattr(module, "write")]


def detect_format(path: Path) -> str:
    """Return the format of a file or folder; raise Mistake if it has none of them."""
    if not path.exists():
        near = did_you_mean(path.name, [each.name for each in path.absolute().parent.glob("*")])
        raise Mistake(f"There is no file {path}{near}")
    if recording.recognises(path):  # first: it may contain a dataset in Sterling's format
        return "recording"
    with report_damage(path, "a dataset"):
        for name, module in FORMATS.items():
            if module.recognises(path):
                return name
    if Path(path).suffix in (".csv", ".tsv", ".parquet"):
        raise Mistake(f"{path} is a table. Say what its columns hold: sterling data import {path} "
                      "--obs A,B --action C --reward D --episode E --out data/mine.")  # fmt: skip
    raise Mistake(f"{path} is not a dataset in a known format. Known: {', '.join(FORMATS)}.")


def open_stream(path: Path, format: str = "", limit: int | None = None) -> Stream:
    """Open a dataset file to be read block by block.

    ``limit``: the length at which episodes are truncated in flat files that do not mark
    truncations (D4RL without ``timeouts``).
    """
    name = format or detect_format(path)
    if name not in FORMATS:
        near = did_you_mean(name, FORMATS, f"use one of {', '.join(FORMATS)}")
        raise Mistake(f"Unknown format {name!r}{near}")
    if limit is not None and limit < 1:
        raise Mistake(f"The time limit must be at least 1 step; got limit={limit}.")
    with report_damage(path, name):
        return FORMATS[name].read(path, limit)


def load_file(path: Path, memory: int) -> LoadedFile:
    """Load a file's columns; memory-map them if they take more than ``memory`` bytes."""
    name = detect_format(path)
    with report_damage(path, name):
        if name == "sterling":
            return sterling_format.load_folder(path, memory)
        found = open_stream(path, name)
        if found.bytes > memory:
            raise Mistake(
                f"{path} is larger than memory ({found.bytes / 1e9:.1f} GB). Convert it to a "
                f"memory-mapped dataset, piece by piece, with: sterling data import {path} OUT"
            )
        digest = ContentHash(found.obs_space, found.action_space)
        block = join_blocks(digest.add_each(found.blocks)).checked()
    if found.hash and found.hash != digest.value:
        raise Mistake(f"{path} {HASH_MISMATCH}")
    made = Metadata(found.obs_space, found.action_space, found.facts, block.sources, digest.value)
    return LoadedFile(block, made, mapped=False)


def write_dataset(dataset: Any, path: Path, format: str) -> Path:
    """Write a dataset in a format; an existing dataset stays complete until the new one is."""
    if format not in WRITABLE_FORMATS:
        near = did_you_mean(format, WRITABLE_FORMATS, f"use one of {', '.join(WRITABLE_FORMATS)}")
        raise Mistake(f"Cannot write the format {format!r}{near}")
    if not dataset.rows:
        raise Mistake("The dataset has no rows. Write a dataset with at least one step.")
    check_destination(path, format)
    with explain_write_errors(path):
        FORMATS[format].write(dataset, path)
    return path


def check_destination(path: Path, format: str = "sterling") -> None:
    """Raise Mistake if ``path`` cannot be written, or if something other than a dataset of that
    format would be overwritten."""
    check_writable(path)
    if recording.recognises(path):
        raise Mistake(f"{path} is a recording, which a Recorder appends to. Choose another name.")
    nothing = not path.exists() or (path.is_dir() and is_empty(path))
    with report_damage(path, format):
        if not (nothing or FORMATS[format].recognises(path)):
            raise Mistake(
                f"{path} exists and is not a dataset in the format {format}. Choose another name."
            )
