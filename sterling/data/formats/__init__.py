"""Files of experience: told apart by looking at them, read, written, converted.

| format | what it is | read | written |
|---|---|---|---|
| sterling | a folder of ``.npy`` columns; mapped when larger than memory | x | x |
| minari | a folder with ``data/main_data.hdf5`` (Minari 0.4 to 0.5) | x | x |
| d4rl | an HDF5 file of flat arrays | x | x |
| npz | flat arrays, or Sterling's columns in one file | x | x |
| ogbench | an npz whose trajectories end in a lone observation | x | |
| lerobot | a folder with ``meta/info.json`` and Parquet files (LeRobot 2 and 3) | x | |
| rlds | a version's folder of TensorFlow Datasets, with episodes of steps | x | |
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from sterling.data.columns import Block, Digest, Stream, joined
from sterling.data.dataset import Dataset
from sterling.data.describe import check_reference
from sterling.data.facts import Passport
from sterling.data.formats import d4rl, fitted, flat, lerobot, minari, npz, ogbench, own, rlds
from sterling.data.formats.opened import OTHER, Opened, reading
from sterling.data.join import merged
from sterling.data.spaces import Space, common
from sterling.disk import check_free, is_empty, try_place, writing
from sterling.naming import hint
from sterling.types import Mistake

FORMATS: dict[str, Any] = {  # in the order in which files are looked at
    "sterling": own,
    "minari": minari,
    "lerobot": lerobot,
    "rlds": rlds,
    "d4rl": d4rl,
    "ogbench": ogbench,
    "npz": npz,
}
CHANGED = "its numbers were taken as they are, unverified (import --changed)"
WRITTEN = [name for name, module in FORMATS.items() if hasattr(module, "write")]


def recognised(path: Path) -> str:
    """The format of a file or folder; raises Mistake for what is none."""
    if not path.exists():
        near = hint(path.name, [each.name for each in path.absolute().parent.glob("*")])
        raise Mistake(f"there is no file {path}{near}")
    with reading(path, "any format"):
        for name, module in FORMATS.items():
            if module.recognises(path):
                return name
    raise Mistake(f"{path} is in no known format; there are {', '.join(FORMATS)}")


def stream(path: Path, format: str = "", limit: int | None = None) -> Stream:
    """A file, to be read block by block.

    ``limit``: flat files that do not say where episodes were cut (D4RL without ``timeouts``) are
    cut after so many steps.
    """
    name = format or recognised(path)
    if name not in FORMATS:
        near = hint(name, FORMATS, f"there are {', '.join(FORMATS)}")
        raise Mistake(f"no format is called {name!r}{near}")
    if limit is not None and limit < 1:
        raise Mistake(f"episodes are cut after at least 1 step; got limit={limit}")
    with reading(path, name):
        return FORMATS[name].read(path, limit)


def load(path: Path, memory: int) -> Opened:
    """A file's columns in memory, or mapped where they take more than ``memory`` bytes."""
    name = recognised(path)
    with reading(path, name):
        if name == "sterling":
            return own.load(path, memory)
        found = stream(path, name)
        if found.bytes > memory:
            raise Mistake(
                f"{path} is larger than memory ({found.bytes / 1e9:.1f} GB); convert it with "
                f"sterling data import {path} OUT, which is read piece by piece"
            )
        digest = Digest(found.obs_space, found.action_space)
        block = joined(digest.passing(found.blocks)).checked()
    if found.hash and found.hash != digest.value:
        raise Mistake(f"{path} {OTHER}")
    made = Passport(found.obs_space, found.action_space, found.facts, block.sources, digest.value)
    return Opened(block, made, mapped=False)


def write(dataset: Dataset, path: Path, format: str) -> Path:
    """Write a dataset; what stood there stays whole until the new file is."""
    if format not in WRITTEN:
        near = hint(format, WRITTEN, f"there are {', '.join(WRITTEN)}")
        raise Mistake(f"no format to write is called {format!r}{near}")
    if not dataset.rows:
        raise Mistake("the dataset has no rows; there is nothing to write")
    check_place(path, format)
    with writing(path):
        FORMATS[format].write(dataset, path)
    return path


