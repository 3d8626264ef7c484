"""LeRobot's folders, versions 2 and 3: frames in Parquet files, spoken of in ``meta/info.json``.

A frame is what was seen and the action taken then. An episode's last frame has no successor: where
the task was done there (``next.success``, or else ``next.done``) the row is kept and its successor,
which is worth nothing, is a copy; else it is given up. ``next.done`` alone cannot tell ends from
cuts. Films and pictures are left out; where there are no rewards they are zeros. Reading takes
pyarrow: ``pip install "sterling-rl[lerobot]"``.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from gymnasium import spaces

from sterling.data import memory
from sterling.data.columns import Arrays, Block, Stream
from sterling.data.facts import Facts, Source
from sterling.data.formats import flat
from sterling.data.formats.opened import needed
from sterling.data.spaces import extremes, guessed
from sterling.types import Mistake

FORMAT = "lerobot"
INFO = Path("meta") / "info.json"
SEEN = "observation."  # what features of observations begin with
EPISODE, FRAME = "episode_index", "frame_index"
ENDS = ("next.success", "next.done")  # the first that is there says which episodes ended
PASSED_OVER = (EPISODE, FRAME, "index", "timestamp", "action", "next.reward", "next.done")


def recognises(path: Path) -> bool:
    """Whether it is a folder with the description and frames of such a dataset."""
    return (path / INFO).is_file() and (path / "data").is_dir()


def read(path: Path, limit: int | None = None) -> Stream:
    """The folder as episodes, one file of frames after another."""
    said = json.loads((path / INFO).read_text())
    features: dict[str, Any] = needed(said, ["features"])
    numbers = {
        name: tuple(each["shape"]) for name, each in features.items() if _is_number(each["dtype"])
    }
    files = sorted((path / "data").rglob("*.parquet"))
    if not files:
        raise Mistake("there is no .parquet file below data/")
    needed(numbers, ["action"])
    _check_counts(files, said)
    shown = [name for name in numbers if name.startswith(SEEN)] or [SEEN + "state"]
    first = _columns(files[0], {name: needed(numbers, [name]) for name in (*shown, "action")})
    parts = {name.removeprefix(SEEN): guessed("obs", first[name]) for name in sorted(shown)}
    obs = spaces.Dict(parts) if len(parts) > 1 else next(iter(parts.values()))
    acted = (_columns(file, {"action": numbers["action"]})["action"] for file in files)
    action = guessed("action", first["action"], *extremes(acted))
    facts = Facts(sources=(Source(path.name, FORMAT, said.get("robot_type") or ""),))
    facts = flat.assumed(facts, action).noted(*_assumptions(numbers, features))
    size = 4 * sum(max(math.prod(shape), 1) for shape in numbers.values()) * said["total_frames"]
    return Stream(obs, action, facts, _blocks(files, numbers), size)


def _is_number(dtype: str) -> bool:
    return dtype not in ("video", "image", "string")


def _assumptions(numbers: dict[str, Any], features: dict[str, Any]) -> Iterator[str]:
    """What had to be left out or made up."""
    left = [name for name in features if name not in numbers]
    if left:
        yield f"left out, not numbers: {', '.join(left)}"
    if "next.reward" not in numbers:
        yield "there are no rewards; they are zeros"
    if ENDS[0] not in numbers and ENDS[1] in numbers:
        yield "'next.done' does not tell ends from cuts; all count as ends"
    if any(name in numbers for name in ENDS):
        yield flat.COPIED


def _blocks(files: Sequence[Path], numbers: dict[str, Any]) -> Iterator[Block]:
    """The episodes of each file."""
    for file in files:
        made = _episodes(_columns(file, numbers), file.name)
        if len(made.lengths):
            yield made


def _episodes(frames: Arrays, file: str) -> Block:
    """Frames as episodes; raises Mistake where some are missing."""
    episode = needed(frames, [EPISODE])
    last = np.flatnonzero(np.diff(episode, append=-1))
    lengths = np.diff(last, prepend=-1)
    place = np.arange(len(episode)) - np.repeat(last + 1 - lengths, lengths)
    wrong = np.flatnonzero(frames.get(FRAME, place) != place)
    if len(wrong):
        at = wrong[0]
        raise Mistake(f"{file}: episode {episode[at]} has no frame {place[at]}; restore it")
    flags = next((frames[name] for name in ENDS if name in frames), np.zeros(len(episode), bool))
    real = flags[last] != 0
    shown = [name for name in sorted(frames) if name.startswith(SEEN)]
    names = ["obs/" + name.removeprefix(SEEN) for name in shown] if len(shown) > 1 else ["obs"]
    discount = np.ones(len(episode), np.float32)
    discount[last[real]] = 0.0
    rows = {
        "action": frames["action"],
        "reward": frames.get("next.reward", np.zeros(len(episode))).astype(np.float32),
        "discount": discount,
    }
    for name in sorted(frames.keys() - set(shown) - set(PASSED_OVER)):
        rows["extra/" + name.removeprefix("next.")] = frames[name]
    seen = {made: frames[name] for made, name in zip(names, shown, strict=True)}
    return flat.complete(seen, rows, last, real)


def _columns(file: Path, wanted: dict[str, tuple[int, ...]]) -> Arrays:
    """The columns of one file, in the shapes that were said."""
    there = _parquet().read_schema(file).names
    if lacking := sorted(wanted.keys() - set(there)):
        raise Mistake(f"{file.name} has no column {lacking[0]!r}; it has {', '.join(there)}")
    memory.check(_decoded(file, wanted), file.name)
    table = _parquet().read_table(file, columns=list(wanted))
    return {name: _array(table, name, shape) for name, shape in wanted.items()}


def _decoded(file: Path, wanted: dict[str, tuple[int, ...]]) -> int:
    """Bytes that columns take once they are read, about: as many numbers as the file says, which
    may repeat one that was written once."""
    said = _parquet().read_metadata(file)
    groups = (said.row_group(number) for number in range(said.num_row_groups))
    chunks = [group.column(at) for group in groups for at in range(group.num_columns)]
    below = tuple(f"{name}." for name in wanted)  # a list's numbers lie below its name
    return 16 * sum(x.num_values for x in chunks if f"{x.path_in_schema}.".startswith(below))


def _array(table: Any, name: str, shape: tuple[int, ...]) -> np.ndarray:
    column = table.column(name).combine_chunks()
    if column.null_count:
        raise Mistake(f"column {name!r} has {column.null_count} empty entries")
    while hasattr(column, "flatten") and hasattr(column.type, "value_type"):  # lists of lists
        column = column.flatten()
    values = column.to_numpy(zero_copy_only=False)
    values = values.astype(np.uint8) if values.dtype == bool else values
    count = table.num_rows
    if values.size != count * math.prod(shape):
        raise Mistake(f"column {name!r} has {values.size} numbers for {count} frames of {shape}")
    vector = name.startswith(SEEN) or (name == "action" and values.dtype.kind == "f")
    single = math.prod(shape) == 1 and not vector
    return values.reshape(count, *(() if single else shape))


def _check_counts(files: Sequence[Path], said: dict[str, Any]) -> None:
    """Raise Mistake where frames are missing that the description speaks of."""
    found = sum(_parquet().read_metadata(file).num_rows for file in files)
    if found != (wanted := int(needed(said, ["total_frames"]))):
        raise Mistake(f"there are {found} frames where {INFO} speaks of {wanted}; fetch it again")


def _parquet() -> Any:
    try:
        import pyarrow.parquet
    except ImportError as error:
        raise Mistake(
            'reading LeRobot\'s files needs a package more: pip install "sterling-rl[lerobot]"'
        ) from error
    return pyarrow.parquet
