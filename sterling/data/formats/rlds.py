"""Read RLDS datasets: TensorFlow's record files of episodes, described in ``features.json``.

A step is an observation and the action taken there. By the format's rule the last step only holds
the final observation, and its action and reward mean nothing. Robot datasets often put the reward
for the solved task there all the same: if a last step is terminal and has a reward, it is kept as
a row, and its successor, which has no value, is a copy. An action of several parts becomes one
vector. Text and encoded pictures are left out, and so is a step's ``discount``, because
``is_terminal`` marks terminations. Format: https://github.com/google-research/rlds.
"""

from __future__ import annotations

import dataclasses
import json
import math
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from gymnasium import spaces

from sterling.data.dataset_metadata import Facts, Source
from sterling.data.episode_columns import BLOCK_ROWS, Arrays, Block, Stream, join_blocks
from sterling.data.formats import flat_arrays, tfrecord
from sterling.data.formats.damaged_files import require_entry
from sterling.data.space_json import Space, finite_extremes, guess_space
from sterling.problem.joined_path import joined_path, plain_path
from sterling.types import Mistake

FORMAT = "rlds"
FEATURES_FILE, INFO_FILE = "features.json", "dataset_info.json"
OBS, ACTION = "observation", "action"
KNOWN_FEATURES = ("reward", "discount", "is_first", "is_last", "is_terminal")


@dataclasses.dataclass(frozen=True)
class FeatureTensor:
    """Type, shape and encoding of one numeric feature of a step."""

    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    encoding: str = "none"  # or "bytes" or "zlib": each step's numbers are one byte string

    def array(self, values: Any, steps: int) -> np.ndarray:
        """Return an episode's values as ``(step, ...)``; raise Mistake if their number is wrong."""
        if isinstance(values, list):
            unpack = self._inflated if self.encoding == "zlib" else bytes
            values = np.frombuffer(b"".join(unpack(each) for each in values), self.dtype)
        if values.size != steps * math.prod(self.shape):
            raise Mistake(f"{values.size} numbers, but {steps} steps of shape {self.shape}")
        kind = {"b": np.uint8, "f": np.float32}.get(self.dtype.kind, self.dtype)
        return values.astype(kind).reshape(steps, *self.shape)

    def _inflated(self, packed: bytes) -> bytes:
        """Decompress one step's numbers, up to the expected size: little may unpack to much."""
        most = math.prod(self.shape) * self.dtype.itemsize
        unpacker = zlib.decompressobj()
        found = unpacker.decompress(packed, most + 1)
        if len(found) > most or not unpacker.eof:
            raise Mistake(f"a compressed step does not unpack to {most} bytes")
        return found


def recognises(path: Path) -> bool:
    """Whether it is the folder of one version of a TensorFlow dataset."""
    return (path / FEATURES_FILE).is_file() and (path / INFO_FILE).is_file()


def read(path: Path, limit: int | None = None) -> Stream:
    """Read the folder as episodes, all splits one after another."""
    info = json.loads((path / INFO_FILE).read_text())
    if (kind := info.get("fileFormat", "tfrecord")) != "tfrecord":
        raise Mistake(
            f"The dataset is stored as {kind}. Write it again with file_format='tfrecord'."
        )
    files = sorted(path.glob("*.tfrecord*"))
    features: Any = json.loads((path / FEATURES_FILE).read_text())
    for key in ("featuresDict", "features", "steps", "sequence", "feature"):
        features = require_entry(features, [key])
    leaves = _features_by_path(features)
    tensors = {name: leaf for name, leaf in leaves.items() if leaf is not None}
    shown, acted = (_names_below(tensors, part) for part in (OBS, ACTION))
    require_entry(tensors, ["is_terminal"])
    needed = [name for name in (*acted, "is_terminal", "reward") if name in tensors]
    low, high = finite_extremes(
        _meaningful_actions(files, {name: tensors[name] for name in needed}, acted, info)
    )
    first = next((one for one in _read_episodes(files, tensors) if _step_count(one)), None)
    if first is None:
        raise Mistake("No episode has any steps. Give a dataset with at least one step.")
    columns = _episode_columns(first, shown, acted)
    obs = _obs_space({name: x for name, x in columns.items() if name.startswith("obs")})
    source = Source(f"{info['name']} {info['version']}", FORMAT, info.get("moduleName", ""))
    action = guess_space(ACTION, columns["action"], low, high)
    facts = flat_arrays.note_guessed_spaces(Facts(sources=(source,)), action).with_notes(
        *_assumptions(leaves, acted)
    )
    size = sum(file.stat().st_size for file in files)
    return Stream(obs, action, facts, _read_blocks(files, tensors, shown, acted), size)