def check_place(path: Path, format: str = "sterling") -> None:
    """Raise Mistake where nothing can be written, or where something else than a dataset of that
    format would be written over."""
    try_place(path)
    nothing = not path.exists() or (path.is_dir() and is_empty(path))
    with reading(path, format):
        if not (nothing or FORMATS[format].recognises(path)):
            raise Mistake(f"{path} exists and is no {format} dataset; choose another name")


def convert(
    sources: Sequence[Path],
    out: Path,
    *,
    format: str = "",
    environment: str = "",
    reference: tuple[float, float] | None = None,
    limit: int | None = None,
    changed: bool = False,
) -> Dataset:
    """Read files piece by piece and write them, end to end, in Sterling's format.

    ``environment``: an id that Gymnasium knows; its spaces are taken, where the columns fit them.
    ``reference``: the returns that count as 0 and as 1. ``limit``: see :func:`stream`. A file that
    says its hash and holds other numbers is refused unless it may be ``changed``, which is noted.
    """
    check_reference(reference)
    check_place(out)
    found = [_verified(stream(path, format, limit), path, changed) for path in sources]
    if environment:
        given = spaces_of(environment)
        found = [_of_environment(one, given) for one in found]
    elif len(found) > 1:
        found = _together(found)
    several = sources if len(sources) > 1 else ()
    facts, blocks = merged(found, [_columns(path, format, limit) for path in several])
    if environment and environment != facts.environment:
        facts = dataclasses.replace(facts, environment=environment, options={})
    facts = dataclasses.replace(facts, reference=reference or facts.reference)
    named = sources[0] if len(sources) == 1 else out
    check_free(out, sum(one.bytes for one in found))
    with reading(named, "that format"), writing(out):  # and what is wrong in reading is told apart
        own.write_blocks(
            found[0].obs_space, found[0].action_space, facts, _read(blocks, named), out
        )
    return Dataset(out)


def _read(blocks: Iterable[Block], path: Path) -> Iterator[Block]:
    with reading(path, "that format"):
        yield from blocks


def _verified(found: Stream, path: Path, changed: bool) -> Stream:
    """A stream that raises Mistake at its end where it was not what was written."""
    if not found.hash:
        return found
    if changed:
        return dataclasses.replace(found, facts=found.facts.noted(CHANGED))
    digest = Digest(found.obs_space, found.action_space)

    def blocks() -> Iterator[Block]:
        yield from digest.passing(found.blocks)
        if digest.value != found.hash:
            raise Mistake(f"{path} {OTHER}")

    return dataclasses.replace(found, blocks=blocks())


def _columns(path: Path, format: str, limit: int | None) -> list[str]:
    """The names of a file's columns, none of an empty one; its beginning is read for that."""
    with reading(path, "that format"):
        first = next(stream(path, format, limit).blocks, None)
    return [] if first is None else [*first.arrays]


def spaces_of(environment: str) -> tuple[Space, Space]:
    """The spaces of an environment that Gymnasium knows."""
    import gymnasium

    try:
        made = gymnasium.make(environment)
    except (gymnasium.error.Error, ImportError) as error:
        near = hint(environment, gymnasium.registry)
        raise Mistake(f"Gymnasium cannot make {environment!r}: {error}{near}") from error
    made.close()
    return made.observation_space, made.action_space


def _of_environment(found: Stream, given: fitted.Spaces) -> Stream:
    """A stream with an environment's spaces instead of guessed ones."""
    fitted.check_form((found.obs_space, found.action_space), given)
    facts = found.facts.without(flat.GUESSED).without(flat.BOUNDED)
    blocks = fitted.in_spaces(found.blocks, given)
    return Stream(*given, facts, blocks, found.bytes)


def _together(found: list[Stream]) -> list[Stream]:
    """Streams whose action spaces were guessed with the space that fits all of them."""
    whole = common([one.action_space for one in found])
    if whole is None or not all(fitted.is_guess(one.facts) for one in found):
        return found
    return [
        dataclasses.replace(one, action_space=whole, facts=flat.assumed(one.facts, whole))
        for one in found
    ]
