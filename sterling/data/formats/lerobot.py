"""Read LeRobot's folders, versions 2 and 3: Parquet files described in ``meta/info.json``.

A frame is an observation and the action taken there. An episode's last frame has no successor. If
the task was done there (``next.success``, or else ``next.done``), the row is kept, and its
successor, which has no value, is a copy; otherwise the row is dropped. ``next.done`` alone does not
distinguish termination from truncation. Videos and pictures are left out; missing rewards are set
to zero. Reading needs pyarrow: ``pip install "sterling-rl[lerobot]"``.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from gymnasium import spaces

from sterling.data import available_memory
from sterling.data.dataset_metadata import Facts, Source
from sterling.data.episode_columns import Arrays, Block, Stream
from sterling.data.formats import flat_arrays
from sterling.data.formats.damaged_files import require_entry
from sterling.data.space_json import finite_extremes, guess_space
from sterling.problem.joined_path import joined_path
from sterling.types import Mistake

FORMAT = "lerobot"
INFO_FILE = Path("meta") / "info.json"
OBS_PREFIX = "observation."  # prefix of the features of observations
EPISODE_COLUMN, FRAME_COLUMN = "episode_index", "frame_index"
END_COLUMNS = ("next.success", "next.done")  # the first that exists says which episodes terminated
SKIPPED_COLUMNS = (
    EPISODE_COLUMN,
    FRAME_COLUMN,
    "index",
    "timestamp",
    "action",
    "next.reward",
    "next.done",
)


def recognises(path: Path) -> bool:
    """Whether it is a folder with a ``meta/info.json`` and a folder ``data``."""
    return (path / INFO_FILE).is_file() and (path / "data").is_dir()


def read(path: Path, limit: int | None = None) -> Stream:
    """Read the folder as episodes, one Parquet file after another."""
    info = json.loads((path / INFO_FILE).read_text())
    features: dict[str, Any] = require_entry(info, ["features"])
    numbers = {
        name: tuple(each["shape"]) for name, each in features.items() if _is_number(each["dtype"])
    }
    files = sorted((path / "data").rglob("*.parquet"))
    if not files:
        raise Mistake("There is no .parquet file below data/. Download the dataset again.")
    require_entry(numbers, ["action"])
    _check_counts(files, info)
    shown = [name for name in numbers if name.startswith(OBS_PREFIX)] or [OBS_PREFIX + "state"]
    first = _read_columns(
        files[0], {name: require_entry(numbers, [name]) for name in (*shown, "action")}
    )
    parts = {
        name.removeprefix(OBS_PREFIX): guess_space("obs", first[name]) for name in sorted(shown)
    }
    obs = spaces.Dict(parts) if len(parts) > 1 else next(iter(parts.values()))
    actions = (_read_columns(file, {"action": numbers["action"]})["action"] for file in files)
    action = guess_space("action", first["action"], *finite_extremes(actions))
    facts = Facts(sources=(Source(path.name, FORMAT, info.get("robot_type") or ""),))
    facts = flat_arrays.note_guessed_spaces(facts, action).with_notes(
        *_assumptions(numbers, features)
    )
    size = 4 * sum(max(math.prod(shape), 1) for shape in numbers.values()) * info["total_frames"]
    return Stream(obs, action, facts, _read_blocks(files, numbers), size)


def _is_number(dtype: str) -> bool:
    return dtype not in ("video", "image", "string")


def _assumptions(numbers: dict[str, Any], features: dict[str, Any]) -> Iterator[str]:
    """Yield notes on what was left out or filled in."""
    left = [name for name in features if name not in numbers]
    if left:
        yield f"left out, not numbers: {', '.join(left)}"
    if "next.reward" not in numbers:
        yield flat_arrays.NO_REWARDS_NOTE
    if END_COLUMNS[0] not in numbers and END_COLUMNS[1] in numbers:
        yield (
            "'next.done' does not distinguish termination from truncation; all are read as "
            "terminations"
        )
    if any(name in numbers for name in END_COLUMNS):
        yield flat_arrays.COPIED_LAST_NOTE


def _read_blocks(files: Sequence[Path], numbers: dict[str, Any]) -> Iterator[Block]:
    """Yield the episodes of each file."""
    for file in files:
        made = _frames_to_block(_read_columns(file, numbers), file.name)
        if len(made.lengths):
            yield made


def _frames_to_block(frames: Arrays, file: str) -> Block:
    """Split frames into episodes; raise Mistake if frames are missing."""
    episode = require_entry(frames, [EPISODE_COLUMN])
    last = np.flatnonzero(np.diff(episode, append=-1))
    lengths = np.diff(last, prepend=-1)
    place = np.arange(len(episode)) - np.repeat(last + 1 - lengths, lengths)
    wrong = np.flatnonzero(frames.get(FRAME_COLUMN, place) != place)
    if len(wrong):
        at = wrong[0]
        raise Mistake(
            f"{file}: episode {episode[at]} lacks frame {place[at]}. Download the file again."
        )
    flags = next(
        (frames[name] for name in END_COLUMNS if name in frames), np.zeros(len(episode), bool)
    )
    real = flags[last] != 0
    shown = [name for name in sorted(frames) if name.startswith(OBS_PREFIX)]
    names = (
        [joined_path(["obs", name.removeprefix(OBS_PREFIX)]) for name in shown]
        if len(shown) > 1
        else ["obs"]
    )
    discount = np.ones(len(episode), np.float32)
    discount[last[real]] = 0.0
    rows = {
        "action": frames["action"],
        "reward": frames.get("next.reward", np.zeros(len(episode))).astype(np.float32),
        "discount": discount,
    }
    for name in sorted(frames.keys() - set(shown) - set(SKIPPED_COLUMNS)):
        rows["extra/" + name.removeprefix("next.")] = frames[name]
    seen = {made: frames[name] for made, name in zip(names, shown, strict=True)}
    return flat_arrays.complete_episodes(seen, rows, last, real)


def _read_columns(file: Path, wanted: dict[str, tuple[int, ...]]) -> Arrays:
    """Read the columns of one file, in the shapes that ``info.json`` states."""
    there = _import_parquet().read_schema(file).names
    if lacking := sorted(wanted.keys() - set(there)):
        raise Mistake(
            f"{file.name} lacks the column {lacking[0]!r}; it has {', '.join(there)}. Download the "
            "file again."
        )
    available_memory.check_fits(_decoded_bytes(file, wanted), file.name)
    table = _import_parquet().read_table(file, columns=list(wanted))
    return {name: _to_array(table, name, shape) for name, shape in wanted.items()}


def _decoded_bytes(file: Path, wanted: dict[str, tuple[int, ...]]) -> int:
    """Return about how many bytes the columns take in memory, by the number of values that the file
    states; a small file may repeat one value very often."""
    info = _import_parquet().read_metadata(file)
    groups = (info.row_group(number) for number in range(info.num_row_groups))
    chunks = [group.column(at) for group in groups for at in range(group.num_columns)]
    below = tuple(f"{name}." for name in wanted)  # paths of a list's values begin with its name
    return 16 * sum(x.num_values for x in chunks if f"{x.path_in_schema}.".startswith(below))


def _to_array(table: Any, name: str, shape: tuple[int, ...]) -> np.ndarray:
    column = table.column(name).combine_chunks()
    if column.null_count:
        raise Mistake(
            f"Column {name!r} has {column.null_count} empty entries. Fill them, or leave the "
            "column out."
        )
    while hasattr(column, "flatten") and hasattr(column.type, "value_type"):  # lists of lists
        column = column.flatten()
    values = column.to_numpy(zero_copy_only=False)
    values = values.astype(np.uint8) if values.dtype == bool else values
    count = table.num_rows
    if values.size != count * math.prod(shape):
        raise Mistake(
            f"Column {name!r} has {values.size} numbers, but {count} frames of shape {shape} need "
            f"{count * math.prod(shape)}. Download the file again."
        )
    vector = name.startswith(OBS_PREFIX) or (name == "action" and values.dtype.kind == "f")
    single = math.prod(shape) == 1 and not vector
    return values.reshape(count, *(() if single else shape))


def _check_counts(files: Sequence[Path], info: dict[str, Any]) -> None:
    """Raise Mistake if the files do not have as many frames as the description states."""
    found = sum(_import_parquet().read_metadata(file).num_rows for file in files)
    if found != (wanted := int(require_entry(info, ["total_frames"]))):
        raise Mistake(
            f"The files have {found} frames, but {INFO_FILE} states {wanted}. Download the dataset "
            "again."
        )


def _import_parquet() -> Any:
    try:
        import pyarrow.parquet
    except ImportError as error:
        raise Mistake(
            'Reading LeRobot\'s files needs pyarrow. Install it: pip install "sterling-rl[lerobot]"'
        ) from error
    return pyarrow.parquet