def _features_by_path(features: dict[str, Any]) -> dict[str, FeatureTensor | None]:
    """Return the path and type of every feature. Raises Mistake for two that record files cannot
    tell apart: ``arm/pos`` beside ``arm`` with ``pos``."""
    found = dict(_feature_tensors(features))
    named: dict[str, str] = {}
    for path in found:
        if (first := named.setdefault(plain_path(path), path)) != path:
            raise Mistake(
                f"Two features are stored as {plain_path(path)!r}: {first} and {path} (~1 is a "
                "slash in a name). Rename one and write the dataset again."
            )
    return found


def _feature_tensors(
    feature: dict[str, Any], name: str = ""
) -> Iterator[tuple[str, FeatureTensor | None]]:
    """Yield the path (:func:`joined_path`) and type of every feature below one; None if not numbers
    of one shape."""
    if "featuresDict" in feature:
        for key, part in sorted(feature["featuresDict"]["features"].items()):
            below = joined_path([key])
            yield from _feature_tensors(part, f"{name}/{below}" if name else below)
    elif "classLabel" in feature:
        yield name, FeatureTensor(np.dtype(np.int64), ())
    elif "tensor" in feature and feature["tensor"]["dtype"] != "string":
        stored = feature["tensor"]
        shape = tuple(int(n) for n in stored["shape"].get("dimensions", ()))
        known = FeatureTensor(np.dtype(stored["dtype"]), shape, stored.get("encoding", "none"))
        yield name, None if -1 in shape else known
    else:
        yield name, None


def _names_below(tensors: dict[str, FeatureTensor], part: str) -> list[str]:
    """Return the names of the tensors of one part of a step (observation or action)."""
    found = [name for name in tensors if name == part or name.startswith(f"{part}/")]
    return found or [require_entry(tensors, [part])]


def _assumptions(leaves: dict[str, FeatureTensor | None], acted: Sequence[str]) -> Iterator[str]:
    """Yield notes on what was left out or filled in."""
    left = [name for name, leaf in leaves.items() if leaf is None]
    if left:
        yield f"left out, not numbers: {', '.join(left)}"
    if len(acted) > 1:
        yield f"the action is {', '.join(acted)}, in this order"
    if "reward" not in leaves:
        yield flat_arrays.NO_REWARDS_NOTE
    else:
        yield "terminal last steps with a reward are rows; the observation after them is a copy"


def _read_episodes(files: Sequence[Path], tensors: dict[str, FeatureTensor]) -> Iterator[Arrays]:
    """Yield every episode, also those without steps, as feature -> ``(step, ...)``."""
    for file in files:
        for number, record in enumerate(tfrecord.read_records(file)):
            try:
                yield _parse_episode(tfrecord.parse_example(record), tensors)
            except Mistake as error:
                raise Mistake(f"{file.name}: episode {number}: {error}") from error


def _parse_episode(found: dict[str, Any], tensors: dict[str, FeatureTensor]) -> Arrays:
    steps = len(found.get("steps/is_terminal", ()))
    made = {}
    for name, tensor in tensors.items():
        values = require_entry(found, [f"steps/{plain_path(name)}"]) if steps else np.zeros(0)
        try:
            made[name] = tensor.array(values, steps)
        except (Mistake, ValueError, zlib.error) as error:
            raise Mistake(
                f"{name!r} does not match {FEATURES_FILE}: {error}. Download the dataset again."
            ) from error
    early = np.flatnonzero(made.get("is_last", made["is_terminal"])[:-1])
    if len(early):
        raise Mistake(
            f"The episode continues after step {early[0]}, which is marked as its last. Download "
            "the dataset again."
        )
    return made


def _step_count(episode: Arrays) -> int:
    return len(episode["is_terminal"])


def _meaningful_actions(
    files: Sequence[Path],
    tensors: dict[str, FeatureTensor],
    acted: Sequence[str],
    info: dict[str, Any],
) -> Iterator[np.ndarray]:
    """Yield each episode's actions without a meaningless last one; raise Mistake at the end if
    episodes are missing."""
    count = 0
    for steps in _read_episodes(files, tensors):
        count += 1
        if _step_count(steps):
            columns = _episode_columns(steps, (), acted)
            kept = _step_count(steps) - (
                not _is_last_step_rewarded(columns, bool(steps["is_terminal"][-1]))
            )
            yield columns["action"][:kept]
    lengths = [int(n) for split in info.get("splits", ()) for n in split.get("shardLengths", ())]
    if count != sum(lengths):
        raise Mistake(
            f"The files have {count} episodes, but {INFO_FILE} states {sum(lengths)}. Download the "
            "dataset again."
        )


def _episode_columns(steps: Arrays, shown: Sequence[str], acted: Sequence[str]) -> Arrays:
    """Return the steps of an episode under the names of dataset columns."""
    lone = len(shown) == 1
    made = {"obs" + ("" if lone else name.removeprefix(OBS)): steps[name] for name in shown}
    count = _step_count(steps)
    if len(acted) == 1 and steps[acted[0]].dtype.kind != "f":
        chosen = steps[acted[0]]
        made["action"] = chosen.reshape(count) if chosen.shape[1:] == (1,) else chosen
    else:
        parts = [steps[name].reshape(count, -1).astype(np.float32) for name in acted]
        made["action"] = np.concatenate(parts, 1)
    made["reward"] = steps.get("reward", np.zeros(count)).reshape(count).astype(np.float32)
    for name in sorted(steps.keys() - {*shown, *acted, *KNOWN_FEATURES}):
        column = "extra/" + plain_path(name).replace("/", ".")
        if column in made:
            raise Mistake(f"Two features would be the column {column!r}. Rename {name!r}.")
        made[column] = steps[name]
    return made


def _is_last_step_rewarded(columns: Arrays, terminal: bool) -> bool:
    """Whether an episode's last step is a row: it is terminal and has a reward."""
    return terminal and bool(columns["reward"][-1])


def _obs_space(columns: Arrays) -> Space:
    """Guess the observation space: a box, or a Dict with nested Dicts."""
    if list(columns) == ["obs"]:
        return guess_space("obs", columns["obs"])
    whole: dict[str, Any] = {}
    for name, column in columns.items():
        *folders, leaf = map(plain_path, name.split("/")[1:])
        place = whole
        for folder in folders:
            place = place.setdefault(folder, {})
        place[leaf] = guess_space("obs", column)
    return _nested_space(whole)


def _nested_space(parts: dict[str, Any]) -> Space:
    made = {key: _nested_space(x) if isinstance(x, dict) else x for key, x in parts.items()}
    return spaces.Dict(made)


def _read_blocks(
    files: Sequence[Path],
    tensors: dict[str, FeatureTensor],
    shown: Sequence[str],
    acted: Sequence[str],
) -> Iterator[Block]:
    """Yield whole episodes, about ``BLOCK_ROWS`` rows at a time."""
    waiting: list[Block] = []
    for steps in _read_episodes(files, tensors):
        if not _step_count(steps):
            continue
        made = _make_block(_episode_columns(steps, shown, acted), bool(steps["is_terminal"][-1]))
        if len(made.lengths):
            waiting.append(made)
        if sum(int(one.lengths[0]) for one in waiting) >= BLOCK_ROWS:
            yield join_blocks(waiting)
            waiting = []
    if waiting:
        yield join_blocks(waiting)


def _make_block(columns: Arrays, terminal: bool) -> Block:
    """Make a block of one episode."""
    last = len(columns["reward"]) - 1
    rewarded = _is_last_step_rewarded(columns, terminal)
    discount = np.ones(last + 1, np.float32)
    if terminal:
        discount[last if rewarded else max(last - 1, 0)] = 0.0
    obs = {name: x for name, x in columns.items() if name.startswith("obs")}
    rows = {name: x for name, x in columns.items() if name not in obs} | {"discount": discount}
    return flat_arrays.complete_episodes(obs, rows, np.array([last]), np.array([rewarded]))
